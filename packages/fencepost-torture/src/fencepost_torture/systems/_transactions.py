"""Managed transactions on a real chain: payments that senders sign, send and follow until they are settled.

They are checked by the chain's own blocks, and not by our tables: each payment that was asked for is in one
block, once, and every nonce of a signer was used, in order and by one of our transactions.

A payment is identified on the chain by its amount. Recipients are few: the chain copies all its accounts with
each block.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, LiteralString

from fencepost import Fencepost
from fencepost.kernel.drivers import run
from fencepost.logs import configure_logging
from fencepost.settings import Settings
from fencepost.testing import Breach
from fencepost_nonces._http_service import first_nonce_of
from fencepost_nonces._metrics import NonceMetrics
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.sending import _transaction_calls as tx_calls
from fencepost_nonces.sending._keys import Keystore
from fencepost_nonces.sending._rpc import Chains
from fencepost_nonces.sending._sender import TransactionSender
from fencepost_nonces.sending._transaction_calls import TransactionRequest
from fencepost_nonces.signer import Signer
from fencepost_nonces.testing.anvil import CHAIN_ID, ETHER, new_account, recipient, running_anvil
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._effects import exactly_once
from fencepost_torture._row_counter import RowCounter
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

SIGNERS = 6
RECIPIENTS = 16
HELPING = 6
GAS = 21_000
FUNDS = 10**6 * ETHER
BLOCK_SECONDS = "0.2"
CONFIRMATIONS = 1
STATES_KEPT = 8
"""Each state has the hashes of all blocks: for a chain of hours, many would fill the memory."""
STUCK_SECONDS = 2.0
FIRST = {
    "chainId": CHAIN_ID,
    "nonce": 0,
    "gas": GAS,
    "to": recipient(0),
    "value": 1,
    "type": 2,
    "maxFeePerGas": 1,
    "maxPriorityFeePerGas": 1,
}

# Each time a transaction reaches a final state, a row is added, whichever process did it.
SCHEMA: LiteralString = """
    create table effect (key text not null);
    create trigger count_effects after insert on effect referencing new table as inserted
      for each statement execute function count_inserted();
    create function note_effect() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.effect values (new.idempotency_key);
      return null;
    end $f$;
    create trigger note_effect after update on fencepost.nonce_transaction for each row
      when (new.state = 'CONFIRMED' and old.state <> 'CONFIRMED' and new.idempotency_key not like 'fill:%')
      execute function note_effect();
"""
SETTLED: LiteralString = """
    select idempotency_key from fencepost.managed_transaction
    where state = 'CONFIRMED' and nonce_status = 'CONSUMED'
"""
OPEN_NONCES: LiteralString = """
    select signer, nonce, status from fencepost.signer_nonce_allocation where status <> 'CONSUMED'
"""


class Transactions:
    """Senders, each the home node of some of the signers."""

    name = "transactions"
    processes = 3
    uses_redis = False
    bears_clock_jumps = True
    open_max = 30
    points = (
        "nonces.after_take",
        "nonces.after_signing",
        "nonces.before_signed",
        "nonces.after_signed",
        "nonces.after_send",
        "nonces.after_broadcast",
        "nonces.after_confirm",
    )

    def load(self) -> None:
        """Makes and discards a signature: the first one imports more than everything else."""
        asyncio.run(_keys().sign(_signer_of(0).name, FIRST))

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._asked = 0
        self._meter = RowCounter.on(env, SCHEMA)
        home = Settings.load().data_directory / "npm"
        options = ("--block-time", BLOCK_SECONDS, "--prune-history", str(STATES_KEPT))
        with running_anvil(*options, home=home) as self._chain:
            for number in range(SIGNERS):
                self._chain.fund(_signer_of(number).name, FUNDS)
            yield {"chain": self._chain.url}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_send(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        numbers = range(turn * HELPING, (turn + 1) * HELPING)
        env.insist(lambda: _submit(env, numbers))
        self._asked += HELPING

    def account(self, env: SystemEnvironment) -> Account:
        return Account(self._asked, self._meter.read(env))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        yield from chain_breaches(self._asked, self._chain.transactions())
        for to, expected in sorted(_owed(self._asked).items()):
            if (balance := self._chain.balance(to)) != expected:
                yield Breach("balances", to, f"has {balance}, and was to get {expected}")

        ends = Counter(key for (key,) in env.rows("select key from effect"))
        settled = {key for (key,) in env.rows(SETTLED)}
        for key in map(_key, range(self._asked)):
            if ends[key] != 1 or key not in settled:
                now = "settled" if key in settled else "open"
                yield Breach("settled once", key, f"is {now}, and was settled {ends[key]} times")

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        for signer, nonce, status in env.rows(OPEN_NONCES):
            yield Breach("left behind", f"nonce {nonce} of {signer}", f"is {status}")
        if pooled := self._chain.pooled():
            yield Breach("left behind", "pool", f"has {pooled} transactions that are in no block")


def chain_breaches(asked: int, mined: Iterable[Mapping[str, Any]]) -> Iterable[Breach]:
    """What the blocks say of the payments from 0 up to `asked`, and of the nonces."""
    keys = {payment(number): _key(number) for number in range(asked)}
    nonces: dict[str, list[int]] = {}
    paid: list[str] = []
    for tx in mined:
        sender, to, value = tx["from"], tx["to"], int(tx["value"], 16)
        nonces.setdefault(sender, []).append(int(tx["nonce"], 16))
        # A no-op uses up a nonce that is not needed any more: zero, from a signer to itself.
        if value or to != sender:
            paid.append(keys.get((sender, to, value), f"{value} from {sender} to {to}"))
    yield from exactly_once(keys.values(), paid)
    for signer, used in sorted(nonces.items()):
        astray = next((place for place, nonce in enumerate(used) if nonce != place), None)
        if astray is not None:
            yield Breach("nonces in order", signer, f"has used {used[astray]} where {astray} was next")


def _key(number: int) -> str:
    return f"pay-{number}"


def payment(number: int) -> tuple[str, str, int]:
    """The sender, the recipient, and the amount, which is unique."""
    return _signer_of(number % SIGNERS).name, recipient(number % RECIPIENTS), number + 1


def _owed(asked: int) -> Counter[str]:
    owed = Counter[str]()
    for number in range(asked):
        _, to, value = payment(number)
        owed[to] += value
    return owed


@cache
def _signer_of(number: int) -> Signer:
    return Signer.of(CHAIN_ID, new_account(number).address)


@cache
def _keys() -> Keystore:
    """Made once, before there are processes."""
    owned = [new_account(number) for number in range(SIGNERS)]
    return Keystore({account.address.lower(): account for account in owned})


def _submit(env: SystemEnvironment, numbers: Iterable[int]) -> None:
    """Submit by key: a repeat of an accepted one returns its answer, and is not accepted again."""
    with env.asking() as connection:
        for number in numbers:
            _, to, value = payment(number)
            order = TransactionRequest(to, value, b"", GAS)
            run(connection, tx_calls.submit(_signer_of(number % SIGNERS), _key(number), order))


async def _send(task: ProcessTask) -> None:
    stop = told_to_end()
    settings = NoncesSettings(
        # Each signer has a home node: in basic mode the first node would hold them all, and die with all of
        # them.
        mode="queue",
        node_address=f"http://node-{task.place}",
        chains=f"{CHAIN_ID}={task.more['chain']}",
        lease_seconds=task.lease_seconds,
        wait_seconds=1.0,
        confirmations=CONFIRMATIONS,
        stuck_seconds=STUCK_SECONDS,
        poll_seconds=0.1,
    )
    chains = Chains(dict(settings.endpoints))
    async with Fencepost(task.database_url, settings=PATIENT) as fp:
        metrics = NonceMetrics.on(fp.metrics)
        node = Node(fp, settings, metrics, first_nonce=first_nonce_of(fp, chains))
        sender = TransactionSender(fp, node, chains, _keys(), metrics)
        await node.start()
        sender.start()
        try:
            await stop.wait()
        finally:
            await sender.stop()
            await node.stop()
            await chains.close()


TRANSACTIONS = Transactions
