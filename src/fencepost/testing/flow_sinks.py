"""The conformance suite for sinks: does an effect happen once, wherever a task is ended?

    await check_sink(fp, lambda: MySink(...), effects, redis_url=...)

A small flow writes numbers to the sink. At each crash point of a commit and of recovery it is ended, a new
sink takes over from the checkpoint, and what the sink has done in the end must be what an undisturbed run
does.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from typing import Any

from fencepost.client import Fencepost
from fencepost.crashpoints import PlannedCrash
from fencepost.flows.graph import Flow
from fencepost.flows.metrics import FlowMetrics
from fencepost.flows.settings import FlowSettings
from fencepost.flows.sinks.sink import Sink
from fencepost.flows.sources.iterable import IterableSource
from fencepost.flows.worker import FlowWorker
from fencepost.metrics import Metrics
from fencepost.testing.crashes import crash_at
from fencepost.testing.errors import KitError, PointMissed
from fencepost.testing.flow_windows import windows_of

RECOVERY = {
    "flows.commit.after_begin": (),
    "flows.commit.before_invoke": ("flows.recover.before_abort",),
    "flows.commit.after_invoke": ("flows.recover.before_abort",),
    "flows.commit.after_pre_commit": ("flows.recover.before_abort",),
    "flows.commit.after_store": ("flows.recover.before_finish", "flows.recover.after_finish"),
    "flows.commit.before_flag": ("flows.recover.before_finish", "flows.recover.after_finish"),
}
"""Where the recovery from such an end may itself be ended."""

VALUES = tuple(range(40))
HURRY = FlowSettings(
    records_max=10,
    lease_seconds=6,
    heartbeat_seconds=1,
    interval_seconds=0.01,
    batch=10,
    balance_seconds=0.02,
    drain_seconds=5,
)
Effects = Callable[[], "Awaitable[Sequence[Any]]"]


class SinkBroken(KitError):
    """An effect was lost, or happened twice."""


async def check_sink(
    fp: Fencepost,
    make: Callable[[], Sink],
    effects: Effects,
    *,
    value: Callable[[int], Any] = lambda number: number,
    redis_url: str | None = None,
    guarantee: str = "exactly_once",
    points: Sequence[str] | None = None,
) -> None:
    """Raise SinkBroken if at any point the effects are not each number once. `effects` answers the
    numbers."""
    chosen = points or windows_of(make())
    done = Counter(await effects())
    for number, point in enumerate(chosen):
        flow = Flow(f"conformance-{number}", guarantee).source(IterableSource(VALUES)).map(value)
        await _ended(fp, flow.sink(make()), redis_url, point)
        for within in RECOVERY.get(point, ()):
            await _ended(fp, flow.sink(make()), redis_url, within)
        await _run(fp, flow.sink(make()), redis_url)
        now = Counter(await effects())
        found = now - done
        if found != Counter(VALUES) or done - now:
            raise SinkBroken(_told(point, found))
        done = now


async def _ended(fp: Fencepost, flow: Flow, redis_url: str | None, point: str) -> None:
    """Run until the point, and end there."""
    with ExitStack() as crash:
        crash.enter_context(crash_at(point, nth=1 if ".recover." in point else 2))
        try:
            await _run(fp, flow, redis_url)
        except PlannedCrash:
            return
    raise PointMissed(f"{point} was not reached.")


async def _run(fp: Fencepost, flow: Flow, redis_url: str | None) -> None:
    worker = FlowWorker(fp, flow, redis_url=redis_url, settings=HURRY, metrics=FlowMetrics.on(Metrics()))
    async with asyncio.timeout(60):
        await worker.run(until_done=True)


def _told(point: str, found: Counter[Any]) -> str:
    expected = Counter(VALUES)
    lost, doubled = sorted(expected - found), sorted(found - expected)
    return f"Ended at {point}: lost {lost}, doubled {doubled}."
