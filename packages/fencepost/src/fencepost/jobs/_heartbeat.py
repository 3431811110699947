"""Heartbeats, on their own thread and connections.

A handler that blocks the event loop, or a busy pool, must not cost a lease. One statement renews all jobs of
this worker; the idle time of their entries is reset too, so that long jobs are not taken over. Another
statement registers the worker as alive, also when it is idle, and records whether it uses Redis.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from fencepost.crashpoints import crash_point
from fencepost.errors import FencepostError
from fencepost.jobs._executor import Executor, HeldJob, HeldJobs
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs._worker_registry import WorkerRegistry
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.lease_keeper import BeatThread
from fencepost.logs import get_logger
from fencepost.redis_streams._entry_refresher import EntryRefresher
from fencepost.signals import announce

_log = get_logger(__name__)
LONGEST_STEP_SECONDS = 1.0
SEEN_SECONDS_MIN = 1.0


def seen_seconds(interval_seconds: float) -> float:
    """How often a worker registers."""
    return max(interval_seconds, SEEN_SECONDS_MIN)


class Heartbeat:
    """Renews the held jobs until it is stopped, and stops those whose lease is lost or that were cancelled.

    It beats at least every `interval_seconds`, and three times within the shortest lease: each job has its
    own lease, and one beat may be lost. A connection that does not answer within a third of the shortest
    lease is replaced. From a beat that failed to one that succeeds, the worker claims nothing: it could not
    keep what it claims.
    """

    def __init__(
        self,
        held: HeldJobs,
        executor: Executor,
        owner: str,
        redis: RedisHealth,
        metrics: JobMetrics,
        refresher: EntryRefresher | None,
        registry: WorkerRegistry,
        *,
        database_url: str,
        interval_seconds: float,
    ) -> None:
        self._held = held
        self._executor = executor
        self._owner = owner
        self._redis = redis
        self._metrics = metrics
        self._refresher = refresher
        self._interval_seconds = interval_seconds
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._seen_seconds = seen_seconds(interval_seconds)
        self._registry = registry
        self._seen_at = 0.0
        self._can_renew = True
        self._beat_at = time.monotonic()
        self._thread = BeatThread(
            database_url,
            "fencepost-heartbeat",
            self.tick,
            # Often enough to see a job with a short lease soon, however rare the renewals are.
            step_seconds=min(interval_seconds, LONGEST_STEP_SECONDS),
            at_end=self._leave,
        )

    def start(self) -> None:
        """Call it on the event loop, which the handlers run in."""
        self._event_loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self._thread.close)

    def tick(self) -> None:
        """Beat if it is time, in the heartbeat's thread."""
        if not self._seen_at:
            self._be_seen()
            return
        held = [active for active in self._held.all() if not active.lost]
        if self._can_renew and time.monotonic() - self._beat_at < 0.9 * self._pace(held):
            # A tenth less, because a step that wakes slightly early would skip a beat.
            return
        self._beat_at = time.monotonic()
        try:
            self._beat(held)
        except Exception as error:
            # The thread continues after any error: all leases of this worker depend on it.
            self._metrics.loop_errors.labels(loop="heartbeat").inc()
            _log.error("heartbeat_failed", error=f"{type(error).__name__}: {error}")
        announce("heartbeat.beat")

    def _pace(self, held: Sequence[HeldJob]) -> float:
        return min(self._interval_seconds, _shortest_lease(held, default=self._interval_seconds * 3) / 3)

    def _beat(self, held: Sequence[HeldJob]) -> None:
        if not held:
            self._be_seen()
            return
        began = time.monotonic()
        try:
            answers = self._thread.ask(
                lambda connection: self._renew(connection, held),
                within_seconds=_shortest_lease(held) / 3,
                on_broken=lambda error: self._not_renewed(held, error),
            )
        except psycopg.Error as error:
            self._not_renewed(held, error)
            return
        self._claim_more(True)
        by_id = {active.running.job_id: active for active in held}
        lost, cancelled, renewed = self._judge(by_id, answers, began)
        if lost or cancelled:
            self._on_event_loop(self._end, lost, cancelled)
        self._refresh(renewed)
        self._be_seen()

    def _not_renewed(self, held: Sequence[HeldJob], error: psycopg.Error) -> None:
        self._claim_more(False)
        self._metrics.renewed(held, "error", "db_error")
        _log.warning("db_error_heartbeat", error=str(error), jobs=len(held))

    def _claim_more(self, can_renew: bool) -> None:
        """Let the worker claim while its heartbeat reaches the database."""
        if can_renew != self._can_renew:
            self._can_renew = can_renew
            self._on_event_loop(self._held.let_claim, can_renew)

    def _on_event_loop(self, callback: Callable[..., None], *arguments: Any) -> None:
        assert self._event_loop is not None, "the thread is started by start"
        with suppress(RuntimeError):  # The loop may be closed by now.
            self._event_loop.call_soon_threadsafe(callback, *arguments)

    def _end(self, lost: Sequence[HeldJob], cancelled: Sequence[HeldJob]) -> None:
        """On the event loop: a job may have ended since the database answered."""
        self._executor.lose(active for active in lost if not active.ended)
        for active in cancelled:
            if not active.cancelled:
                active.cancelled = True
                self._executor.cancel(active)

    def _be_seen(self) -> None:
        """Registers the worker once per interval, however short the leases of the jobs are: nothing depends
        on it."""
        now = time.monotonic()
        if self._can_renew and self._seen_at and now - self._seen_at < 0.9 * self._seen_seconds:
            return
        self._seen_at = now
        try:
            self._thread.ask(
                lambda connection: self._registry.keep(connection, alone=self._redis.streams is None),
                within_seconds=self._seen_seconds,
            )
        except psycopg.OperationalError as error:
            _log.warning("worker_not_seen", error=str(error))
            self._claim_more(False)
        except Exception as error:
            # A failure affects only the list of workers.
            _log.warning("worker_not_seen", error=f"{type(error).__name__}: {error}")
        else:
            self._claim_more(True)

    def _leave(self) -> None:
        if self._thread.is_connected:
            with suppress(psycopg.Error, FencepostError):
                self._thread.ask(self._registry.leave, within_seconds=self._seen_seconds)
        if self._refresher is not None:
            self._refresher.close()

    def _renew(
        self, connection: psycopg.Connection[Any], held: Sequence[HeldJob]
    ) -> Sequence[kernel_job.Renewed]:
        crash_point("jobs.renew.before_commit")
        answers = run(
            connection,
            kernel_job.renew_many(
                [active.running.job_id for active in held],
                [active.running.attempt for active in held],
                self._owner,
            ),
        )
        crash_point("jobs.renew.after_commit")
        return answers

    def _judge(
        self, held: dict[int, HeldJob], answers: Sequence[kernel_job.Renewed], began: float
    ) -> tuple[list[HeldJob], list[HeldJob], list[HeldJob]]:
        lost: list[HeldJob] = []
        cancelled: list[HeldJob] = []
        renewed: list[HeldJob] = []
        for answer in answers:
            active = held[answer.job_id]
            match answer.refusal:
                case None:
                    # From before the call: the database read its clock later, so our deadline is earlier.
                    active.deadline = began + active.running.lease_seconds
                    renewed.append(active)
                    if answer.cancel_requested:
                        cancelled.append(active)
                case "in_flight" | "already_finished":
                    # Its row is locked, or gone: by our own finish, whose answer may not have arrived yet.
                    self._metrics.renewed([active], "ok", answer.refusal)
                case _:
                    if not active.ended:
                        lost.append(active)
        self._metrics.renewed(renewed, "ok", "")
        self._metrics.renewed(lost, "refused", "lease_lost")
        return lost, cancelled, renewed

    def _refresh(self, renewed: Sequence[HeldJob]) -> None:
        """Best effort, and only for our own entries: the lease decides, and a zombie changes nothing."""
        if self._refresher is None:
            return
        try:
            self._refresher.refresh(active.entry for active in renewed if active.entry is not None)
        except Exception as error:
            _log.debug("entries_not_refreshed", error=str(error))


def _shortest_lease(held: Sequence[HeldJob], default: float = 0.0) -> float:
    return min((active.running.lease_seconds for active in held), default=default)


class LeaseWatch:
    """Stops jobs whose lease has ended by the local clock: a database that does not answer cannot report
    it."""

    def __init__(self, held: HeldJobs, executor: Executor, *, heartbeat_seconds: float) -> None:
        self._held = held
        self._executor = executor
        self._interval_seconds = min(1.0, heartbeat_seconds / 2)

    async def tick(self) -> float:
        now = time.monotonic()
        self._executor.lose([a for a in self._held.all() if a.deadline <= now and not a.ended])
        return self._interval_seconds
