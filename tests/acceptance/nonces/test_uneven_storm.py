"""Senders behind one URL over uneven backends: each recipient is paid once, whichever backend answers.

The proxy answers a share of the calls from a snapshot that is 16 to 20 blocks old, while 12 confirmations are
asked for, so that what is deep enough for the one is unknown to the other. It returns nulls, loses replies
and refuses with 429. In the crash storm the senders are killed as well, at crash points and anywhere.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child, Clock
from fencepost_nonces.testing import RpcProxy, Unevenness
from fencepost_torture.systems._transactions import Transactions
from tests.acceptance.nonces.anvil import Anvil, running_anvil
from tests.acceptance.nonces.exchange import new_account
from tests.acceptance.nonces.test_chain_storm import (
    LEASE_SECONDS,
    Plan,
    breaches,
    has_ended,
    start_node,
    submit,
)

UNEVEN = Unevenness(stale=0.35, blocks_behind=(16, 20), lost=0.02, null=0.25, limited=0.02)
# So many looks at the progress for a block, and for a kill.
LOOKS_A_BLOCK = 4
LOOKS_A_KILL = 60
BURST_BLOCKS = 20
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Seen:
    """What befell the run."""

    kills: Counter[str]
    met: Counter[str]
    blocks: int


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    with running_anvil("--gas-limit", "300000000") as anvil:
        yield anvil


class Storm:
    """Starts nodes behind the proxy, kills them, and mines."""

    def __init__(
        self, database: Database, clock: Clock, anvil: Anvil, plan: Plan, stack: ExitStack, seed: int
    ) -> None:
        self._database = database
        self._clock = clock
        self._anvil = anvil
        self._plan = plan
        self._stack = stack
        self._rpc = stack.enter_context(RpcProxy(anvil.url, seed=seed, unevenness=UNEVEN))
        self._chance = random.Random(seed)  # noqa: S311 - Trouble is no secret.
        self._kills: Counter[str] = Counter()
        self._looks = 0
        self._nodes: list[tuple[Child, str]] = []

    def start(self, *, planted: bool) -> None:
        self._planted = planted
        self._nodes = [self._start() for _ in range(self._plan.nodes)]

    @property
    def output(self) -> str:
        return "\n".join(child.output[-4000:] for child, _ in self._nodes)

    def seen(self) -> Seen:
        return Seen(self._kills, self._rpc.met, self._looks // LOOKS_A_BLOCK)

    def turn(self) -> None:
        """Between two looks at the progress: a block now and then, and a kill."""
        self._looks += 1
        if self._looks % LOOKS_A_BLOCK == 0:
            # With the planted rule many at once: a receipt that is missing once is then missing for good.
            self._anvil.mine(BURST_BLOCKS if self._planted else 1)
        # Half of them: the others die at a crash point.
        anywhere = self._kills["anywhere"] < max(1, self._plan.kills // 2)
        if self._looks % LOOKS_A_KILL == 0 and anywhere and self._kills.total() < self._plan.kills:
            place = self._chance.randrange(len(self._nodes))
            self._nodes[place][0].kill()
            self._replace(place, "anywhere")
        for place, (child, point) in enumerate(self._nodes):
            if has_ended(child):
                self._replace(place, point)

    def _replace(self, place: int, point: str) -> None:
        self._kills[point] += 1
        self._clock.advance(LEASE_SECONDS)
        self._nodes[place] = self._start()

    def _start(self) -> tuple[Child, str]:
        """A node, and the point at which it will be killed, if it is to be."""
        more = self._kills.total() < self._plan.kills
        child, point = start_node(
            self._database.url, self._rpc.url, self._plan, self._chance, more, 12, 4.0, self._planted
        )
        return self._stack.enter_context(child), point


def run(
    database: Database, clock: Clock, anvil: Anvil, plan: Plan, seed: int, *, planted: bool = False
) -> Seen:
    """To the end of every transaction."""
    for number in range(plan.signers):
        anvil.fund(new_account(number).address)
    asyncio.run(submit(database.url, plan))
    with ExitStack() as stack, database.connect_admin() as admin:
        storm = Storm(database, clock, anvil, plan, stack, seed)
        storm.start(planted=planted)

        def all_confirmed() -> bool:
            storm.turn()
            row = admin.execute(
                "select count(*) from fencepost.managed_transaction where state = 'CONFIRMED'"
                " and idempotency_key like 'pay-%'"
            ).fetchone()
            return row == (plan.transactions,)

        try:
            Deadline(plan.within, "every transaction is confirmed").wait(all_confirmed)
        except TimeoutError as error:
            left = admin.execute(
                "select signer, state, nonce_status, nonce, error from fencepost.managed_transaction"
                " where state <> 'CONFIRMED' order by signer, nonce limit 10"
            ).fetchall()
            raise AssertionError(f"{error}: {left}\n{storm.output}") from error
        return storm.seen()


def shows_something(seen: Seen) -> None:
    for fault in ("stale", "lost", "null", "limited"):
        assert seen.met[fault] > 0, f"nothing was {fault}: the test has shown nothing"


@pytest.mark.timeout(300)
def test_behind_uneven_backends_every_recipient_is_paid_once(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """Two nodes, of which one is killed."""
    plan = Plan(transactions=40, signers=2, nodes=2, kills=1, hits=20)

    seen = run(database, clock, anvil, plan, seed=7)

    assert breaches(database, anvil, plan) == []
    shows_something(seen)
    assert seen.kills.total() > 0, "no node was killed: the test has shown nothing"


@pytest.mark.timeout(300)
def test_a_count_and_a_missing_receipt_taken_for_proof_pay_twice(
    database: Database, clock: Clock, anvil: Anvil
) -> None:
    """The same storm with the rule planted that once was: one account gets more than it was to get."""
    plan = Plan(transactions=40, signers=2, nodes=2, kills=0)

    run(database, clock, anvil, plan, seed=7, planted=True)

    assert any(" has " in breach and " and not " in breach for breach in breaches(database, anvil, plan))


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", SEEDS)
def test_five_thousand_transactions_behind_uneven_backends(
    database: Database, clock: Clock, anvil: Anvil, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    at_full_size(database, clock, anvil, capsys, Plan(5000, 20, nodes=2, kills=0, within=3000), seed)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_five_thousand_transactions_behind_uneven_backends_under_crashes(
    database: Database, clock: Clock, anvil: Anvil, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(5000, 20, nodes=3, kills=40, hits=120, within=3000)

    seen = at_full_size(database, clock, anvil, capsys, plan, 4)

    assert seen.kills.total() >= plan.kills / 2
    assert len(seen.kills) > len(Transactions.points) / 2


def at_full_size(
    database: Database,
    clock: Clock,
    anvil: Anvil,
    capsys: pytest.CaptureFixture[str],
    plan: Plan,
    seed: int,
) -> Seen:
    begun = time.monotonic()
    seen = run(database, clock, anvil, plan, seed)
    found = breaches(database, anvil, plan)
    with capsys.disabled():
        print(f"\nseed {seed}, {time.monotonic() - begun:.0f} s, {len(found)} breaches: {seen}")  # noqa: T201 - The figures of the run.
    assert found == []
    shows_something(seen)
    return seen
