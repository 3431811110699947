"""Steps with keyed state: running folds, stateful maps, dedup, joins with a table, timers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from fencepost.flows._record import Record
from fencepost.flows._state import KeyedState, keep, state_of
from fencepost.flows._steps import Batch, Step

Folding = Callable[[Any, Any], Any]
Stateful = Callable[[Any, Any], tuple[Any, Iterable[Any]]]


class Fold(Step):
    """One running value per key. Emits (key, value) for each record, or once per commit for each changed
    key."""

    def __init__(self, initial: Any, function: Folding, *, each: bool, kind: type[Any] | None = None) -> None:
        super().__init__()
        self._initial = initial
        self._function = function
        self._each = each
        self._state = state_of(kind)
        self._changed: set[Any] = set()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"value": self._state}

    async def push(self, records: Batch, port: int) -> None:
        values, f, initial = self._state.values, self._function, self._initial
        if not self._each and not self.errors:
            get = values.get
            for v, k, _, _ in records:
                values[k] = f(get(k, initial), v)
            touched = {record[1] for record in records}
            self._state.dirty |= touched
            self._changed |= touched
            return
        folded = await self.each(records, self._take)
        if self._each:
            await self.emit(folded)

    async def flush(self) -> None:
        changed, self._changed = self._changed, set()
        if not self._each:
            values = self._state.values
            await self.emit([((key, values[key]), key, None, 0) for key in changed])

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, at = record
        folded = self._function(self._state.values.get(key, self._initial), value)
        self._state.put(key, folded)
        self._changed.add(key)
        return (((key, folded), key, time, at),)


class StatefulMap(Step):
    """`function(state, value)` returns the new state (None deletes the key's state) and what to emit.

    With a time to live, a key's state is deleted when the watermark has passed its last record by that much.
    """

    def __init__(self, function: Stateful, ttl_seconds: float | None, kind: type[Any] | None = None) -> None:
        super().__init__()
        self._function = function
        self._ttl_seconds = ttl_seconds
        self._state = state_of(kind)
        self._touched = KeyedState()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"value": self._state, "touched": self._touched}

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(await self.each(records, self._take))

    async def advance(self, watermark: float) -> None:
        if self._ttl_seconds is None:
            return
        for key in [k for k, t in self._touched.values.items() if t + self._ttl_seconds <= watermark]:
            self._touched.remove(key)
            self._state.remove(key)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, at = record
        if self._is_over(key, time):
            self._state.remove(key)
        state, outs = self._function(self._state.values.get(key), value)
        made = [(out, key, time, at) for out in outs]
        if state is None:
            self._state.remove(key)
            self._touched.remove(key)
        else:
            self._state.put(key, state)
            if self._ttl_seconds is not None:
                self._touched.put(key, max(time or 0.0, self._touched.values.get(key, 0.0)))
        return made

    def _is_over(self, key: Any, time: float | None) -> bool:
        """Decided by the record's time, not by when the sweep ran: a replay must not depend on batches."""
        touched = self._touched.values.get(key)
        return (
            self._ttl_seconds is not None
            and touched is not None
            and (time or 0.0) >= touched + self._ttl_seconds
        )


class Dedup(Step):
    """Passes only the first record with an id, for each key."""

    def __init__(self, identify: Callable[[Any], Any], ttl_seconds: float | None) -> None:
        super().__init__()
        self._identify = identify
        self._ttl_seconds = ttl_seconds
        self._seen = KeyedState()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"seen": self._seen}

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(await self.each(records, self._take))

    async def advance(self, watermark: float) -> None:
        if self._ttl_seconds is not None:
            for place in [p for p, t in self._seen.values.items() if t + self._ttl_seconds <= watermark]:
                self._seen.remove(place)

    def _take(self, record: Record) -> Iterable[Record]:
        place = (record[1], self._identify(record[0]))
        time = record[2] or 0.0
        seen = self._seen.values.get(place)
        if seen is not None and (self._ttl_seconds is None or time < seen + self._ttl_seconds):
            return ()
        self._seen.put(place, time)
        return (record,)


class Lookup(Step):
    """Joins each record with the newest row of its key: records arrive on port 0, rows on port 1."""

    def __init__(self, join: Callable[[Any, Any], Any], kind: type[Any] | None) -> None:
        super().__init__()
        self._join = join
        self._rows = state_of(kind)

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"row": self._rows}

    async def push(self, records: Batch, port: int) -> None:
        if port == 1:
            for value, key, _, _ in records:
                self._rows.put(key, value)
            return
        rows, join = self._rows.values, self._join
        await self.emit(await self.each(records, lambda r: ((join(r[0], rows.get(r[1])), r[1], r[2], r[3]),)))


class Context:
    """What a `Process` works with: its key, its state, and the time of the record or timer."""

    def __init__(self, key: Any, state: Any, time: float | None) -> None:
        self.key = key
        self.state = state
        self.time = time
        self.emitted: list[Any] = []
        self.timers: list[float] = []

    def emit(self, value: Any) -> None:
        self.emitted.append(value)

    def call_at(self, time: float) -> None:
        """Schedule `on_timer` for when the watermark, or a record of this key, has reached `time`."""
        self.timers.append(time)


class Process(Protocol):
    """A user-defined step with timers. Its state for a key is `context.state`, plain data."""

    def on_record(self, context: Context, value: Any) -> None: ...

    def on_timer(self, context: Context) -> None: ...


class ProcessStep(Step):
    """Calls a `Process`. Timers of a key fire before a record of that key with a later time."""

    def __init__(self, process: Process, kind: type[Any] | None) -> None:
        super().__init__()
        self._process = process
        self._state = state_of(kind)
        self._timers = KeyedState(keep)
        self._due: list[tuple[float, str, Any]] = []

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"value": self._state, "timers": self._timers}

    def loaded(self) -> None:
        self._due = [(at, repr(key), key) for key, ats in self._timers.values.items() for at in ats]
        heapq.heapify(self._due)

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(await self.each(records, self._take))

    async def advance(self, watermark: float) -> None:
        fired: Batch = []
        while self._due and self._due[0][0] <= watermark:
            at, _, key = heapq.heappop(self._due)
            if at in self._timers.values.get(key, ()):
                # A timer has no record: a failure has no value, only its key and its time.
                fired.extend(await self.each([(None, key, at, 0)], self._fire_alone))
        await self.emit(fired)

    def _fire_alone(self, record: Record) -> Iterable[Record]:
        _, key, at, _ = record
        assert at is not None, "a timer has a time"
        return self._fire(key, at)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, at = record
        made: Batch = []
        for due in sorted(self._timers.values.get(key, ())):
            if time is not None and due <= time:
                made.extend(self._fire(key, due))
        context = Context(key, self._state.values.get(key), time)
        self._process.on_record(context, value)
        return [*made, *self._settle(context, at)]

    def _fire(self, key: Any, at: float) -> Batch:
        self._timers.put(key, [other for other in self._timers.values[key] if other != at])
        context = Context(key, self._state.values.get(key), at)
        self._process.on_timer(context)
        return self._settle(context, 0)

    def _settle(self, context: Context, at: int) -> Batch:
        key = context.key
        if context.state is None:
            self._state.remove(key)
        else:
            self._state.put(key, context.state)
        for time in context.timers:
            self._timers.put(key, [*self._timers.values.get(key, ()), time])
            heapq.heappush(self._due, (time, repr(key), key))
        if not self._timers.values.get(key, True):
            self._timers.remove(key)
        return [(value, key, context.time, at) for value in context.emitted]
