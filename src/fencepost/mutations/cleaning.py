"""Forgetting markers as fast as they come: on every node, without an election, never sooner than promised.

A batch of a fixed size at a fixed interval is a fixed rate, and one day the load is above it. So a tick
deletes batch after batch until one is short. SKIP LOCKED parts the work among the nodes. When it still falls
behind, the lag is shown and said aloud; the retention stays what it is.
"""

from __future__ import annotations

import random
from typing import Protocol, TypeVar

from fencepost.kernel import marker
from fencepost.kernel.call import Call
from fencepost.logs import get_logger
from fencepost.mutations import gate
from fencepost.mutations.metrics import MutationMetrics
from fencepost.mutations.settings import MutationSettings
from fencepost.signals import announce

T = TypeVar("T")
_log = get_logger(__name__)
# Long enough to matter and short enough that a stopping node is not waited for.
BATCHES_PER_TICK = 500


class Database(Protocol):
    async def run(self, call: Call[T]) -> T: ...


class MarkerCleaner:
    """One tick of the cleaning loop."""

    def __init__(self, database: Database, settings: MutationSettings, metrics: MutationMetrics) -> None:
        self._database = database
        self._settings = settings
        self._metrics = metrics

    async def tick(self) -> float:
        keep_seconds = self._settings.marker_keep_seconds
        is_behind = not await self._clean(marker.clean(keep_seconds, self._settings.clean_batch))
        await self._database.run(marker.clean_ring())
        await self._database.run(
            gate.clean(self._settings.gate_window_seconds * 2, self._settings.clean_batch)
        )
        await self._tell_lag(await self._database.run(gate.marker_lag(keep_seconds)))
        announce("mutations.cleaned")
        # Jittered, so that many nodes do not clean at once; and at once again while there is more.
        return 0.0 if is_behind else self._settings.clean_seconds * random.uniform(0.8, 1.2)  # noqa: S311

    async def _clean(self, clean: Call[int]) -> bool:
        """Until a batch is short; whether one was."""
        for _ in range(BATCHES_PER_TICK):
            cleaned = await self._database.run(clean)
            self._metrics.markers_cleaned.inc(cleaned)
            if cleaned < self._settings.clean_batch:
                return True
        return False

    async def _tell_lag(self, lag_seconds: float) -> None:
        self._metrics.marker_lag.set(lag_seconds)
        if lag_seconds > self._settings.lag_alert_seconds:
            _log.warning(
                "marker_cleaning_behind",
                lag_seconds=round(lag_seconds, 1),
                allowed_seconds=self._settings.lag_alert_seconds,
            )
