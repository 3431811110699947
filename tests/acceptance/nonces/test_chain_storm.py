"""Several senders on a real chain, killed between any two steps, with lost replies, blocks and pools.

Every transaction is mined exactly once, no gap is left, and every balance is right.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child, Clock
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._transaction_calls import TransactionRequest
from fencepost_nonces.signer import Signer
from fencepost_torture.systems._transactions import Transactions
from tests.acceptance.nonces.anvil import CHAIN_ID, FUNDS, Anvil, running_anvil
from tests.acceptance.nonces.counter import run_counter
from tests.acceptance.nonces.exchange import new_account, recipient
from tests.acceptance.nonces.lossy_rpc import LossyRpc

LEASE_SECONDS = 15.0


# Of the replies to these, every so many are lost after the node has done what it was asked.
LOSE_EVERY = {"eth_sendRawTransaction": 7, "eth_getTransactionReceipt": 31, "eth_getTransactionCount": 41}


@dataclass(frozen=True)
class Plan:
    """How much is sent, and how often a node is killed, at its 2nd to `hits`th pass of a crash point."""

    transactions: int
    signers: int
    nodes: int = 3
    kills: int = 3
    hits: int = 6
    within: float = 240.0


@dataclass(frozen=True)
class Seen:
    """What befell the run."""

    kills: Counter[str]
    lost_replies: Counter[str]
    dropped_pools: int
    reorganisations: int


@pytest.fixture
def anvil() -> Iterator[Anvil]:
    with running_anvil("--gas-limit", "300000000") as anvil:
        yield anvil


def signer_of(number: int) -> Signer:
    return Signer.of(CHAIN_ID, new_account(number).address)


class ChainFaults:
    """Starts nodes that end at a crash point, and others in their place; and troubles the chain."""

    def __init__(self, database: Database, clock: Clock, anvil: Anvil, plan: Plan, stack: ExitStack) -> None:
        self._database = database
        self._clock = clock
        self._anvil = anvil
        self._plan = plan
        self._stack = stack
        self._rpc = stack.enter_context(LossyRpc(anvil.url, LOSE_EVERY))
        self._chance = random.Random(3)  # noqa: S311 - Trouble is no secret.
        self._kills: Counter[str] = Counter()
        self._troubles: Counter[str] = Counter()
        self._looks = 0
        self._nodes = [self._start() for _ in range(plan.nodes)]

    @property
    def output(self) -> str:
        return "\n".join(child.output for child, _ in self._nodes)

    def seen(self) -> Seen:
        return Seen(self._kills, self._rpc.lost, self._troubles["drop"], self._troubles["reorg"])

    def turn(self) -> None:
        """Between two looks at the progress: a block, and now and then some trouble."""
        self._looks += 1
        if self._looks % 3 == 0:
            self._anvil.mine()
        if self._looks % 40 == 20:
            self._troubles["drop"] += 1
            self._anvil.rpc("anvil_dropAllTransactions")
        if self._looks % 40 == 39:
            self._troubles["reorg"] += 1
            self._anvil.rpc("anvil_reorg", 1, [])
        for place, (child, point) in enumerate(self._nodes):
            if has_ended(child):
                self._kills[point] += 1
                self._clock.advance(LEASE_SECONDS)
                self._nodes[place] = self._start()

    def _start(self) -> tuple[Child, str]:
        """A node, and the point at which it will be killed; the last ones live on."""
        more = self._kills.total() < self._plan.kills
        child, point = start_node(
            self._database.url, self._rpc.url, self._plan, self._chance, more, 3, 80_000.0
        )
        return self._stack.enter_context(child), point


def start_node(
    database_url: str,
    rpc_url: str,
    plan: Plan,
    chance: random.Random,
    is_killed: bool,
    confirmations: int,
    stuck_seconds: float,
    planted: bool = False,
) -> tuple[Child, str]:
    """A node, and the point at which it is killed, if it is."""
    settings = {
        "chains": f"{CHAIN_ID}={rpc_url}",
        "lease_seconds": LEASE_SECONDS,
        "idle_seconds": 0.5,
        "confirmations": confirmations,
        "stuck_seconds": stuck_seconds,
        "poll_seconds": 0.05,
        "open_max": 64,
    }
    point = chance.choice(Transactions.points)
    crash = f"{point}:kill@{chance.randrange(2, plan.hits)}" if is_killed else ""
    return Child(run_counter, database_url, settings, plan.signers, planted, crash=crash), point


def has_ended(child: Child) -> bool:
    try:
        child.wait(within=0.001)
    except AssertionError:
        return False
    return True


def run(database: Database, clock: Clock, anvil: Anvil, plan: Plan) -> Seen:
    """To the end of every transaction."""
    for number in range(plan.signers):
        anvil.fund(new_account(number).address)
    asyncio.run(submit(database.url, plan))
    with ExitStack() as stack, database.connect_admin() as admin:
        faults = ChainFaults(database, clock, anvil, plan, stack)

        def all_confirmed() -> bool:
            faults.turn()
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
            raise AssertionError(f"{error}: {left}\n{faults.output}") from error
        return faults.seen()


async def submit(url: str, plan: Plan) -> None:
    async with Fencepost(url) as fp:
        for number in range(plan.transactions):
            order = TransactionRequest(recipient(number), 1000 + number, b"", 21_000)
            await fp.run(tx_calls.submit(signer_of(number % plan.signers), f"pay-{number}", order))


def breaches(database: Database, anvil: Anvil, plan: Plan) -> list[str]:
    """What the chain itself says: who got what, who paid what, and which nonces were used."""
    found = [
        f"{recipient(number)} has {balance} and not {1000 + number}"
        for number in range(plan.transactions)
        if (balance := anvil.balance(recipient(number))) != 1000 + number
    ]
    mined, fees = anvil.transactions(), anvil.fees_paid()
    for number in range(plan.signers):
        name = signer_of(number).name
        sent = [tx for tx in mined if tx["from"] == name]
        expected = len(range(number, plan.transactions, plan.signers))
        payments = [tx for tx in sent if int(tx["value"], 16)]
        if len(payments) != expected:
            found.append(f"signer {number} has {len(payments)} payments on the chain and not {expected}")
        if sorted(int(tx["nonce"], 16) for tx in sent) != list(range(anvil.count(name))):
            found.append(f"signer {number} has used other nonces than those up to its count")
        left = FUNDS - sum(int(tx["value"], 16) for tx in sent) - fees[name]
        if anvil.balance(name) != left:
            found.append(f"signer {number} has {anvil.balance(name)} left and not {left}")
    with database.connect_admin() as admin:
        gaps = admin.execute(
            "select signer, nonce, status from fencepost.signer_nonce_allocation where status <> 'CONSUMED'"
        ).fetchall()
    return [*found, *(f"left open: {gap}" for gap in gaps)]


@pytest.mark.timeout(300)
def test_every_transaction_is_mined_exactly_once(database: Database, clock: Clock, anvil: Anvil) -> None:
    plan = Plan(transactions=20, signers=2, nodes=2, kills=2)

    seen = run(database, clock, anvil, plan)

    assert breaches(database, anvil, plan) == []
    assert seen.kills.total() > 0, "no node was killed: the test has shown nothing"
    assert seen.lost_replies["eth_sendRawTransaction"] > 0, "no reply was lost: the test has shown nothing"


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_five_thousand_transactions_of_twenty_signers(
    database: Database, clock: Clock, anvil: Anvil, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan(transactions=5000, signers=20, kills=60, hits=120, within=3000)
    begun = time.monotonic()

    seen = run(database, clock, anvil, plan)

    with capsys.disabled():
        print(f"\n{time.monotonic() - begun:.0f} s: {seen}")  # noqa: T201 - The figures of the run.
    assert breaches(database, anvil, plan) == []
    assert set(seen.kills) == set(Transactions.points)
    assert min(seen.dropped_pools, seen.reorganisations, seen.lost_replies.total()) > 10
