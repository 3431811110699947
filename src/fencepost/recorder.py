"""The record of refusals that were raised.

A raise rolls back whatever its own transaction wrote, so the record is written afterwards, on a connection
and a thread of its own: bounded, sampled when refusals flood, best effort. The counts are in the database and
miss nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

import psycopg
import structlog

from fencepost.errors import Refusal
from fencepost.kernel import refusal as refusals
from fencepost.kernel.drivers import run

_log = structlog.get_logger(__name__)


class RefusalRecorder:
    """Writes refusals down in the background. `note` never blocks and never raises."""

    def __init__(
        self,
        url: str,
        actor: str,
        *,
        waiting_max: int = 1000,
        per_second_max: int = 50,
        on_drop: Callable[[], None] | None = None,
    ) -> None:
        self._url = url
        self._actor = actor
        self._pause_seconds = 1 / per_second_max
        self._waiting: queue.Queue[Refusal | None] = queue.Queue(maxsize=waiting_max)
        self._on_drop = on_drop or (lambda: None)
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._stopping = threading.Event()

    def note(self, refusal: Refusal) -> None:
        """Take a refusal to be recorded; when too many wait, it is only counted."""
        self._ensure_started()
        try:
            self._waiting.put_nowait(refusal)
        except queue.Full:
            self._on_drop()

    def close(self, *, wait_seconds: float = 5) -> None:
        """Write what waits, as far as the time allows, and stop."""
        if self._thread is None:
            return
        self._stopping.set()
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            self._on_drop()
        self._thread.join(wait_seconds)

    def _ensure_started(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="fencepost-refusals", daemon=True)
                self._thread.start()

    def _write(self) -> None:
        connection: psycopg.Connection | None = None
        while (refusal := self._waiting.get()) is not None:
            try:
                if connection is None or connection.closed:
                    connection = psycopg.connect(self._url, autocommit=True)
                run(connection, refusals.record(refusal, self._actor))
            except Exception as error:
                _log.warning("refusal_not_recorded", reason=refusal.reason, error=str(error))
                self._on_drop()
            if self._stopping.is_set() and self._waiting.empty():
                break
            # A flood fills the queue, and what does not fit is dropped: that is the sampling.
            if not self._stopping.is_set():
                time.sleep(self._pause_seconds)
        if connection is not None:
            connection.close()
