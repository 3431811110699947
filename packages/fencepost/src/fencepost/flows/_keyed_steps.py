"""Steps with keyed state: running folds, stateful maps, dedup, joins with a table, timers."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Protocol

from fencepost.flows._record import Record, closed_until, known_at
from fencepost.flows._state import KeyedState, keep, state_of
from fencepost.flows._steps import Batch, Step
from fencepost.flows._time_index import Expiry

_KEY = itemgetter(1)
Folding = Callable[[Any, Any], Any]
Stateful = Callable[[Any, Any], tuple[Any, Iterable[Any]]]


class Fold(Step):
    """One running value per key. Emits (key, value) for each record, or once per commit for each changed
    key."""

    def __init__(
        self,
        initial: Any,
        function: Folding,
        *,
        each: bool,
        kind: type[Any] | None = None,
        fold_batch: Callable[[dict[Any, Any], Batch], None] | None = None,
    ) -> None:
        """`fold_batch` folds a batch into the values at once, as `function` would record by record."""
        super().__init__()
        self._fold_batch = fold_batch
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
            if self._fold_batch is not None:
                self._fold_batch(values, records)
            else:
                get = values.get
                for v, k, _, _ in records:
                    values[k] = f(get(k, initial), v)
            touched = set(map(_KEY, records))
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


def summing(amount: Callable[[Any], Any]) -> Callable[[dict[Any, Any], Batch], None]:
    """A `fold_batch` that adds amounts."""

    def fold(values: dict[Any, Any], records: Batch) -> None:
        get = values.get
        for value, key, _, _ in records:
            values[key] = get(key, 0) + amount(value)

    return fold


def counting(values: dict[Any, Any], records: Batch) -> None:
    """A `fold_batch` that counts records."""
    for key, count in Counter(map(_KEY, records)).items():
        values[key] = values.get(key, 0) + count


class StatefulMap(Step):
    """`function(state, value)` returns the new state (None deletes the key's state) and what to emit.

    With a time to live, a key's state is over when the watermark has passed its last record by that much. It
    is deleted a little later; what a record sees does not depend on that.
    """

    def __init__(self, function: Stateful, ttl_seconds: float | None, kind: type[Any] | None = None) -> None:
        super().__init__()
        self._function = function
        self._ttl_seconds = ttl_seconds
        self._state = state_of(kind)
        self._touched = KeyedState()
        self._expiry = self._indexed()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"value": self._state, "touched": self._touched}

    def loaded(self) -> None:
        self._expiry = self._indexed()

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(await self.each(records, self._take))

    async def advance(self, watermark: float) -> None:
        if self._expiry is not None:
            for key in self._expiry.expired(watermark):
                self._touched.remove(key)
                self._state.remove(key)

    def _indexed(self) -> Expiry | None:
        return None if self._ttl_seconds is None else expiry_of(self._ttl_seconds, self._touched)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, at = record
        if self._ttl_seconds is not None and is_over(self._touched, key, time, self._ttl_seconds):
            self._state.remove(key)
        state, outs = self._function(self._state.values.get(key), value)
        made = [(out, key, time, at) for out in outs]
        if state is None:
            self._state.remove(key)
            self._touched.remove(key)
        else:
            self._state.put(key, state)
            if self._expiry is not None:
                self._touch(self._expiry, key, time or 0.0)
        return made

    def _touch(self, expiry: Expiry, key: Any, time: float) -> None:
        before = self._touched.values.get(key)
        touched = float(time) if before is None else max(float(time), before)
        self._touched.put(key, touched)
        if before is None:
            expiry.add(key, touched)


def expiry_of(ttl_seconds: float, touched: KeyedState) -> Expiry:
    """An index of a state whose values are the times at which its keys were touched."""
    expiry = Expiry(ttl_seconds, touched.values.get)
    for key, time in touched.values.items():
        expiry.add(key, time)
    return expiry


def is_over(touched: KeyedState, key: Any, time: float | None, ttl_seconds: float) -> bool:
    """Whether a key's time to live was over when a record came: decided by the record's time and its
    partition's watermark then, not by when keys are deleted. A replay must not depend on batches."""
    before = touched.values.get(key)
    now = 0.0 if time is None else time
    return before is not None and max(now, closed_until(now)) >= before + ttl_seconds


class Dedup(Step):
    """Passes only the first record with an id, for each key."""

    def __init__(self, identify: Callable[[Any], Any], ttl_seconds: float | None) -> None:
        super().__init__()
        self._identify = identify
        self._ttl_seconds = ttl_seconds
        self._seen = KeyedState()
        self._expiry = self._indexed()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"seen": self._seen}

    def loaded(self) -> None:
        self._expiry = self._indexed()

    async def push(self, records: Batch, port: int) -> None:
        await self.emit(await self.each(records, self._take))

    async def advance(self, watermark: float) -> None:
        if self._expiry is not None:
            for place in self._expiry.expired(watermark):
                self._seen.remove(place)

    def _indexed(self) -> Expiry | None:
        return None if self._ttl_seconds is None else expiry_of(self._ttl_seconds, self._seen)

    def _take(self, record: Record) -> Iterable[Record]:
        place = (record[1], self._identify(record[0]))
        time = 0.0 if record[2] is None else record[2]
        ttl = self._ttl_seconds
        if place in self._seen.values and (ttl is None or not is_over(self._seen, place, time, ttl)):
            return ()
        self._seen.put(place, float(time))
        if self._expiry is not None:
            self._expiry.add(place, float(time))
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
        """Pass a value on to the next step."""
        self.emitted.append(value)

    def call_at(self, time: float) -> None:
        """Schedule `on_timer` for when the watermark, or a record of this key, has reached `time`."""
        self.timers.append(time)


class Process(Protocol):
    """A user-defined step with timers. Its state for a key is `context.state`, plain data."""

    def on_record(self, context: Context, value: Any) -> None:
        """Take one value of the context's key."""

    def on_timer(self, context: Context) -> None:
        """Called when a timer that the context set is due."""


class ProcessStep(Step):
    """Calls a `Process`. Timers of a key fire before a record of that key that was known later."""

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
            if due <= known_at(record):
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
