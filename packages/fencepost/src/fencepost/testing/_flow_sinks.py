"""The conformance suite for sinks: checks that each effect happens once, wherever a task is ended.

    await check_sink(fp, lambda: MySink(...), effects, redis_url=...)

A small flow writes numbers to the sink. It is ended at each crash point of a commit and of recovery, a new
sink takes over from the checkpoint, and the final effects must be those of an undisturbed run.

Inside the flow the numbers are parts of values of every type that a flow supports (`CARRIERS`): tuples,
results of windows, failures, dataclasses and so on. Each value must reach the sink unchanged, also from a
checkpoint; only then its number is extracted and given to the sink.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple

import msgspec

from fencepost.crashpoints import PlannedCrash
from fencepost.database import OpenClient
from fencepost.flows._graph import Flow
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._record import Failure, IdempotentRecord, WindowResult
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sources._iterable import IterableSource
from fencepost.metrics import Metrics
from fencepost.testing._crashes import crash_at
from fencepost.testing._errors import KitError, PointMissed
from fencepost.testing._flow_windows import windows_of

RECOVERY = {
    "flows.commit.after_begin": (),
    "flows.commit.before_invoke": ("flows.recover.before_abort",),
    "flows.commit.after_invoke": ("flows.recover.before_abort",),
    "flows.commit.after_pre_commit": ("flows.recover.before_abort",),
    "flows.commit.after_store": ("flows.recover.before_finish", "flows.recover.after_finish"),
    "flows.commit.before_flag": ("flows.recover.before_finish", "flows.recover.after_finish"),
}
"""Where the recovery from such a crash may itself be ended."""


@dataclass(frozen=True, slots=True)
class CarrierData:
    value: Any
    at: timedelta = timedelta(seconds=1)


class CarrierStruct(msgspec.Struct, frozen=True):
    value: Any
    amount: Decimal = Decimal("1.10")


class CarrierRow(NamedTuple):
    value: Any
    moment: datetime = datetime(2026, 1, 2, 3, tzinfo=UTC)


class CarrierKind(Enum):
    ONLY = "only"


Carrier = tuple[Callable[[Any], Any], Callable[[Any], Any]]
CARRIERS: tuple[Carrier, ...] = (
    (lambda value: value, lambda carried: carried),
    (lambda value: (value, ("inner",)), lambda carried: carried[0]),
    (lambda value: [value, (1, 2)], lambda carried: carried[0]),
    (lambda value: {"value": value, "seen": {1, 2}}, lambda carried: carried["value"]),
    (lambda value: {(1, "key"): value}, lambda carried: carried[1, "key"]),
    (lambda value: WindowResult(("key", 1), 0.0, 10.0, value), lambda carried: carried.value),
    (lambda value: Failure(value, "ValueError: no", "step", ("key",)), lambda carried: carried.value),
    (lambda value: IdempotentRecord("id", (value,)), lambda carried: carried.value[0]),
    (CarrierData, lambda carried: carried.value),
    (CarrierStruct, lambda carried: carried.value),
    (CarrierRow, lambda carried: carried.value),
    (lambda value: (CarrierKind.ONLY, 2**80, value), lambda carried: carried[2]),
)
"""How a number is wrapped in a value, and how it is extracted again."""

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
    """An effect was lost or happened twice, or a value came back changed."""


async def check_sink(
    fp: OpenClient,
    make: Callable[[], Sink],
    effects: Effects,
    *,
    value: Callable[[int], Any] = lambda number: number,
    redis_url: str | None = None,
    guarantee: str = "exactly_once",
    points: Sequence[str] | None = None,
) -> None:
    """Raise SinkBroken if at any point the effects are not each number exactly once. `effects` returns the
    numbers."""
    chosen = points or windows_of(make())
    done = Counter(await effects())
    for number, point in enumerate(chosen):
        flow = Flow(f"conformance-{number}", guarantee).source(IterableSource(VALUES))
        carried = flow.map(lambda each: _carried(each, value(each)))
        await _ended(fp, carried.sink(_unloading(make())), redis_url, point)
        for within in RECOVERY.get(point, ()):
            await _ended(fp, carried.sink(_unloading(make())), redis_url, within)
        await _run(fp, carried.sink(_unloading(make())), redis_url)
        now = Counter(await effects())
        found = now - done
        if found != Counter(VALUES) or done - now:
            raise SinkBroken(_told(point, found))
        done = now


def _carried(number: int, value: Any) -> list[Any]:
    """The carrier's index, and the value in it."""
    place = number % len(CARRIERS)
    return [place, CARRIERS[place][0](value)]


class _Mistaken(BaseException):
    """A value came back changed. Not an Exception: a task would restart after it, for ever."""


class _TakenOut(list[Any]):
    """Values without their carriers."""


def _taken_out(values: Sequence[tuple[int, Any]]) -> _TakenOut:
    taken = _TakenOut()
    for place, carried in values:
        forwarder: Carrier = CARRIERS[place]
        load, unload = forwarder
        try:
            value = unload(carried)
        except (AttributeError, LookupError, TypeError) as error:
            raise _Mistaken(f"{CARRIERS[place][0]('...')!r} came to the sink as {carried!r}.") from error
        if repr(carried) != repr(load(value)):
            raise _Mistaken(f"{load(value)!r} came to the sink as {carried!r}.")
        taken.append(value)
    return taken


def _unloading(sink: Sink) -> Sink:
    """The same sink, whose hooks get the values without their carriers."""
    for name in ("prepare", "write", "finish", "recover"):
        setattr(sink, name, _with_values_taken_out(getattr(sink, name)))
    return sink


def _with_values_taken_out(hook: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def call(first: Any, second: Any, values: Sequence[Any]) -> Any:
        # One hook may call another with values that are already extracted.
        return await hook(first, second, values if isinstance(values, _TakenOut) else _taken_out(values))

    return call


async def _ended(fp: OpenClient, flow: Flow, redis_url: str | None, point: str) -> None:
    """Run until the crash point, and end there."""
    with ExitStack() as crash:
        crash.enter_context(crash_at(point, nth=1 if ".recover." in point else 2))
        try:
            await _run(fp, flow, redis_url)
        except PlannedCrash:
            return
    raise PointMissed(f"{point} was not reached.")


async def _run(fp: OpenClient, flow: Flow, redis_url: str | None) -> None:
    worker = FlowWorker(fp, flow, redis_url=redis_url, settings=HURRY, metrics=FlowMetrics.on(Metrics()))
    try:
        async with asyncio.timeout(60):
            await worker.run(until_done=True)
    except _Mistaken as error:
        raise SinkBroken(str(error)) from None


def _told(point: str, found: Counter[Any]) -> str:
    expected = Counter(VALUES)
    lost, doubled = sorted(expected - found), sorted(found - expected)
    return f"Ended at {point}: lost {lost}, doubled {doubled}."
