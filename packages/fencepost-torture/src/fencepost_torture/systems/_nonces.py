"""Nonces: nodes that hold signers in turn, and callers that use the nonces they get, or give them back.

The bulk form has more signers and asks for a thousand nonces with each call; everything else is the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from fencepost import Fencepost, FencepostError, Refusal
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._nonce_calls import NonceEnding, Reservation
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._linearizability import linearizable
from fencepost_torture._models import NonceModel
from fencepost_torture._nonce_checker import GIVEN_BACK, REFUSED, NonceChecker, doubted, runs_of, settled
from fencepost_torture._operation_log import OperationLog
from fencepost_torture._row_counter import RowCounter
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

CHAIN = 1
GIVEN_BACK_EVERY = 10
HOLD_SECONDS = 86_400.0
IDLE_SECONDS = 0.05

SCHEMA: LiteralString = """
    create table block (id bigint primary key, signer text not null, place int not null);
    create index on block (place, signer, id);
    create table used (block bigint primary key);
    grant select, insert on block, used to fencepost_app;
    create trigger count_used after insert on used referencing new table as inserted
      for each statement execute function count_inserted();
"""
ASK: LiteralString = """
    insert into block select n, 's' || n %% %(signers)s, n / %(signers)s %% %(places)s
    from generate_series(%(first)s::bigint, %(last)s::bigint) n on conflict do nothing
"""
NEXT: LiteralString = """
    select b.id from block b where b.place = %s and b.signer = %s and b.id > %s
    and not exists (select from used u where u.block = b.id) order by b.id limit 1
"""
USED: LiteralString = "insert into used values (%s) on conflict do nothing"


class Nonces:
    """Nodes, each with a caller of its own."""

    name = "nonces"
    processes = 3
    uses_redis = False
    bears_clock_jumps = True
    points = ()
    signers = 2
    size = 1
    """How many nonces are asked for at once: a block."""
    helping = 20

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._asked = 0
        self._meter = RowCounter.on(env, SCHEMA)
        yield {}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_serve(task, self.signers, self.size))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        env.insist(lambda: self._request(env, turn))
        self._asked += self.helping

    def _request(self, env: SystemEnvironment, turn: int) -> None:
        first = turn * self.helping
        facts = {"signers": self.signers, "places": self.processes}
        with env.connect() as connection:
            connection.execute(ASK, {"first": first, "last": first + self.helping - 1, **facts})

    def account(self, env: SystemEnvironment) -> Account:
        return Account(self._asked * self.size, self._meter.read(env) * self.size)

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        operations = env.operation_log.operations()
        yield from NonceChecker(env, self._asked, self.signers, self.size).judge(operations)
        known = [doubted(operation) for operation in operations]
        for signer in sorted({operation.subject for operation in operations}):
            history = settled([operation for operation in known if operation.subject == signer])
            yield from linearizable(signer, history, NonceModel())

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return ()


class BulkNonces(Nonces):
    """The same with a thousand nonces in each call: as many as a service gives out in a year."""

    name = "bulk-nonces"
    signers = 6
    size = 1000
    helping = 6
    # No more than is used up within the time allowed for open work afterwards, even on a busy machine.
    open_max = 24_000


async def _serve(task: ProcessTask, signers: int, size: int) -> None:
    stop = told_to_end()
    settings = NoncesSettings(
        node_address=f"http://node-{task.place}",
        lease_seconds=task.lease_seconds,
        idle_seconds=0.5,
        wait_seconds=1.0,
        turn_seconds=0.02,
        hold_seconds=HOLD_SECONDS,
    )
    async with Fencepost(task.database_url, settings=PATIENT) as fp:
        node = Node(fp, settings)
        await node.start()
        operation_log = OperationLog(Path(task.operation_log), f"caller-{task.boot}")
        caller = NonceCaller(fp, node, operation_log, task.place, size, stop)
        try:
            await asyncio.gather(*(caller.work(Signer.of(CHAIN, f"s{n}")) for n in range(signers)))
        finally:
            await node.stop()


class NonceCaller:
    """Asks its node for the blocks of its place, one by one for each signer, until each is used."""

    def __init__(
        self,
        fp: Fencepost,
        node: Node,
        operation_log: OperationLog,
        place: int,
        size: int,
        stop: asyncio.Event,
    ) -> None:
        self._fp = fp
        self._node = node
        self._operation_log = operation_log
        self._place = place
        self._size = size
        self._stop = stop

    async def work(self, signer: Signer) -> None:
        last = -1
        while not self._stop.is_set():
            # After any error the same requests again: by their ids they are the same reservations.
            with suppress(FencepostError, psycopg.Error, TimeoutError):
                block = await self._next(signer, last)
                if block is not None and await self._serve(signer, block):
                    last = block
                    continue
            await asyncio.sleep(IDLE_SECONDS)

    async def _next(self, signer: Signer, last: int) -> int | None:
        async with self._fp.transaction() as tx:
            row = await (await tx.execute(NEXT, (self._place, signer.name, last))).fetchone()
        return row and int(row[0])

    async def _serve(self, signer: Signer, block: int) -> bool:
        requests = [str(number) for number in range(block * self._size, (block + 1) * self._size)]
        if block % GIVEN_BACK_EVERY == 3:
            await self._give_back(signer, [request + GIVEN_BACK for request in requests])
        told = await self._reserve(signer, requests)
        if not await self._use(signer, [each for each in told if each.status == "HELD"]):
            return False
        async with self._fp.transaction() as tx:
            await tx.execute(USED, (block,))
        return True

    async def _use(self, signer: Signer, held: list[Reservation]) -> bool:
        if len(held) == 1:
            [only] = held
            await self._node.mark_used(signer, only.nonce, only.hold, f"tx-{only.request_id}")
            return True
        endings = [NonceEnding(each.nonce, each.hold, "used", f"tx-{each.request_id}") for each in held]
        answers = await self._node.mark_many(signer, endings) if endings else []
        return all(answer.refusal is None for answer in answers)

    async def _reserve(self, signer: Signer, requests: list[str]) -> list[Reservation]:
        operation = self._operation_log.begin(
            "reserve", signer.name, request=requests[0], count=len(requests)
        )
        with self._noting(operation):
            told = await self._node.reserve(signer, requests)
        assert [each.request_id for each in told] == requests, "answers come in the order of the requests"
        self._operation_log.end(operation, runs_of(told))
        return told

    async def _give_back(self, signer: Signer, requests: list[str]) -> None:
        told = await self._reserve(signer, requests)
        operation = self._operation_log.begin("release", signer.name, runs=runs_of(told))
        endings = [NonceEnding(each.nonce, each.hold, "recyclable") for each in told]
        with self._noting(operation):
            answers = await self._node.mark_many(signer, endings)
        refused = any(answer.refusal is not None for answer in answers)
        self._operation_log.end(operation, REFUSED if refused else "released")

    @contextmanager
    def _noting(self, operation: str) -> Generator[None]:
        """A refusal is recorded as the answer; every other error leaves the operation open."""
        try:
            yield
        except (SignerElsewhere, Refusal):
            self._operation_log.end(operation, REFUSED)
            raise


NONCES = Nonces
BULK_NONCES = BulkNonces
