"""What a process of these tests runs: one node, and a caller that asks it for its share of the requests.

A request is named by its number, so a process that begins again asks for the same. One in ten is asked for
twice: its first nonce is given back unused, and another caller takes it as a gap.

A process that was killed after its last reservation begins again, and gives back gaps when nobody is left who
asks. So afterwards one caller asks for as many as there are gaps, and must get exactly those.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, LiteralString

import psycopg

from fencepost.client import Fencepost
from fencepost.errors import Backpressure, FencepostError, Refusal
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._nonce_calls import NonceEnding, Reservation
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer

# What tells a client to ask again, and what it waits before it does: no signal tells it that it may.
ASK_AGAIN = (SignerElsewhere, Refusal, Backpressure, TimeoutError)
RETRY_AFTER_SECONDS = 0.02
# Written before it asks: who is killed before the answer has asked all the same.
ASK = "insert into asked (signer, block, begun) values (%s, %s, %s)"
TELL = """insert into told (signer, block, ended, request_id, nonce, hold)
          select %s, %s, %s, * from unnest(%s::text[], %s::bigint[], %s::bigint[])"""


async def serve_share(url: str, share: int, plan: dict[str, Any]) -> None:
    """Reserve, write down what was told, and say what became of each; from the beginning, if need be."""
    settings = NoncesSettings.model_validate(plan["settings"])
    fp = Fencepost(url)
    async with fp, await psycopg.AsyncConnection.connect(url, autocommit=True) as notes:
        node = Node(fp, settings)
        await node.start()
        caller = Caller(node, notes, plan)
        try:
            await asyncio.gather(*(caller.work(share, signer) for signer in range(plan["signers"])))
        finally:
            await node.stop()
    print("done", flush=True)  # noqa: T201 - The test reads it.


async def fill_gaps(url: str, signers: int) -> None:
    """Ask for as many nonces as there are gaps, and use them."""
    fp = Fencepost(url)
    async with fp, await psycopg.AsyncConnection.connect(url, autocommit=True) as notes:
        node = Node(fp, NoncesSettings(wait_seconds=60.0))
        await node.start()
        try:
            for number in range(signers):
                await _fill(node, notes, Signer.of(1, f"s{number}"))
        finally:
            await node.stop()


async def _fill(node: Node, notes: psycopg.AsyncConnection[Any], signer: Signer) -> None:
    counted = await notes.execute(
        "select count(*) from fencepost.signer_nonce_allocation where signer = %s and status = 'RELEASED'",
        (signer.name,),
    )
    (gaps,) = await counted.fetchone() or (0,)
    if not gaps:
        return
    rows = await node.reserve(signer, [f"gap-{place}" for place in range(gaps)])
    await node.mark_many(
        signer, [NonceEnding(row.nonce, row.hold, "used", f"tx-{row.request_id}") for row in rows]
    )


class Caller:
    def __init__(self, node: Node, notes: psycopg.AsyncConnection[Any], plan: dict[str, Any]) -> None:
        self._node = node
        self._notes = notes
        self._writing = asyncio.Lock()
        self._plan = plan

    async def work(self, share: int, number: int) -> None:
        signer = Signer.of(1, f"s{number}")
        mine = range(share, self._plan["requests"], self._plan["nodes"])
        for start in range(0, len(mine), self._plan["block"]):
            block = mine[start : start + self._plan["block"]]
            await self._give_back(signer, [f"{i}.0" for i in block if i % 10 == 3])
            rows = await self._ask(signer, [str(i) for i in block])
            await self._end(
                signer,
                [
                    NonceEnding(row.nonce, row.hold, "used", f"tx-{row.request_id}")
                    for row in rows
                    if row.status == "HELD"
                ],
            )

    async def _give_back(self, signer: Signer, request_ids: Sequence[str]) -> None:
        if request_ids:
            rows = await self._ask(signer, request_ids)
            await self._end(signer, [NonceEnding(row.nonce, row.hold, "recyclable") for row in rows])

    async def _ask(self, signer: Signer, request_ids: Sequence[str]) -> list[Reservation]:
        await self._note(ASK, (signer.name, request_ids[0], time.monotonic()))
        while True:
            try:
                rows = await self._node.reserve(signer, request_ids)
            except ASK_AGAIN:
                await asyncio.sleep(RETRY_AFTER_SECONDS)
                continue
            told = [row.request_id for row in rows], [row.nonce for row in rows], [row.hold for row in rows]
            await self._note(TELL, (signer.name, request_ids[0], time.monotonic(), *told))
            return rows

    async def _end(self, signer: Signer, endings: Sequence[NonceEnding]) -> None:
        while endings:
            try:
                answers = await self._node.mark_many(signer, endings)
            except ASK_AGAIN:
                await asyncio.sleep(RETRY_AFTER_SECONDS)
                continue
            wrong = [answer for answer in answers if answer.refusal is not None]
            if wrong:
                raise FencepostError(f"{signer.resource}: {wrong[:3]}")
            return

    async def _note(self, statement: LiteralString, values: Sequence[Any]) -> None:
        async with self._writing:
            await self._notes.execute(statement, values)
