"""Several senders on a real chain, killed between any two steps, with lost replies, blocks and pools.

Every transaction is mined exactly once, no gap is left, and every balance is right.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded.deadline import Deadline
from fencepost.nonces.sending import transaction as tx_calls
from fencepost.nonces.sending.transaction import Order
from fencepost.nonces.signer import Signer
from fencepost.testing import Child, Clock
from tests.acceptance.nonces.anvil import CHAIN_ID, Anvil, running_anvil
from tests.acceptance.nonces.counter import run_counter
from tests.acceptance.nonces.exchange import new_account, recipient

LEASE_SECONDS = 15.0
POINTS = (
    "nonces.after_take",
    "nonces.after_signing",
    "nonces.before_signed",
    "nonces.after_signed",
    "nonces.after_send",
    "nonces.after_broadcast",
    "nonces.after_confirm",
)


@dataclass(frozen=True)
class Plan:
    transactions: int
    signers: int
    nodes: int = 3
    kills: int = 5
    within: float = 100.0


@pytest.fixture
def clock(database: Database) -> Iterator[Clock]:
    with Clock(database.admin_url) as clock:
        yield clock


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    with running_anvil("--gas-limit", "300000000") as anvil:
        yield anvil


def signer_of(number: int) -> Signer:
    return Signer.of(CHAIN_ID, new_account(number).address)


class Weather:
    """Starts nodes that end at a crash point, and others in their place; and troubles the chain."""

    def __init__(self, database: Database, clock: Clock, anvil: Anvil, plan: Plan, stack: ExitStack) -> None:
        self._database = database
        self._clock = clock
        self._anvil = anvil
        self._plan = plan
        self._stack = stack
        self._chance = random.Random(3)  # noqa: S311 - Trouble is no secret.
        self.kills = 0
        self._looks = 0
        self._children = [self._start() for _ in range(plan.nodes)]

    def turn(self) -> None:
        """Between two looks at the progress: a block, and now and then some trouble."""
        self._looks += 1
        if self._looks % 3 == 0:
            self._anvil.mine()
        if self._looks % 40 == 20:
            self._anvil.rpc("anvil_dropAllTransactions")
        if self._looks % 40 == 39:
            self._anvil.rpc("anvil_reorg", 1, [])
        for place, child in enumerate(self._children):
            if has_ended(child):
                self.kills += 1
                self._clock.advance(LEASE_SECONDS)
                self._children[place] = self._start()

    def _start(self) -> Child:
        settings = {
            "chains": f"{CHAIN_ID}={self._anvil.url}",
            "lease_seconds": LEASE_SECONDS,
            "idle_seconds": 0.5,
            "confirmations": 3,
            "stuck_seconds": 80_000.0,
            "poll_seconds": 0.05,
            "open_max": 64,
        }
        point = self._chance.choice(POINTS)
        crash = f"{point}:kill@{self._chance.randrange(2, 6)}" if self.kills < self._plan.kills else ""
        child = Child(run_counter, self._database.url, settings, self._plan.signers, crash=crash)
        return self._stack.enter_context(child)


def has_ended(child: Child) -> bool:
    try:
        child.wait(within=0.001)
    except AssertionError:
        return False
    return True


def run(database: Database, clock: Clock, anvil: Anvil, plan: Plan) -> int:
    """To the end of every transaction; answers how often a node was killed."""
    for number in range(plan.signers):
        anvil.fund(new_account(number).address)
    asyncio.run(submit(database.url, plan))
    with ExitStack() as stack, database.connect_admin() as admin:
        weather = Weather(database, clock, anvil, plan, stack)

        def all_confirmed() -> bool:
            weather.turn()
            row = admin.execute(
                "select count(*) from fencepost.managed_transaction where state = 'CONFIRMED'"
            ).fetchone()
            return row == (plan.transactions,)

        try:
            Deadline(plan.within, "every transaction is confirmed").wait(all_confirmed)
        except TimeoutError as error:
            left = admin.execute(
                "select signer, state, nonce_status, nonce, tx_hash from fencepost.managed_transaction"
                " where state <> 'CONFIRMED' order by signer, nonce limit 10"
            ).fetchall()
            said = "\n".join(child.output for child in weather._children)  # pyright: ignore[reportPrivateUsage]
            raise AssertionError(f"{error}: {left}\n{said}") from error
        return weather.kills


async def submit(url: str, plan: Plan) -> None:
    async with Fencepost(url) as fp:
        for number in range(plan.transactions):
            order = Order(recipient(number), 1000 + number, b"", 21_000)
            await fp.run(tx_calls.submit(signer_of(number % plan.signers), f"pay-{number}", order))


def breaches(database: Database, anvil: Anvil, plan: Plan) -> list[str]:
    """What the chain itself says: who got what, and which nonces were used."""
    found = [
        f"{recipient(number)} has {balance} and not {1000 + number}"
        for number in range(plan.transactions)
        if (balance := anvil.balance(recipient(number))) != 1000 + number
    ]
    mined = anvil.transactions()
    for number in range(plan.signers):
        name = signer_of(number).name
        sent = [tx for tx in mined if tx["from"] == name and int(tx["value"], 16)]
        expected = len(range(number, plan.transactions, plan.signers))
        if len(sent) != expected:
            found.append(f"signer {number} has {len(sent)} payments on the chain and not {expected}")
    with database.connect_admin() as admin:
        gaps = admin.execute(
            "select signer, nonce, status from fencepost.signer_nonce_allocation where status <> 'CONSUMED'"
        ).fetchall()
    return [*found, *(f"left open: {gap}" for gap in gaps)]


@pytest.mark.timeout(180)
def test_every_transaction_is_mined_exactly_once(database: Database, clock: Clock, anvil: Anvil) -> None:
    plan = Plan(transactions=24, signers=3)

    kills = run(database, clock, anvil, plan)

    assert breaches(database, anvil, plan) == []
    assert kills > 0, "no node was killed: the test has shown nothing"


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_five_thousand_transactions_of_twenty_signers(database: Database, clock: Clock, anvil: Anvil) -> None:
    plan = Plan(transactions=5000, signers=20, kills=100, within=3000)

    kills = run(database, clock, anvil, plan)

    assert breaches(database, anvil, plan) == []
    assert kills > 10
