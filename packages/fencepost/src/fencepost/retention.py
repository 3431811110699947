"""Deletes expired rows: in every long-running process, concurrently, without leader election.

A batch of fixed size at a fixed interval is a fixed rate, which the load can exceed. So a tick deletes batch
after batch until one is not full. SKIP LOCKED divides the work among the processes.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping

from fencepost.kernel import _refusal as refusal
from fencepost.kernel import idempotency, outbox
from fencepost.kernel.call import Call, CallRunner
from fencepost.logs import get_logger
from fencepost.metrics import MetricSet, counter, gauge
from fencepost.settings import Settings
from fencepost.signals import announce

_log = get_logger(__name__)
BATCH = 1000
# Enough to matter, and few enough that stopping a process does not take long.
BATCHES_PER_TICK = 50
TICK_SECONDS = 60.0


async def until_short(
    database: CallRunner,
    forget: Call[int],
    batch: int = BATCH,
    told: Callable[[int], object] = lambda forgotten: None,
) -> bool:
    """Run batches until one is not full; returns whether one was not. The number of batches is bounded, so
    that a process stops soon."""
    for _ in range(BATCHES_PER_TICK):
        forgotten = await database.run(forget)
        told(forgotten)
        if forgotten < batch:
            return True
    return False


class RetentionMetrics(MetricSet):
    """The deletion of idempotency keys, settled messages and history."""

    idempotency_lag = gauge(
        "fencepost_idempotency_lag_seconds",
        "Time by which the oldest idempotency key has exceeded its retention.",
    )
    keys_deleted = counter("fencepost_idempotency_keys_deleted", "Idempotency keys that were deleted.")
    loop_errors = counter(
        "fencepost_retention_loop_errors", "Ticks of the deletion loops that failed.", labels=("loop",)
    )


class Retention:
    """Idempotency keys every few seconds; settled messages, events and recorded refusals every minute."""

    def __init__(self, database: CallRunner, settings: Settings, metrics: RetentionMetrics) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics

    @property
    def ticks(self) -> Mapping[str, Callable[[], Awaitable[float]]]:
        """The tick of each loop, by the loop's name."""
        return {"idempotency_keys": self.delete_expired_keys, "history": self.delete_history}

    async def delete_history(self) -> float:
        """Delete settled messages and old history; answers the seconds until the next look."""
        settings = self._settings
        messages = await until_short(self._database, outbox.prune(settings.message_keep_seconds, BATCH))
        history = await until_short(self._database, refusal.prune(settings.history_keep_seconds, BATCH))
        announce("retention.done")
        return _pause(TICK_SECONDS) if messages and history else 0.0

    async def delete_expired_keys(self) -> float:
        """Deletes as fast as keys expire, never before their retention ends. Logs the lag when behind."""
        settings = self._settings
        keep_seconds, batch = settings.key_keep_seconds, settings.key_clean_batch
        is_done = await until_short(
            self._database, idempotency.clean(keep_seconds, batch), batch, self._metrics.keys_deleted.inc
        )
        await self._database.run(idempotency.clean_ring())
        self._tell_lag(await self._database.run(idempotency.lag(keep_seconds)))
        announce("idempotency_keys.deleted")
        return _pause(settings.key_clean_seconds) if is_done else 0.0

    def _tell_lag(self, lag_seconds: float) -> None:
        self._metrics.idempotency_lag.set(lag_seconds)
        if lag_seconds > self._settings.key_lag_alert_seconds:
            _log.warning(
                "idempotency_cleanup_behind",
                lag_seconds=round(lag_seconds, 1),
                allowed_seconds=self._settings.key_lag_alert_seconds,
            )


def _pause(seconds: float) -> float:
    """Jittered, so that many processes do not delete at the same time."""
    return seconds * random.uniform(0.8, 1.2)  # noqa: S311
