"""Dispatches again the jobs whose stream entries were lost.

PostgreSQL stores where each entry was written and in which run of Redis. A job is dispatched again when that
run is over, when its entry was trimmed or never reached the disk, or when its entry was delivered and is not
pending for any consumer (a zombie acknowledged it). An entry that was not delivered yet is left alone.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import LiteralString

from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.jobs._autoscaling import wanted_workers
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import REDIS_ERRORS, RedisHealth
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel import queue as kernel_queue
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import StreamLook, Streams, entry_order
from fencepost.redis_streams.stream_names import PRIORITIES
from fencepost.retention import until_short
from fencepost.signals import announce

_log = get_logger(__name__)
BATCH = 1000
PENDING: LiteralString = (
    "select pending, dispatched, running, due from fencepost.queue_status where queue = %s"
)
UNKNOWN_RUN_SECONDS = 1.0
"""What a job is assumed to take before this worker has run one of its queue."""
BATCHES_PER_TICK = 20
"""A throttle: after a wipe at most this many batches of a priority are dispatched again in one tick, so that
the streams are never flooded."""


class StreamReconciler:
    """Compares the dispatched jobs of some queues with their streams, one batch at a time."""

    def __init__(
        self,
        queues: Sequence[str],
        database: AsyncDatabase,
        redis: RedisHealth,
        metrics: JobMetrics,
        settings: JobSettings,
    ) -> None:
        self._queues = queues
        self._database = database
        self._redis = redis
        self._metrics = metrics
        self._settings = settings
        self._added: dict[str, tuple[int, float]] = {}

    async def tick(self) -> float:
        await self._count()
        streams = self._redis.streams
        if streams is not None:
            try:
                for queue in self._queues:
                    for priority in range(len(PRIORITIES)):
                        await self._sweep(streams, queue, priority)
            except REDIS_ERRORS as error:
                self._redis.failed(error)
        if self._redis.streams is None:
            self._forget_measures()
        await self._prune()
        announce("jobs.swept")
        # Jittered, so that many workers do not scan at once.
        return self._settings.sweep_interval_seconds * random.uniform(0.8, 1.2)  # noqa: S311

    async def _sweep(self, streams: Streams, queue: str, priority: int) -> None:
        stream = self._settings.stream(queue, priority)
        after: kernel_job.Dispatched | None = None
        for _ in range(BATCHES_PER_TICK):
            # Read again before each batch: an outdated view would take new entries for lost ones.
            look = await streams.sweep(stream)
            self._measure(stream, look)
            # The newest entries are not judged: their dispatch had not committed at the time of the view.
            driven = await self._database.run(
                kernel_job.dispatched_page(
                    queue, priority, age_seconds=self._settings.poll_seconds, after=after, limit=BATCH
                )
            )
            await self._recall(queue, await self._lost(streams, stream, look, driven))
            if len(driven) < BATCH:
                return
            after = driven[-1]

    async def _lost(
        self, streams: Streams, stream: str, look: StreamLook, driven: Sequence[kernel_job.Dispatched]
    ) -> Mapping[str, Sequence[kernel_job.Dispatched]]:
        """The dispatched jobs that have lost their entries, by reason."""
        by_fate: dict[str, list[kernel_job.Dispatched]] = {}
        for job in driven:
            by_fate.setdefault(fate(job, look), []).append(job)
        delivered = by_fate.pop("delivered", [])
        by_fate.pop("waiting", None)
        if delivered:
            pending = await streams.are_pending(stream, [job.entry_id for job in delivered])
            by_fate["orphaned"] = [job for job, held in zip(delivered, pending, strict=True) if not held]
        return by_fate

    async def _recall(self, queue: str, lost: Mapping[str, Sequence[kernel_job.Dispatched]]) -> None:
        for reason, jobs in lost.items():
            if not jobs:
                continue
            crash_point("jobs.sweep.before_commit")
            count = await self._database.run(
                kernel_job.recall([job.job_id for job in jobs], [job.entry_id for job in jobs])
            )
            crash_point("jobs.sweep.after_commit")
            # Some may have been claimed since the view was read.
            if count:
                self._metrics.redispatches.labels(queue, reason).inc(count)
                _log.warning("dispatched_again", reason=reason, jobs=count)

    def _forget_measures(self) -> None:
        """Clears the gauges: while Redis does not answer its contents are unknown, and an old figure would
        look current."""
        for gauge in (
            self._metrics.stream_length,
            self._metrics.stream_pending,
            self._metrics.stream_retention_seconds,
        ):
            gauge.clear()
        self._added.clear()

    def _measure(self, stream: str, look: StreamLook) -> None:
        self._metrics.stream_length.labels(stream=stream).set(look.length)
        self._metrics.stream_pending.labels(stream=stream).set(look.pending)
        now = time.monotonic()
        before, since = self._added.get(stream, (look.entries_added, now))
        if now - since >= self._settings.sweep_interval_seconds / 2:
            rate = max(0, look.entries_added - before) / (now - since)
            window = self._settings.stream_maxlen / rate if rate else float("inf")
            self._metrics.stream_retention_seconds.labels(stream=stream).set(window)
            self._added[stream] = (look.entries_added, now)
        else:
            self._added.setdefault(stream, (look.entries_added, now))

    async def _count(self) -> None:
        """Measures the backlog in PostgreSQL."""
        await self._database.run(kernel_queue.count())
        async with self._database.transaction() as tx:
            for queue in self._queues:
                rows = await tx.execute(PENDING, (queue,))
                row = await rows.fetchone()
                pending, dispatched, running, due = row or (0, 0, 0, 0)
                self._metrics.pending.labels(queue=queue).set(pending)
                wanted = wanted_workers(
                    due=due + dispatched,
                    running=running,
                    run_seconds=self._metrics.mean_run_seconds(queue) or UNKNOWN_RUN_SECONDS,
                    concurrency=self._settings.concurrency,
                    within_seconds=self._settings.scale_seconds,
                )
                self._metrics.wanted_workers.labels(queue=queue).set(wanted)

    async def _prune(self) -> None:
        keep_seconds = self._settings.keep_finished_seconds
        if keep_seconds is not None:
            await until_short(self._database, kernel_job.prune(keep_seconds, BATCH))


def fate(job: kernel_job.Dispatched, look: StreamLook) -> str:
    """What became of a dispatched job's entry.

    wiped      it was written in another run of Redis
    trimmed    it lies before the first remaining entry; an empty stream has none
    rewound    it lies after everything that this Redis remembers: its last writes were not on disk
    delivered  it was delivered to a consumer
    waiting    it was not delivered yet
    """
    if job.incarnation != look.incarnation:
        return "wiped"
    place = entry_order(job.entry_id)
    if look.last_generated_id is not None and place > entry_order(look.last_generated_id):
        return "rewound"
    if look.first_id is None or place < entry_order(look.first_id):
        return "trimmed"
    if look.last_delivered_id is not None and place <= entry_order(look.last_delivered_id):
        return "delivered"
    return "waiting"
