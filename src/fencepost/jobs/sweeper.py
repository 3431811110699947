"""Driving again what the streams have lost.

PostgreSQL knows where each entry was written and in which life of Redis. A job is driven again when that life
is over, when its entry was trimmed, or when its entry was delivered and is pending for nobody (a zombie
acknowledged it). An entry that was not delivered yet is left alone: it waits its turn.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from fencepost.drive.lanes import LANES, stream_of
from fencepost.drive.stream import Look, Streams, entry_order
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.job import Database
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel import queue as kernel_queue
from fencepost.kernel import refusal as kernel_refusal
from fencepost.signals import announce

_log = structlog.get_logger(__name__)
BATCH = 1000
BATCHES_PER_TICK = 20
"""A throttle: after a wipe, at most this many are driven again in one tick, so that the sweep is never a
flood."""


class Sweeper:
    """Compares the dispatched jobs of some queues with their streams, a piece at a time."""

    def __init__(
        self,
        queues: Sequence[str],
        database: Database,
        link: DriveLink,
        metrics: JobMetrics,
        settings: JobSettings,
    ) -> None:
        self._places = [(queue, lane) for queue in queues for lane in range(len(LANES))]
        self._database = database
        self._link = link
        self._metrics = metrics
        self._settings = settings
        self._rates: dict[str, tuple[str, float]] = {}

    async def tick(self) -> float:
        await self._prune()
        streams = self._link.streams
        if streams is not None:
            try:
                for queue, lane in self._places:
                    await self._sweep(streams, queue, lane)
            except (RedisError, OSError) as error:
                self._link.failed(error)
        announce("jobs.swept")
        # Jittered, so that many workers do not sweep at once.
        return self._settings.sweep_interval_seconds * random.uniform(0.8, 1.2)  # noqa: S311

    async def _sweep(self, streams: Streams, queue: str, lane: int) -> None:
        stream = stream_of(self._settings.stream_key, queue, lane)
        look = await streams.look(stream)
        self._metrics.stream_length.labels(stream=stream).set(look.length)
        self._metrics.stream_pending.labels(stream=stream).set(look.pending)
        after: kernel_job.Driven | None = None
        for _ in range(BATCHES_PER_TICK):
            # Entries of the last moment are not judged: their dispatch may not have committed when we looked.
            driven = await self._database.run(
                kernel_job.driven(
                    queue, lane, age_seconds=self._settings.poll_seconds, after=after, limit=BATCH
                )
            )
            await self._recall(driven, await self._lost(streams, stream, look, driven))
            if len(driven) < BATCH:
                return
            after = driven[-1]

    async def _lost(
        self, streams: Streams, stream: str, look: Look, driven: Sequence[kernel_job.Driven]
    ) -> dict[str, list[kernel_job.Driven]]:
        """Which of the driven jobs have lost their entries, by why."""
        wiped = [job for job in driven if job.incarnation != look.incarnation]
        alive = [job for job in driven if job.incarnation == look.incarnation]
        trimmed = [job for job in alive if _is_trimmed(job.entry_id, look)]
        gone = {job.job_id for job in trimmed}
        delivered = [job for job in alive if job.job_id not in gone and _is_delivered(job.entry_id, look)]
        orphaned: list[kernel_job.Driven] = []
        if delivered:
            pending = await streams.are_pending(stream, [job.entry_id for job in delivered])
            orphaned = [job for job, held in zip(delivered, pending, strict=True) if not held]
        return {"wiped": wiped, "trimmed": trimmed, "orphaned": orphaned}

    async def _recall(
        self, driven: Sequence[kernel_job.Driven], lost: dict[str, list[kernel_job.Driven]]
    ) -> None:
        for reason, jobs in lost.items():
            if not jobs:
                continue
            count = await self._database.run(
                kernel_job.recall([job.job_id for job in jobs], [job.entry_id for job in jobs])
            )
            self._metrics.swept.labels(reason=reason).inc(count)
            _log.warning("driven_again", reason=reason, jobs=count, looked_at=len(driven))

    async def _prune(self) -> None:
        await self._database.run(kernel_queue.count())
        if self._settings.keep_finished_seconds is not None:
            await self._database.run(kernel_job.prune(self._settings.keep_finished_seconds, BATCH))
            await self._database.run(kernel_refusal.prune(self._settings.keep_finished_seconds, BATCH))


def _is_trimmed(entry_id: str, look: Look) -> bool:
    """Before the first entry that is left; all of them, when the stream is empty.

    An empty stream also means that everything was settled; then the job is not waiting, and the recall finds
    nothing.
    """
    return look.first_id is None or entry_order(entry_id) < entry_order(look.first_id)


def _is_delivered(entry_id: str, look: Look) -> bool:
    return look.last_delivered_id is not None and entry_order(entry_id) <= entry_order(look.last_delivered_id)
