"""Writing outcomes down, in batches: PostgreSQL first, then the entries.

The order is the point. An entry that is acknowledged before the commit is a job that a crash loses; one that
is acknowledged after it is at worst delivered again and refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import psycopg
import structlog
from psycopg_pool import PoolTimeout
from redis.exceptions import RedisError

from fencepost.crashpoints import crash_point
from fencepost.drive.stream import Entry, Streams
from fencepost.jobs.execution import Active, Committed, Lost, Outcome, Refused
from fencepost.jobs.job import Database
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.policy import ACKNOWLEDGED, LABELS
from fencepost.kernel import job as kernel_job

_log = structlog.get_logger(__name__)
T = TypeVar("T")


class Settler:
    """Takes outcomes and settles them; while one batch commits, the next one gathers."""

    def __init__(
        self,
        database: Database,
        streams: Callable[[], Streams | None],
        owner: str,
        metrics: JobMetrics,
        on_settled: Callable[[Active], None],
        *,
        batch: int,
    ) -> None:
        self._database = database
        self._streams = streams
        self._owner = owner
        self._metrics = metrics
        self._on_settled = on_settled
        self._batch = batch
        self._waiting: asyncio.Queue[tuple[Active, Outcome]] = asyncio.Queue()

    def add(self, active: Active, outcome: Outcome) -> None:
        self._waiting.put_nowait((active, outcome))

    async def run(self) -> None:
        """Settle until cancelled."""
        while True:
            batch = [await self._waiting.get()]
            while len(batch) < self._batch and not self._waiting.empty():
                batch.append(self._waiting.get_nowait())
            await self._settle(batch)
            for active, _ in batch:
                self._on_settled(active)
                self._waiting.task_done()

    async def drain(self) -> None:
        """Wait until everything that was added is settled."""
        await self._waiting.join()

    async def acknowledge(self, entries: Iterable[Entry]) -> None:
        """Remove entries whose work is done. A failure is retried once; then a later reclaim removes them."""
        streams = self._streams()
        if streams is None:
            return
        by_stream: defaultdict[str, list[str]] = defaultdict(list)
        for entry in entries:
            by_stream[entry.stream].append(entry.entry_id)
        for stream, entry_ids in by_stream.items():
            for last_time in (False, True):
                try:
                    await streams.settle(stream, entry_ids)
                    break
                except RedisError as error:
                    self._metrics.acknowledge_errors.labels(reason="xack_error").inc()
                    if last_time:
                        _log.warning("xack_error", stream=stream, entries=len(entry_ids), error=str(error))

    async def _settle(self, batch: Sequence[tuple[Active, Outcome]]) -> None:
        done = [entry for entry in await self._write(batch) if entry is not None]
        crash_point("jobs.settle.before_ack")
        if done:
            await self.acknowledge(done)
        crash_point("jobs.settle.after_ack")

    async def _write(self, batch: Sequence[tuple[Active, Outcome]]) -> list[Entry | None]:
        """Write the batch to PostgreSQL; answers the entries that are done with."""
        finishes = [(a, o) for a, o in batch if isinstance(o, kernel_job.Finish)]
        leaves = [(a, o) for a, o in batch if isinstance(o, kernel_job.Leave)]
        done: list[Entry | None] = [a.entry for a, o in batch if isinstance(o, Committed)]
        for _ in done:
            self._metrics.finished("ok", None)
        for active, outcome in batch:
            if isinstance(outcome, Lost):
                self._metrics.finished("lost", None)
            elif isinstance(outcome, Refused):
                done += self._refused(active, outcome.reason)
        crash_point("jobs.settle.before_write")
        if finishes:
            call = kernel_job.finish_many([o for _, o in finishes], self._owner)
            answers = await self._insist(lambda: self._database.run(call))
            done += self._judge(dict(_by_id(a for a, _ in finishes)), answers)
        if leaves:
            leave = kernel_job.leave_many([o for _, o in leaves], self._owner)
            lefts = await self._insist(lambda: self._database.run(leave))
            done += self._judge(dict(_by_id(a for a, _ in leaves)), lefts)
        crash_point("jobs.settle.after_write")
        return done

    def _judge(
        self, actives: dict[int, Active], answers: Sequence[kernel_job.Answer] | Sequence[kernel_job.Left]
    ) -> list[Entry | None]:
        done: list[Entry | None] = []
        for answer in answers:
            active = actives[answer.job_id]
            if answer.refusal is None:
                self._metrics.finished("ok", active)
                done.append(active.entry)
            else:
                done += self._refused(active, answer.refusal)
        return done

    def _refused(self, active: Active, reason: str) -> list[Entry | None]:
        self._metrics.rejected(LABELS.get(reason, reason))
        running = active.running
        _log.info("finish_refused", job_id=running.job_id, attempt=running.attempt, reason=reason)
        return [active.entry] if reason in ACKNOWLEDGED else []

    async def _insist(self, write: Callable[[], Awaitable[T]]) -> T:
        """Try until the database answers. A repeat is safe: what was written is refused, as finished."""
        delay_seconds = 0.1
        while True:
            try:
                return await write()
            except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
                self._metrics.finalize_errors.inc()
                _log.warning("db_error", error=str(error), retry_seconds=delay_seconds)
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(5.0, delay_seconds * 2)


def _by_id(actives: Iterable[Active]) -> Iterable[tuple[int, Active]]:
    return ((active.running.job_id, active) for active in actives)
