# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201, ANN202
# Its sibling modules are found by the script's directory, which the checkers do not know.
"""Fencepost itself, measured by the same roles as every peer."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import psycopg
from handlers import WRITE, AsyncHandlers
from redis.asyncio import Redis
from runner import PeerTask, by_batches, play, run_until_told

from fencepost.client import Fencepost
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.jobs.chunk import Chunk
from fencepost.jobs.job import Job
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.stream_names import NORMAL, stream_of

QUEUE = "bench"
WORDS = [f"{number:x}" for number in range(1000, 5000, 7)]
BATCH = 500
CHUNK = 100
# A row for each job, as the handlers of single jobs write.
WRITE_MANY = "insert into public.effect (job, who) select %s, %s from generate_series(1, %s)"
UNFINISHED = (
    "select (select count(*) from fencepost.job_waiting) + (select count(*) from fencepost.job_running)"
)


@dataclass(frozen=True)
class Nothing:
    """The arguments of a job that has none."""


def _stream(order: PeerTask) -> str:
    """One stream for each database: two databases may be measured in turns."""
    return f"bench:{urlsplit(order.postgres_url).path.strip('/')}"


def _client(order: PeerTask) -> Fencepost:
    return Fencepost(order.postgres_url, redis_url=order.redis_url or None)


class Us:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create: the benchmark has migrated the schema."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        fp = _client(order)
        _declare(fp, order)
        settings = JobSettings(
            stream_key=_stream(order),
            lease_seconds=order.lease_seconds,
            heartbeat_seconds=order.lease_seconds / 3,
            reclaim_interval_seconds=min(5, order.lease_seconds / 3),
            reclaim_grace_seconds=min(15, order.lease_seconds / 3),
            concurrency=4000,
        )
        worker = fp.jobs.worker(settings)
        # As `fencepost worker` does.
        freeze_collected_objects()
        async with fp:
            await run_until_told(worker.run(), worker.stop)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        async with (
            _client(order) as fp,
            await psycopg.AsyncConnection.connect(order.admin_url, autocommit=True) as admin,
        ):
            redis = Redis.from_url(order.redis_url) if order.redis_url else None
            yield OurClient(fp, _declare(fp, order), admin, redis, order)
            if redis is not None:
                await redis.aclose()


def _declare(fp: Fencepost, order: PeerTask):
    handlers = AsyncHandlers(order)

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def empty(job: Job) -> None:
        handlers.results.count()

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def timed(job: Job, at: float) -> None:
        handlers.results.waited(at)

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def write(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute(WRITE, ("load", handlers.who))
        handlers.results.count()

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def write_with(job: Job) -> None:
        await job.finish_with((WRITE, ("load", handlers.who)))
        handlers.results.count()

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def zombie(job: Job) -> None:
        handlers.results.act(handlers.who, "started")
        await handlers.wait_until_allowed()
        async with job.finish(handlers.who) as tx:
            await tx.execute(WRITE, ("zombie", handlers.who))
        handlers.results.act(handlers.who, "wrote")

    @fp.job(QUEUE, lease=order.lease_seconds, chunk=CHUNK, chunk_wait=0.05)
    async def chunk(chunk: Chunk[Nothing]) -> None:
        async with chunk.finish() as tx:
            await tx.execute(WRITE_MANY, ("load", handlers.who, len(chunk)))
        for _ in chunk:
            handlers.results.count()

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def bytes_100(job: Job, text: str) -> str:
        handlers.results.count()
        return text

    @fp.job(QUEUE, lease=order.lease_seconds)
    async def bytes_10240(job: Job, text: str) -> str:
        handlers.results.count()
        return text

    return {
        "bytes_100": bytes_100,
        "bytes_10240": bytes_10240,
        "empty": empty,
        "timed": timed,
        "write": write,
        "write_with": write_with,
        "zombie": zombie,
        "chunk": chunk,
    }


def _text(size: int) -> str:
    """As compressible as text usually is: words, each time in another order."""
    chance = random.Random(size)  # noqa: S311 -- No secret.
    return " ".join(chance.choice(WORDS) for _ in range(size))[:size]


class OurClient:
    def __init__(self, fp, jobs, admin, redis, order: PeerTask) -> None:
        self._fp = fp
        self._jobs = jobs
        self._admin = admin
        self._redis = redis
        self._order = order

    async def submit_many(self, kind: str, count: int) -> None:
        texts = {"text": _text(int(size))} if (size := kind.removeprefix("bytes_")) != kind else {}
        payload = self._jobs[kind].payload(**texts)

        async def submit(size: int) -> None:
            async with self._fp.transaction() as tx:
                await tx.run(
                    kernel_job.submit_many(
                        QUEUE,
                        kind,
                        [payload] * size,
                        kernel_job.SubmitOptions(lease_seconds=self._order.lease_seconds),
                    )
                )

        await by_batches(submit, count, BATCH)

    async def submit(self, kind: str, at: float) -> None:
        arguments = {"at": at} if kind == "timed" else {}
        async with self._fp.transaction() as tx:
            await self._jobs[kind].submit(tx, **arguments)

    async def unfinished(self) -> int:
        rows = await (await self._admin.execute(UNFINISHED)).fetchone()
        if self._redis is None:
            return rows[0]
        return rows[0] + await self._redis.xlen(stream_of(_stream(self._order), QUEUE, NORMAL))

    async def outcome(self):
        row = await (
            await self._admin.execute(
                "select state, result from fencepost.job_finished order by job_id desc limit 1"
            )
        ).fetchone()
        return {"finished": row is not None, "by": None if row is None else row[1]}


if __name__ == "__main__":
    play(Us())
