"""The record of refusals that were raised.

An exception rolls back what its transaction wrote, so the record is written afterwards, on a connection and
a thread of its own: bounded, sampled when refusals flood, best effort. The counts in the database are
complete.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import psycopg

from fencepost.errors import Refusal
from fencepost.kernel import _refusal as refusals
from fencepost.kernel.drivers import run
from fencepost.logs import LogLimiter, get_logger

_log = get_logger(__name__)
_OUTAGE_PAUSE_SECONDS = 1.0


class RefusalRecorder:
    """Records refusals in the background. `note` never blocks and never raises.

    A flood fills the queue faster than it is written, and what does not fit is dropped: that is the sampling.
    """

    def __init__(
        self,
        url: str,
        actor: str,
        *,
        waiting_max: int = 1000,
        per_second_max: int = 50,
        connect_seconds: float = 5,
        on_drop: Callable[[], None] | None = None,
    ) -> None:
        self._url = url
        self._actor = actor
        self._waiting_max = waiting_max
        self._pause_seconds = 1 / per_second_max
        self._connect_seconds = connect_seconds
        self._on_drop = on_drop or (lambda: None)
        self._log_limiter = LogLimiter()
        # Guards what follows, and wakes the thread.
        self._changed = threading.Condition()
        self._waiting: deque[Refusal] = deque()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def note(self, refusal: Refusal) -> None:
        """Queue a refusal to be recorded; when the queue is full, it is only counted."""
        with self._changed:
            taken = not self._stopping and len(self._waiting) < self._waiting_max and self._is_running()
            if taken:
                self._waiting.append(refusal)
                self._changed.notify_all()
        if not taken:
            self._on_drop()

    def close(self, *, wait_seconds: float = 5) -> None:
        """Write what is queued, as far as the time allows, and stop. A later `note` starts it again."""
        with self._changed:
            thread = self._thread
            if thread is None:
                return
            self._stopping = True
            self._changed.notify_all()
        thread.join(wait_seconds)
        with self._changed:
            dropped = len(self._waiting)
            self._waiting.clear()
            # A thread that still waits for an unresponsive server ends when the server answers; until then
            # nothing new is queued.
            if not thread.is_alive():
                self._thread, self._stopping = None, False
        for _ in range(dropped):
            self._on_drop()

    def _is_running(self) -> bool:
        # A fork copies this object, but not its thread.
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._write, name="fencepost-refusals", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return False  # The interpreter is shutting down, or the process cannot start a thread.
            self._thread = thread
        return True

    def _next(self) -> Refusal | None:
        """The next refusal; None when the recorder stops and the queue is empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopping)
            return self._waiting.popleft() if self._waiting else None

    def _rest(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping, timeout=seconds)

    def _write(self) -> None:
        connection: psycopg.Connection | None = None
        while (refusal := self._next()) is not None:
            try:
                if connection is None or connection.closed:
                    connection = self._connect()
                run(connection, refusals.record(refusal, self._actor))
            except Exception as error:
                self._log_limiter.log(
                    _log.warning, "refusal_not_recorded", reason=refusal.reason, error=str(error)
                )
                self._on_drop()
            is_connected = connection is not None and not connection.closed
            self._rest(self._pause_seconds if is_connected else _OUTAGE_PAUSE_SECONDS)
        if connection is not None:
            connection.close()

    def _connect(self) -> psycopg.Connection:
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=max(1, round(self._connect_seconds)),
            application_name="fencepost-refusals",
            # Too rare to benefit, and behind a pooler the next statement may reach another backend.
            prepare_threshold=None,
        )
