"""Heartbeats, on a thread and connections of their own.

A handler that blocks the event loop, or a pool that is busy, must not cost a lease. One statement renews all
jobs of this worker; the entries' idle time is refreshed too, so that long jobs are not taken away.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psycopg
import redis
import structlog
from redis.typing import StreamIdT

from fencepost.jobs.execution import Active
from fencepost.jobs.metrics import JobMetrics
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.signals import announce

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Beat:
    """What one heartbeat found out: jobs to stop because they are lost, and because they were cancelled."""

    lost: Sequence[Active]
    cancelled: Sequence[Active]


class Heartbeat:
    """Renews what `held` answers, every `interval_seconds`, until it is closed. Calls `on_beat` from its
    thread."""

    def __init__(
        self,
        url: str,
        redis_url: str | None,
        owner: str,
        group: str,
        consumer: str,
        metrics: JobMetrics,
        *,
        held: Callable[[], Sequence[Active]],
        on_beat: Callable[[Beat], None],
        interval_seconds: float,
    ) -> None:
        self._url = url
        self._redis = None if redis_url is None else redis.Redis.from_url(redis_url, socket_timeout=2)
        self._owner = owner
        self._group = group
        self._consumer = consumer
        self._metrics = metrics
        self._held = held
        self._on_beat = on_beat
        self._interval_seconds = interval_seconds
        self._closing = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._thread = threading.Thread(target=self._run, name="fencepost-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(5)

    def _run(self) -> None:
        # Often enough to notice the end of a lease soon, however rare the renewals are.
        step_seconds = min(self._interval_seconds, 1.0)
        next_beat = time.monotonic() + self._interval_seconds
        while not self._closing.wait(step_seconds):
            if time.monotonic() < next_beat:
                self._on_beat(Beat(_expired(self._held()), ()))
                continue
            next_beat = time.monotonic() + self._interval_seconds
            held = self._held()
            if held:
                self._on_beat(self._renew(held))
                self._refresh_entries(held)
            announce("heartbeat.beat")
        if self._connection is not None:
            self._connection.close()
        if self._redis is not None:
            self._redis.close()

    def _renew(self, held: Sequence[Active]) -> Beat:
        began = time.monotonic()
        try:
            if self._connection is None or self._connection.closed:
                self._connection = psycopg.connect(self._url, autocommit=True, connect_timeout=5)
            answers = run(
                self._connection,
                kernel_job.renew_many(
                    [a.running.job_id for a in held], [a.running.attempt for a in held], self._owner
                ),
            )
        except psycopg.Error as error:
            self._metrics.heartbeats.labels(status="error", reason="db_error_heartbeat").inc(len(held))
            _log.warning("db_error_heartbeat", error=str(error), jobs=len(held))
            return Beat(_expired(held), ())
        return self._judge({a.running.job_id: a for a in held}, answers, began)

    def _judge(self, held: dict[int, Active], answers: Sequence[kernel_job.Renewed], began: float) -> Beat:
        lost: list[Active] = []
        cancelled: list[Active] = []
        for answer in answers:
            active = held[answer.job_id]
            if answer.refusal is None:
                # From before the call: the database's clock read it later, so our deadline is the earlier
                # one.
                active.deadline = began + active.running.lease_seconds
                self._metrics.heartbeats.labels(status="ok", reason="").inc()
                if answer.cancel_requested:
                    cancelled.append(active)
            elif answer.refusal == "in_flight":
                self._metrics.heartbeats.labels(status="ok", reason="in_flight").inc()
            elif not active.ended:
                # An outcome that is on its way to the database may have arrived there before this beat.
                self._metrics.heartbeats.labels(status="refused", reason="lease_lost").inc()
                lost.append(active)
        return Beat(lost, cancelled)

    def _refresh_entries(self, held: Sequence[Active]) -> None:
        """JUSTID touches the idle time and not the count of deliveries. Best effort: the lease is what
        counts."""
        if self._redis is None:
            return
        by_stream: defaultdict[str, list[str]] = defaultdict(list)
        for active in held:
            if active.entry is not None:
                by_stream[active.entry.stream].append(active.entry.entry_id)
        try:
            for stream, entry_ids in by_stream.items():
                self._redis.xclaim(
                    stream, self._group, self._consumer, 0, list[StreamIdT](entry_ids), justid=True
                )
        except redis.RedisError as error:
            _log.debug("entries_not_refreshed", error=str(error))


def _expired(held: Sequence[Active]) -> list[Active]:
    now = time.monotonic()
    return [active for active in held if active.deadline <= now and not active.ended]
