"""Reports what the units of a worker do: to the database for the console, and to the metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fencepost.flows import _flow_store as flow_store
from fencepost.flows._edge_stats import EdgeStats, activity
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._source_lag import SourceLag
from fencepost.flows._units import Unit
from fencepost.kernel.call import CallRunner
from fencepost.kernel.lease import Lease
from fencepost.logs import get_logger
from fencepost.signals import announce

_log = get_logger(__name__)
REPORT_SECONDS = 2.0


class Working(Protocol):
    async def edge_stats(self) -> EdgeStats: ...


@dataclass(frozen=True, slots=True)
class SourceView:
    """A running unit. A unit that was restarted is a new view: its counts begin at 0."""

    unit: Unit
    lease: Lease
    work: Working
    story: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What blocks it, if anything."""


class Reporter:
    """A loop next to the worker's own. A failed report is made up for by the next one: nothing depends on
    it."""

    def __init__(
        self, fp: CallRunner, flow: str, metrics: FlowMetrics, look: Callable[[], Sequence[SourceView]]
    ) -> None:
        self._fp = fp
        self._flow = flow
        self._metrics = metrics
        self._look = look
        self._before: dict[Working, tuple[float, EdgeStats]] = {}
        self._waiting: dict[tuple[Working, str], SourceLag] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop`. Cancelling is not enough: in Python 3.11 `wait_for`, through which redis-py and
        the pool wait, returns the result and drops the cancellation when both arrive at once."""
        while not stop.is_set():
            try:
                await self.tick()
            except Exception as error:
                self._metrics.loop_errors.labels(flow=self._flow).inc()
                _log.warning("flow_not_reported", error=f"{type(error).__name__}: {error}")
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS):
                    await stop.wait()

    async def tick(self) -> None:
        before, self._before = self._before, {}
        told: list[tuple[str, int, object]] = []
        lag, lag_seconds, uncommitted_seconds = 0, 0.0, 0.0
        waiting, self._waiting = self._waiting, {}
        for seen in self._look():
            now, edge_stats = time.monotonic(), await seen.work.edge_stats()
            self._before[seen.work] = (now, edge_stats)
            uncommitted_seconds = max(uncommitted_seconds, edge_stats.uncommitted_seconds)
            is_group = seen.unit.kind == "group"
            reads = [] if is_group else [s.source_name for s in seen.unit.senders if not s.stage]
            for sender, taken in edge_stats.taken.items():
                behind = edge_stats.lags.get(sender) or 0
                look = self._waiting[seen.work, sender] = waiting.get((seen.work, sender)) or SourceLag()
                lag, lag_seconds = lag + behind, max(lag_seconds, look.seconds(now, taken, behind))
            if seen.work in before:
                then, earlier = before[seen.work]
                news = activity(earlier, edge_stats, max(0.001, now - then), reads=reads)
                told.append((seen.lease.resource, seen.lease.token, {**news, **seen.story}))
        self._metrics.lag.labels(flow=self._flow).set(lag)
        self._metrics.lag_seconds.labels(flow=self._flow).set(lag_seconds)
        self._metrics.uncommitted_seconds.labels(flow=self._flow).set(uncommitted_seconds)
        if told:
            await self._fp.run(flow_store.report(told))
            announce("flows.reported")
