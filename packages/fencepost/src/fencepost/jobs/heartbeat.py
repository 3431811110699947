"""Heartbeats, on their own thread and connections.

A handler that blocks the event loop, or a busy pool, must not cost a lease. One statement renews all jobs of
this worker; the idle time of their entries is reset too, so that long jobs are not taken over. Another
statement registers the worker as alive, also when it is idle, and records whether it uses Redis.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import psycopg

from fencepost.crashpoints import crash_point
from fencepost.errors import FencepostError
from fencepost.jobs.executor import HeldJob
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.worker_registry import WorkerRegistry
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.logs import get_logger
from fencepost.redis_streams.entry_refresher import EntryRefresher
from fencepost.signals import announce

_log = get_logger(__name__)
CONNECT_SECONDS = 5
LONGEST_STEP_SECONDS = 1.0
CLOSE_SECONDS = 5.0
SEEN_SECONDS_MIN = 1.0


@dataclass(frozen=True, slots=True)
class Beat:
    """The result of one heartbeat: jobs to stop because their lease is lost, or because they were
    cancelled."""

    lost: Sequence[HeldJob]
    cancelled: Sequence[HeldJob]


class Heartbeat:
    """Renews the jobs that `held` returns until it is closed. Calls `on_beat` and `alone` from its thread.

    It beats at least every `interval_seconds`, and three times within the shortest lease: each job has its
    own lease, and one beat may be lost.
    """

    def __init__(
        self,
        url: str,
        owner: str,
        metrics: JobMetrics,
        refresher: EntryRefresher | None,
        *,
        held: Callable[[], Sequence[HeldJob]],
        on_beat: Callable[[Beat], None],
        alone: Callable[[], bool],
        interval_seconds: float,
    ) -> None:
        self._url = url
        self._owner = owner
        self._metrics = metrics
        self._refresher = refresher
        self._held = held
        self._on_beat = on_beat
        self._alone = alone
        self._interval_seconds = interval_seconds
        self._closing = threading.Event()
        self._connection: psycopg.Connection | None = None
        self._seen_seconds = max(interval_seconds, SEEN_SECONDS_MIN)
        self._presence = WorkerRegistry(owner, ttl_seconds=self._seen_seconds * 3)
        self._seen_at = 0.0
        self._thread = threading.Thread(target=self._run, name="fencepost-heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        # Often enough to see a job with a short lease soon, however rare the renewals are.
        step_seconds = min(self._interval_seconds, LONGEST_STEP_SECONDS)
        last = time.monotonic()
        self._be_seen()
        while not self._closing.wait(step_seconds):
            held = [active for active in self._held() if not active.lost]
            if time.monotonic() - last < self._pace(held):
                continue
            last = time.monotonic()
            try:
                self._beat(held)
            except Exception as error:
                # The thread continues after any error: all leases of this worker depend on it.
                self._metrics.loop_errors.labels(loop="heartbeat").inc()
                _log.error("heartbeat_failed", error=f"{type(error).__name__}: {error}")
            announce("heartbeat.beat")
        self._leave()
        if self._refresher is not None:
            self._refresher.close()

    def _pace(self, held: Sequence[HeldJob]) -> float:
        """A tenth less than the interval, because a step that wakes slightly early would skip a beat."""
        shortest = min((active.running.lease_seconds for active in held), default=self._interval_seconds * 3)
        return 0.9 * min(self._interval_seconds, shortest / 3)

    def _beat(self, held: Sequence[HeldJob]) -> None:
        if not held:
            self._be_seen()
            return
        began = time.monotonic()
        try:
            answers = self._renew(held)
        except psycopg.Error as error:
            self._metrics.renewed(held, "error", "db_error")
            _log.warning("db_error_heartbeat", error=str(error), jobs=len(held))
            return
        by_id = {active.running.job_id: active for active in held}
        lost, cancelled, renewed = self._judge(by_id, answers, began)
        if lost or cancelled:
            self._on_beat(Beat(lost, cancelled))
        self._refresh(renewed)
        self._be_seen()

    def _be_seen(self) -> None:
        """Registers the worker once per interval, however short the leases of the jobs are: nothing depends
        on it."""
        now = time.monotonic()
        if self._seen_at and now - self._seen_at < 0.9 * self._seen_seconds:
            return
        self._seen_at = now
        try:
            self._presence.keep(self._connected(), alone=self._alone())
        except Exception as error:
            # A failure affects only the list of workers.
            _log.warning("worker_not_seen", error=f"{type(error).__name__}: {error}")

    def _leave(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, FencepostError):
                self._presence.leave(self._connection)
            self._connection.close()

    def _connected(self) -> psycopg.Connection:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._url,
                autocommit=True,
                connect_timeout=CONNECT_SECONDS,
                application_name="fencepost-heartbeat",
                # Beats are too rare to gain by it, and behind a pooler the next beat may use another backend.
                prepare_threshold=None,
                # An unresponsive server is given up before the leases expire.
                tcp_user_timeout=round(self._interval_seconds * 1000),
            )
        return self._connection

    def _renew(self, held: Sequence[HeldJob]) -> Sequence[kernel_job.Renewed]:
        connection = self._connected()
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
