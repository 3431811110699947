# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""awa-pg: a queue in PostgreSQL with its engine in Rust and its handlers in Python."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass

from awa import AsyncClient
from handlers import AsyncHandlers
from runner import PeerTask, by_batches, play

QUEUE = "bench"
BYSTANDER = "bystander"
BATCH = 500
CONCURRENCY = 100


@dataclass
class Empty:
    at: float = 0


@dataclass
class Write:
    at: float = 0


@dataclass
class Timed:
    at: float = 0


@dataclass
class Zombie:
    at: float = 0


KINDS = {"empty": Empty, "write": Write, "timed": Timed, "zombie": Zombie}


def _address(order: PeerTask) -> str:
    """Its driver requires a host even where a socket is given."""
    return order.postgres_url.replace("@/", "@localhost/", 1)


class Awa:
    def prepare(self, order: PeerTask) -> None:
        asyncio.run(self._prepare(order))

    async def _prepare(self, order: PeerTask) -> None:
        client = AsyncClient(_address(order))
        await client.migrate()
        await client.install_queue_storage()
        await client.close()

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        client = AsyncClient(_address(order))
        queue = BYSTANDER if order.kind == BYSTANDER else QUEUE
        _declare(client, queue, AsyncHandlers(order))
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await client.start(
            [(queue, CONCURRENCY)],
            poll_interval_ms=10,
            leader_election_interval_ms=1000,
            heartbeat_interval_ms=order.lease_seconds * 1000 // 3,
            heartbeat_staleness_ms=order.lease_seconds * 1000,
            heartbeat_rescue_interval_ms=min(order.lease_seconds * 500, 30_000),
        )
        await told.wait()
        await client.shutdown()

    @asynccontextmanager
    async def client(self, order: PeerTask):
        client = AsyncClient(_address(order))
        yield AwaClient(client)
        await client.close()


def _declare(client: AsyncClient, queue: str, handlers: AsyncHandlers) -> None:
    """Another queue has no jobs: that worker exists to lead, so that the frozen one does not."""

    @client.task(Empty, queue=queue)
    async def empty(job) -> None:
        await handlers.empty()

    @client.task(Write, queue=queue)
    async def write(job) -> None:
        await handlers.write()

    @client.task(Timed, queue=queue)
    async def timed(job) -> None:
        await handlers.timed(job.args.at)

    @client.task(Zombie, queue=queue)
    async def zombie(job) -> None:
        await handlers.zombie()


class AwaClient:
    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def submit_many(self, kind: str, count: int) -> None:
        make = KINDS[kind]

        async def submit(size: int) -> None:
            await self._client.enqueue_many_copy([make() for _ in range(size)], queue=QUEUE)

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        await self._client.insert(KINDS[kind](at), queue=QUEUE)

    async def unfinished(self) -> int:
        """0: the caller has seen every handler return, which is all that can be checked: it discards receipts
        as it goes, and its own statistics took minutes. In its favour: the last may not be stored."""
        return 0

    async def outcome(self):
        jobs = await self._client.list_jobs(queue=QUEUE)
        states = [f"{str(job.state).rpartition('.')[2].lower()}, attempt {job.attempt}" for job in jobs]
        return {"finished": bool(states) and "completed" in states[0], "by": None, "note": "; ".join(states)}


if __name__ == "__main__":
    play(Awa())
