"""Steps: what a node of the graph does to a batch of records. No I/O except in the functions of an
enrichment.

A batch is a list of tuples (value, key, time, at). A step takes whole batches, because a call for each record
costs more than most user functions; an `AdaptiveBatch` bounds how many records a step gets at once, so that a
slow step does not block the other units. All units of a worker share one event loop. A unit inside a commit
would stall meanwhile, and the database terminates a fenced transaction that stalls for half of its lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from fencepost.flows._failing import blame, within
from fencepost.flows._record import Behind, Failure, IdempotentRecord, Record
from fencepost.flows._state import KeyedState

Batch = list[Record]
TURN_SECONDS = 0.025
SIZE_MAX = 1 << 20


class Step:
    """A running node. `outs` are the steps after it, each with the port that it receives on."""

    name: str = ""

    def __init__(self) -> None:
        self.outs: list[tuple[Step, int]] = []
        self.errors: list[tuple[Step, int]] = []
        self.counts = {"": 0, "errors": 0, "late": 0}
        """How many records were emitted, by side."""

    @property
    def states(self) -> dict[str, KeyedState]:
        """The keyed states of this step, by their names within it."""
        return {}

    def loaded(self) -> None:
        """The states were restored: rebuild what is derived from them."""

    async def push(self, records: Batch, port: int) -> None:
        raise NotImplementedError

    async def advance(self, watermark: float) -> None:
        """No record before the watermark will arrive any more."""

    async def tick(self, now: float) -> None:
        """The task's clock shows this much: records that follow arrive then."""

    async def flush(self) -> None:
        """A commit follows: emit what was held back for it."""

    async def emit(self, records: Batch) -> None:
        if records:
            self.counts[""] += len(records)
            for step, port in self.outs:
                with within(step.name):
                    await step.push(records, port)

    async def emit_failures(self, failed: Batch) -> None:
        if failed:
            self.counts["errors"] += len(failed)
            for step, port in self.errors:
                await step.push(failed, port)

    async def each(self, records: Batch, take: Callable[[Record], Iterable[Record]]) -> Batch:
        """Process records one by one, after a batch has failed: a failure goes to `.errors`, or is raised
        without one."""
        taken: Batch = []
        failed: Batch = []
        for record in records:
            try:
                taken.extend(take(record))
            except Exception as error:
                failed.append(self.failed(record, error))
        await self.emit_failures(failed)
        return taken

    def failed(self, record: Record, error: Exception) -> Record:
        """The failure of a record, for `.errors`; raises the error without one."""
        if not self.errors:
            blame(error, step=self.name, at=record[3])
            raise error
        return self.failure(record, error)

    def failure(self, record: Record, error: Exception) -> Record:
        value, key, time, at = record
        return Failure(value, f"{type(error).__name__}: {error}", self.name, key), key, time, at


class Pass(Step):
    """Emits what it receives: a union, or the start of a side stream."""

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(records)


class Map(Step):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    async def push(self, records: Batch, port: int) -> None:
        f = self.function
        try:
            mapped: Batch = [(f(v), k, t, a) for v, k, t, a in records]
        except Exception:
            mapped = await self.each(records, lambda r: [(self.one(r[0]), r[1], r[2], r[3])])
        await self.emit(mapped)

    def one(self, value: Any) -> Any:
        return self.function(value)


class ReadJson(Map):
    """A map that decodes the value inside an IdempotentRecord. These are not bytes, so a batch of them
    fails."""

    def one(self, value: Any) -> Any:
        record = IdempotentRecord[Any].of(value)
        if record is None:
            return self.function(value)
        return IdempotentRecord(record.id, self.function(record.value))


class Filter(Step):
    def __init__(self, function: Callable[[Any], bool]) -> None:
        super().__init__()
        self._function = function

    async def push(self, records: Batch, port: int) -> None:
        f = self._function
        try:
            kept = [record for record in records if f(record[0])]
        except Exception:
            kept = await self.each(records, lambda r: [r] if f(r[0]) else [])
        await self.emit(kept)


class FlatMap(Step):
    def __init__(self, function: Callable[[Any], Iterable[Any]]) -> None:
        super().__init__()
        self._function = function

    async def push(self, records: Batch, port: int) -> None:
        f = self._function
        try:
            made: Batch = [(out, k, t, a) for v, k, t, a in records for out in f(v)]
        except Exception:
            made = await self.each(records, lambda r: [(out, r[1], r[2], r[3]) for out in f(r[0])])
        await self.emit(made)


class Enrich(Step):
    """Awaits a function for each record, up to `concurrency` at once; the order of the records is kept."""

    def __init__(self, function: Callable[[Any], Awaitable[Any]], concurrency: int) -> None:
        super().__init__()
        self._function = function
        self._concurrency = concurrency

    async def push(self, records: Batch, port: int) -> None:
        slots = asyncio.Semaphore(self._concurrency)

        async def one(record: Record) -> Any:
            async with slots:
                return await self._function(record[0])

        answers: Sequence[Any] = await asyncio.gather(*map(one, records), return_exceptions=True)
        made: Batch = []
        failed: Batch = []
        for record, answer in zip(records, answers, strict=True):
            if not isinstance(answer, BaseException):
                made.append((answer, record[1], record[2], record[3]))
            elif isinstance(answer, Exception) and self.errors:
                failed.append(self.failure(record, answer))
            else:
                blame(answer, step=self.name, at=record[3])
                raise answer
        await self.emit_failures(failed)
        await self.emit(made)


class KeyBy(Step):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    async def push(self, records: Batch, port: int) -> None:
        f = self.function
        try:
            keyed: Batch = [(v, f(v), t, a) for v, _, t, a in records]
        except Exception:
            keyed = await self.each(records, lambda r: [(r[0], f(r[0]), r[2], r[3])])
        await self.emit(keyed)


class Chain:
    """Maps, and the key_by behind them, that follow a source without a branch: one loop makes their records,
    where each step would make them again.

    A batch that one of them cannot process goes through the steps instead, which find the record.
    """

    def __init__(self, steps: Sequence[Step], maps: Sequence[Map], key_by: KeyBy | None) -> None:
        self._steps = steps
        self._functions = [step.function for step in maps]
        self._key = None if key_by is None else key_by.function

    @classmethod
    def of(cls, entry: Step) -> Chain | None:
        """The chain behind the first step of a stage; None if it does not begin with a map or a key_by."""
        steps, maps = [entry], list[Map]()
        while len(steps[-1].outs) == 1 and not steps[-1].errors:
            [(step, _)] = steps[-1].outs
            if isinstance(step, Map) and not step.errors:
                maps.append(step)
            elif isinstance(step, KeyBy) and not step.errors:
                return cls([*steps, step], maps, step)
            else:
                break
            steps.append(step)
        return cls(steps, maps, None) if maps else None

    def made(self, values: Sequence[Any], start: int) -> Batch | None:
        """The records behind the chain, numbered from `start`; None if a function failed."""
        mapped: Iterable[Any] = values
        for function in self._functions:
            mapped = map(function, mapped)
        key = self._key
        try:
            if key is None:
                records: Batch = [(value, None, None, at) for at, value in enumerate(mapped, start)]
            else:
                records = [(value, key(value), None, at) for at, value in enumerate(mapped, start)]
        except Exception:
            return None
        # A function that raises StopIteration ends the loop instead of failing.
        return records if len(records) == len(values) else None

    async def emit(self, records: Batch) -> None:
        for step in self._steps[:-1]:
            step.counts[""] += len(records)
        await self._steps[-1].emit(records)


class EventTime(Step):
    """Sets the time of each record, and sends records whose windows are closed to `late`.

    `is_late` decides from a time and the watermark before it. A record that it does not call late may still
    be late: then the windows decide, which know what is open. Without windows a record is late once the
    watermark has passed its time.

    The watermark follows the highest time that was seen, `lateness_seconds` behind it, and nothing else: no
    wall clock, no size of a batch. So a replay decides as the first run did.
    """

    def __init__(self, moment: Callable[[Any], float | datetime], lateness_seconds: float) -> None:
        super().__init__()
        self._moment = moment
        self._lateness_seconds = lateness_seconds
        self.watermark = float("-inf")
        self.late: list[tuple[Step, int]] = []
        self.is_late: Callable[[float, float], bool] = lambda time, watermark: True

    async def push(self, records: Batch, port: int) -> None:
        try:
            times = [self._time(record[0]) for record in records]
            timed: Batch = [(v, k, time, at) for (v, k, _, at), time in zip(records, times, strict=True)]
        except Exception:
            timed = await self.each(records, self._timed)
        watermark = self.watermark
        lateness = self._lateness_seconds
        kept: Batch = []
        late: Batch = []
        for record in timed:
            time: Any = record[2]
            if time >= watermark:
                kept.append(record)
                watermark = max(watermark, time - lateness)
            elif self.is_late(time, watermark):
                late.append(record)
            else:
                value, key, _, at = record
                kept.append((value, key, Behind.of(time, watermark, self.name, value), at))
        self.watermark = watermark
        self.counts["late"] += len(late)
        for step, out_port in self.late:
            await step.push(late, out_port)
        await self.emit(kept)

    def _time(self, value: Any) -> float:
        moment = self._moment(value)
        return moment.timestamp() if isinstance(moment, datetime) else float(moment)

    def _timed(self, record: Record) -> Iterable[Record]:
        return ((record[0], record[1], self._time(record[0]), record[3]),)


class Collect(Step):
    """The end of a branch: keeps values for a sink, or records for a border, until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self.records: Batch = []

    async def push(self, records: Batch, port: int) -> None:
        self.records.extend(records)

    def take(self) -> Batch:
        taken, self.records = self.records, []
        return taken


class AdaptiveBatch:
    """Begins with one record, since the time per record is unknown, and continues with as many as fit into a
    turn."""

    def __init__(self) -> None:
        self._size = 1

    @classmethod
    def of(cls, steps: Iterable[Step]) -> AdaptiveBatch | None:
        """None with an enrichment: it awaits I/O, and takes as many records at once as it may."""
        return None if any(isinstance(step, Enrich) for step in steps) else cls()

    async def each_turn(
        self, items: Sequence[Any], take: Callable[[Sequence[Any], int], Awaitable[None]]
    ) -> None:
        """Call `take` with all items, in order, some at once and the number of the first; before each turn
        other tasks can run."""
        done = 0
        while done < len(items):
            await asyncio.sleep(0)
            turn = items[done : done + self._size]
            began = time.perf_counter()
            await take(turn, done)
            done += len(turn)
            self._size = next_size(self._size, len(turn), time.perf_counter() - began)


async def push(step: Step, records: Batch, pace: AdaptiveBatch | None) -> None:
    """Push records to the first step of a wiring: in adaptive batches, or all at once."""
    if pace is None:
        await step.push(records, 0)
    else:
        await pace.each_turn(records, lambda turn, _: step.push(list(turn), 0))


def next_size(size: int, count: int, seconds: float) -> int:
    """The next size after `count` records took `seconds`. A few fast records are no evidence for larger
    batches."""
    if seconds > TURN_SECONDS:
        return max(1, int(count * TURN_SECONDS / seconds))
    if count == size and seconds < TURN_SECONDS / 2:
        return min(SIZE_MAX, size * 2)
    return size
