"""Nonces: nodes that hold signers by turns, and callers that use what they get, or give it back."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, LiteralString

import psycopg

from fencepost import Fencepost, FencepostError, Refusal
from fencepost.logs import configure_logging
from fencepost.nonces.allocation import Ending, Reservation
from fencepost.nonces.errors import SignerElsewhere
from fencepost.nonces.node import Node
from fencepost.nonces.settings import NoncesSettings
from fencepost.nonces.signer import Signer
from fencepost.testing import Breach
from fencepost.torture.chronicle import Chronicle, Operation
from fencepost.torture.effects import exactly_once
from fencepost.torture.linearizability import linearizable
from fencepost.torture.manners import PATIENT, told_to_end
from fencepost.torture.models import NonceModel
from fencepost.torture.stage import Account, Errand, Stage

CHAIN = 1
SIGNERS = 2
HELPING = 20
GIVEN_BACK_EVERY = 10
HOLD_SECONDS = 86_400.0
REFUSED = "refused"

SCHEMA: LiteralString = """
    create table request (id bigint primary key, signer text not null, place int not null);
    create index on request (place, signer, id);
    create table used (id bigint generated always as identity primary key, signer text not null,
                       request bigint not null, nonce bigint not null);
    create index on used (signer, request);
    grant select, insert on request, used to fencepost_app;
"""
NEXT: LiteralString = """
    select min(r.id) from request r where r.place = %s and r.signer = %s
    and not exists (select from used u where u.signer = r.signer and u.request = r.id)
"""
USED: LiteralString = "select count(distinct (signer, request)) from used"
ROWS: LiteralString = """
    select signer, nonce, status, request_id, tx_hash from fencepost.signer_nonce_allocation order by 1, 2
"""


class Nonces:
    """Nodes, each with a caller of its own."""

    name = "nonces"
    processes = 3
    uses_redis = False
    bears_clock_jumps = True
    points = ()

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, stage: Stage) -> Generator[Mapping[str, Any]]:
        with stage.database.connect_admin() as admin:
            admin.execute(SCHEMA)
        self._asked = 0
        yield {}

    def serve(self, errand: Errand) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_serve(errand))

    def ask(self, stage: Stage, turn: int) -> None:
        ids = list(range(turn * HELPING, (turn + 1) * HELPING))
        stage.insist(lambda: _request(stage, ids, self.processes))
        self._asked += HELPING

    def account(self, stage: Stage) -> Account:
        return Account(self._asked, int(stage.value(USED)))

    def judge(self, stage: Stage) -> Iterable[Breach]:
        asked = [str(number) for (number,) in stage.rows("select id from request")]
        rows = stage.rows(ROWS)
        consumed = [request for _, _, status, request, _ in rows if status == "CONSUMED"]
        yield from exactly_once(asked, consumed)
        yield from _of_rows(rows)
        operations = [_doubted(operation) for operation in stage.chronicle.operations()]
        yield from _of_answers(operations)
        for signer in sorted({operation.subject for operation in operations}):
            history = settled([operation for operation in operations if operation.subject == signer])
            yield from linearizable(signer, history, NonceModel())

    def remains(self, stage: Stage) -> Iterable[Breach]:
        return ()


def _of_rows(rows: Sequence[tuple[Any, ...]]) -> Iterable[Breach]:
    """No nonce is left out below the highest, and each was used by the request that it was given to."""
    highest: dict[str, int] = {}
    for signer, nonce, status, request, tx_hash in rows:
        if nonce != highest.get(signer, -1) + 1:
            yield Breach("no nonce left out", signer, f"{nonce} comes after {highest.get(signer)}")
        highest[signer] = nonce
        if status == "CONSUMED" and tx_hash != f"tx-{request}":
            yield Breach("used by its owner", signer, f"{nonce} of {request} was used by {tx_hash}")


def _of_answers(operations: Iterable[Operation]) -> Iterable[Breach]:
    """Nobody was ever told a nonce, in one hold, that somebody else was told."""
    owners: dict[tuple[Any, ...], str] = {}
    for operation in operations:
        if operation.what == "reserve" and not operation.is_unknown:
            told = operation.answer
            request = str(operation.question["request"])
            other = owners.setdefault((operation.subject, told["nonce"], told["hold"]), request)
            if other != request:
                yield Breach("doubled", f"{operation.subject} {told['nonce']}", f"for {other} and {request}")


def _doubted(operation: Operation) -> Operation:
    """A node tries three times. The refusal is of the last try, and an earlier one may have been lost after
    its commit: so a refusal proves nothing here."""
    return replace(operation, ended=math.inf, answer=None) if operation.answer == REFUSED else operation


def settled(operations: Iterable[Operation]) -> list[Operation]:
    """What was asked again and again as the one call that it is.

    A repeat by its request id answers the first reservation: that was made after the first time it was asked
    for, and before the first time it was answered. The same holds for giving back.
    """
    asked: dict[Any, float] = {}
    found: dict[Any, Operation] = {}
    for operation in operations:
        subject = operation.question.get("request", operation.question.get("nonce"))
        first = asked.setdefault((operation.what, subject, operation.question.get("hold")), operation.begun)
        if operation.is_unknown:
            continue
        if operation.what == "reserve":
            name = ("reserve", operation.answer["nonce"], operation.answer["hold"])
            answer = operation.answer["nonce"]
            # Another reservation under the same name would be another call, asked for from now on.
            asked.pop(("reserve", subject, None))
        else:
            name, answer = ("release", subject, operation.question["hold"]), operation.answer
        before = found.get(name)
        ended = min(operation.ended, before.ended) if before else operation.ended
        begun = min(first, before.begun) if before else first
        found[name] = replace(operation, begun=begun, ended=ended, answer=answer)
    unknown = [
        operation
        for operation in operations
        if operation.is_unknown and not _is_answered(operation, found.values())
    ]
    return sorted([*found.values(), *unknown], key=lambda operation: operation.begun)


def _is_answered(operation: Operation, answered: Iterable[Operation]) -> bool:
    """Whether a later call of the same name had an answer: then it is that one."""
    return any(
        other.what == operation.what
        and other.question == operation.question
        and other.begun <= operation.begun <= other.ended
        for other in answered
    )


async def _serve(errand: Errand) -> None:
    stop = told_to_end()
    settings = NoncesSettings(
        node_address=f"http://node-{errand.place}",
        lease_seconds=errand.lease_seconds,
        idle_seconds=0.5,
        wait_seconds=1.0,
        turn_seconds=0.02,
        hold_seconds=HOLD_SECONDS,
    )
    async with Fencepost(errand.database_url, settings=PATIENT) as fp:
        node = Node(fp, settings)
        await node.start()
        caller = Caller(
            fp, node, Chronicle(Path(errand.chronicle), f"caller-{errand.boot}"), errand.place, stop
        )
        try:
            await asyncio.gather(*(caller.work(Signer.of(CHAIN, f"s{n}")) for n in range(SIGNERS)))
        finally:
            await node.stop()


class Caller:
    """Asks its node for the requests of its place, one by one for each signer, until each is used."""

    def __init__(
        self, fp: Fencepost, node: Node, chronicle: Chronicle, place: int, stop: asyncio.Event
    ) -> None:
        self._fp = fp
        self._node = node
        self._chronicle = chronicle
        self._place = place
        self._stop = stop

    async def work(self, signer: Signer) -> None:
        while not self._stop.is_set():
            # Whatever happens, the same request again: by its id it is the same reservation.
            with suppress(FencepostError, psycopg.Error, TimeoutError):
                if await self._serve_next(signer):
                    continue
            await asyncio.sleep(0.02)

    async def _serve_next(self, signer: Signer) -> bool:
        async with self._fp.transaction() as tx:
            row = await (await tx.execute(NEXT, (self._place, signer.name))).fetchone()
        if row is None or row[0] is None:
            return False
        request = int(row[0])
        if request % GIVEN_BACK_EVERY == 3:
            await self._give_back(signer, f"{request}.0")
        told = await self._reserve(signer, str(request))
        if told.status == "HELD":
            await self._node.mark_used(signer, told.nonce, told.hold, f"tx-{request}")
        async with self._fp.transaction() as tx:
            await tx.execute(
                "insert into used (signer, request, nonce) values (%s, %s, %s)",
                (signer.name, request, told.nonce),
            )
        return True

    async def _reserve(self, signer: Signer, request: str) -> Reservation:
        operation = self._chronicle.begin("reserve", signer.name, request=request)
        with self._noting(operation):
            [told] = await self._node.reserve(signer, [request])
        self._chronicle.end(operation, {"nonce": told.nonce, "hold": told.hold})
        return told

    async def _give_back(self, signer: Signer, request: str) -> None:
        told = await self._reserve(signer, request)
        operation = self._chronicle.begin("release", signer.name, nonce=told.nonce, hold=told.hold)
        with self._noting(operation):
            [answer] = await self._node.mark_many(signer, [Ending(told.nonce, told.hold, "recyclable")])
        self._chronicle.end(operation, "released" if answer.refusal is None else REFUSED)

    @contextmanager
    def _noting(self, operation: str) -> Generator[None]:
        """A refusal is told, and every other error leaves it open."""
        try:
            yield
        except (SignerElsewhere, Refusal):
            self._chronicle.end(operation, REFUSED)
            raise


def _request(stage: Stage, ids: list[int], places: int) -> None:
    rows = [(number, f"s{number % SIGNERS}", number // SIGNERS % places) for number in ids]
    with stage.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("insert into request values (%s, %s, %s) on conflict do nothing", rows)


NONCES = Nonces
