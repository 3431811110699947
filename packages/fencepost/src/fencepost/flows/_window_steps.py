"""Window steps: they gather records until the watermark has passed the window's end, and emit once."""

from __future__ import annotations

import heapq
import sys
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from functools import reduce
from operator import itemgetter
from typing import Any, Literal

from fencepost.flows._errors import StateMismatch
from fencepost.flows._record import Behind, Record, WindowResult, WindowUpdate, closed_until, known_at, settle
from fencepost.flows._state import KeyedState, reviver, state_of
from fencepost.flows._steps import Batch, Step
from fencepost.flows._time_index import Deadlines, TimeBuckets
from fencepost.flows._windows import Calendar, Firing, Fixed, Interval, Session, Tumbling

How = Literal["inner", "left", "right", "outer"]
HOW = ("inner", "left", "right", "outer")
_TIME = itemgetter(2)


class WindowFold(Step):
    """Windows that lie fast. A key of the state is (key, start)."""

    def __init__(
        self,
        window: Fixed,
        initial: Callable[[], Any],
        function: Callable[[Any, Any], Any],
        kind: type[Any] | None = None,
    ) -> None:
        super().__init__()
        self._window = window
        self._initial = initial
        self._function = function
        self._state = state_of(kind)
        self._open = TimeBuckets()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"window": self._state}

    def loaded(self) -> None:
        self._open = opened(self._state)

    async def push(self, records: Batch, port: int) -> None:
        in_time = Behind not in map(type, map(_TIME, records))
        if isinstance(self._window, Tumbling) and not self.errors and in_time:
            self._push_tumbling(records, self._window.size_seconds, self._window.offset_seconds)
        else:
            await self.each(records, self._take)

    def _push_tumbling(self, records: Batch, size: float, offset: float) -> None:
        values, f, opened = self._state.values, self._function, self._open
        dirty = self._state.dirty
        for value, key, time, _ in records:
            moment: Any = time
            start: float = moment - (moment - offset) % size
            place = (key, start)
            if place in values:
                values[place] = f(values[place], value)
            else:
                values[place] = f(self._initial(), value)
                opened.add(start, place)
            dirty.add(place)

    async def advance(self, watermark: float) -> None:
        window, closed = self._window, list[Record]()
        for start, places in self._open.take(lambda start: window.end(start) <= watermark):
            end = window.end(start)
            for place in places:
                value = self._state.values[place]
                self._state.remove(place)
                closed.append((WindowResult(place[0], start, end, value), place[0], end, 0))
        await self.emit(closed)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, _ = record
        assert time is not None, "a window behind event time has only records with a time"
        folded = [
            ((key, start), self._function(self._state.values.get((key, start), self._initial()), value))
            for start in self._window.starts(time)
            if self._window.end(start) > closed_until(time)
        ]
        settle(time, taken=bool(folded))
        for place, state in folded:
            if place not in self._state.values:
                self._open.add(place[1], place)
            self._state.put(place, state)
        return ()


def opened(windows: KeyedState) -> TimeBuckets:
    """The places (key, start) of a state, by the start of their window."""
    found = TimeBuckets()
    for place in windows.values:
        found.add(place[1], place)
    return found


class ByArrival(Step):
    """A window in processing time: around the step of the same window in event time, whose records get the
    time at which the task processes them, and which advances with the task's clock.

    The clock is stored in the commit that has its effects, and never goes back: a window that was emitted
    does not open again, and a record counts in one window, that of the run that committed it.
    """

    def __init__(self, inner: Step) -> None:
        super().__init__()
        self._inner = inner
        self._now = 0.0
        # What the inner step emits is this step's.
        inner.outs, inner.errors, inner.counts = self.outs, self.errors, self.counts

    @property
    def states(self) -> dict[str, KeyedState]:
        return self._inner.states

    def loaded(self) -> None:
        self._inner.loaded()

    async def push(self, records: Batch, port: int) -> None:
        self._inner.name = self.name
        await self._inner.push([(value, key, self._now, at) for value, key, _, at in records], port)

    async def tick(self, now: float) -> None:
        self._inner.name = self.name
        self._now = now
        await self._inner.advance(now)


class Known:
    """Records in the order in which they were known. Those of two branches of a stream come batch by batch,
    all before the watermark advances past them; so none is stored."""

    def __init__(self) -> None:
        self._records: list[tuple[float, int, int, Record]] = []

    def add(self, record: Record, port: int) -> None:
        self._records.append((known_at(record), port, len(self._records), record))

    def take(self) -> list[tuple[Record, int]]:
        """All of them, each with the port that it came through."""
        came, self._records = sorted(self._records, key=lambda each: each[:3]), []
        return [(record, port) for _, port, _, record in came]


class FiringWindow(Step):
    """Windows that emit before they close, after, or both, each time what they hold by then.

    The records come in order of the time at which they were known: their own, or the watermark that they
    came behind. So what a firing holds depends on the records alone. A key of the state is (key, start); a
    value is the folded value, how often the window fired, when it fires next, and whether it has closed.
    """

    def __init__(
        self,
        firing: Firing,
        initial: Callable[[], Any],
        function: Callable[[Any, Any], Any],
        kind: type[Any] | None = None,
    ) -> None:
        super().__init__()
        self._window = firing.window
        self._initial = initial
        self._function = function
        self._early_seconds = firing.early_seconds
        self._late_seconds = firing.late_seconds
        revive = reviver(kind)
        self._state = KeyedState(lambda kept: [revive(kept[0]), *kept[1:]], declared=kind is not None)
        self._due = Deadlines()
        self._came = Known()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"window": self._state}

    def loaded(self) -> None:
        self._due = Deadlines()
        for place, (_, _, at, _) in self._state.values.items():
            self._due.add(place, at)

    async def push(self, records: Batch, port: int) -> None:
        for record in records:
            time = record[2]
            assert time is not None, "a window behind event time has only records with a time"
            is_taken = any(self._is_open(start, time) for start in self._window.starts(time))
            settle(time, taken=is_taken)
            if is_taken:
                self._came.add(record, port)

    async def advance(self, watermark: float) -> None:
        made: Batch = []
        for record, _ in self._came.take():
            # What is due fires without the records that were known later, of whichever key.
            made += self._fired(known_at(record))
            made += await self.each([record], self._take)
        made += self._fired(watermark)
        await self.emit(made)

    def _is_open(self, start: float, time: float) -> bool:
        return self._window.end(start) + self._late_seconds > closed_until(time)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, _ = record
        assert time is not None, "a window behind event time has only records with a time"
        known = known_at(record)
        folded: list[tuple[tuple[Any, float], list[Any]]] = []
        for start in self._window.starts(time):
            if self._is_open(start, time):
                before = self._state.values.get((key, start))
                kept = self._begun(start, known) if before is None else before
                folded.append(((key, start), [self._function(kept[0], value), *kept[1:]]))
        made: Batch = []
        for place, kept in folded:
            if kept[3]:
                kept[1] += 1
                made.append(self._result(place, kept, "late", known))
            else:
                kept[2] = self._next_firing(place[1], known)
            self._state.put(place, kept)
            self._due.add(place, kept[2])
        return made

    def _begun(self, start: float, known: float) -> list[Any]:
        """A new window. One whose end has passed is closed: its first record is an update already."""
        end = self._window.end(start)
        if end <= known:
            return [self._initial(), 0, end + self._late_seconds, True]
        return [self._initial(), 0, None, False]

    def _next_firing(self, start: float, known: float) -> float:
        """The first early firing after a moment, or the end."""
        end, every = self._window.end(start), self._early_seconds
        if every is None:
            return end
        past = max(0, int((known - start) // every))
        return min(
            end, next(at for n in range(past, past + 3) if (at := start + n * every) > max(known, start))
        )

    def _fired(self, until: float) -> Batch:
        """What is due, in order of time and then of key."""
        made: Batch = []
        while due := self._due.first(until):
            at, places = due
            for place in sorted(places, key=repr):
                made += self._fire(place, at)
        return made

    def _fire(self, place: tuple[Any, float], at: float) -> Batch:
        value, fired, _, is_closed = self._state.values[place]
        end = self._window.end(place[1])
        is_end = at >= end
        if is_closed or (is_end and not self._late_seconds):
            self._state.remove(place)
        else:
            # Behind an early firing it fires at its end, and before only for a record.
            kept = [value, fired + 1, end + self._late_seconds if is_end else end, is_end]
            self._state.put(place, kept)
            self._due.add(place, kept[2])
        if is_closed:
            return []
        return [self._result(place, [value, fired + 1], "on_time" if is_end else "early", at)]

    def _result(self, place: tuple[Any, float], kept: list[Any], timing: str, at: float) -> Record:
        key, start = place
        return WindowUpdate(key, start, self._window.end(start), kept[0], timing, kept[1]), key, at, 0


KEPT, MERGED = 3, 4
"""The parts of a stored session: start, last, and its values with their times; or start, last, the folded
value, and whether a record was folded into it."""


class SessionFold(Step):
    """Sessions. The state of a key is its open sessions.

    A record may join two sessions. With `merge`, which combines two folded values, a session is one folded
    value. Without it the values are kept until the session ends, and are folded in order of time.
    """

    def __init__(
        self,
        window: Session,
        initial: Callable[[], Any],
        function: Callable[[Any, Any], Any],
        merge: Callable[[Any, Any], Any] | None = None,
        kind: type[Any] | None = None,
    ) -> None:
        super().__init__()
        self._gap = window.gap_seconds
        self._initial = initial
        self._function = function
        self._merge = merge
        # Kept values are records, whose type is not the declared one.
        self._state = state_of(None) if merge is None or kind is None else _sessions_of(kind)
        self._ends = Deadlines()
        self._unreported: Batch = []
        """Failures of values that were kept before the step had a `merge`."""

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"sessions": self._state}

    def loaded(self) -> None:
        self._ends = Deadlines()
        for key, sessions in self._state.values.items():
            for place, session in enumerate(sessions):
                if self._merge is not None and len(session) == KEPT:
                    sessions[place] = self._folded(key, session)
                elif self._merge is None and len(session) == MERGED:
                    raise StateMismatch(
                        f"The sessions of {self.name} were stored as folded values, and without merge= they "
                        "would need their records. Give the fold its merge= again, or give the step another "
                        "name= and drop_state= the old one."
                    )
            self._ends.add(key, self._next_end(sessions))

    async def push(self, records: Batch, port: int) -> None:
        await self._report()
        await self.each(records, self._take)

    async def advance(self, watermark: float) -> None:
        await self._report()
        over = [
            (key, session) for key in self._ends.due(watermark) for session in self._close(key, watermark)
        ]
        closed: Batch = []
        for key, session in sorted(over, key=lambda each: (each[1][1], repr(each[0]), each[1][0])):
            closed.extend(await self._result(key, session))
        await self.emit(closed)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, _ = record
        assert time is not None, "a session behind event time has only records with a time"
        closed, moment = closed_until(time), float(time)
        apart: list[Any] = []
        joined: list[Any] = []
        for known in self._state.values.get(key, ()):
            # A session that is closed for this record may not have been emitted yet: the result must not
            # depend on which records were read together.
            is_open = known[1] + self._gap > closed
            near = is_open and known[0] - self._gap < moment < known[1] + self._gap
            (joined if near else apart).append(known)
        is_taken = bool(joined) or moment + self._gap > closed
        settle(time, taken=is_taken)
        if not is_taken:
            return ()
        session: list[Any] = [
            min([moment, *map(_start, joined)]),
            max([moment, *(each[1] for each in joined)]),
            *self._joined(joined),
        ]
        self._state.put(key, [*apart, session])
        self._ends.add(key, session[1] + self._gap)
        # A value that the fold cannot take is part of the session all the same.
        if self._merge is None:
            session[2].append([moment, value])
        else:
            session[2:] = [self._function(session[2], value), True]
        return ()

    def _joined(self, sessions: list[Any]) -> list[Any]:
        """What a session has that continues these."""
        if self._merge is None:
            # In place: with a copy for each record, a long session would take quadratic time.
            first: list[Any] = sessions[0][2] if sessions else []
            for other in sessions[1:]:
                first.extend(other[2])
            return [first]
        folded = [session[2] for session in sorted(sessions, key=_start) if session[3]]
        return [reduce(self._merge, folded), True] if folded else [self._initial(), False]

    def _next_end(self, sessions: list[Any]) -> float:
        return float(min(session[1] for session in sessions) + self._gap)

    def _close(self, key: Any, watermark: float) -> list[Any]:
        sessions = self._state.values.get(key, [])
        over = [session for session in sessions if session[1] + self._gap <= watermark]
        left = [session for session in sessions if session[1] + self._gap > watermark]
        if left:
            self._ends.add(key, self._next_end(left))
        if over and left:
            self._state.put(key, left)
        elif over:
            self._state.remove(key)
        return over

    async def _result(self, key: Any, session: list[Any]) -> Batch:
        """None when the fold could process no value."""
        if len(session) == KEPT:
            session = self._folded(key, session)
            await self._report()
        start, last, folded, is_any = session
        end = last + self._gap
        return [(WindowResult(key, start, end, folded), key, end, 0)] if is_any else []

    def _folded(self, key: Any, session: list[Any]) -> list[Any]:
        """The session with its values folded, in order of time."""
        start, last, members = session
        folded, is_any = self._initial(), False
        for _, value in sorted(members, key=_start):
            try:
                folded, is_any = self._function(folded, value), True
            except Exception as error:
                self._unreported.append(self.failed((value, key, last + self._gap, 0), error))
        return [start, last, folded, is_any]

    async def _report(self) -> None:
        if self._unreported:
            failures, self._unreported = self._unreported, []
            await self.emit_failures(failures)


def _sessions_of(kind: type[Any]) -> KeyedState:
    """Sessions whose folded values have a declared type."""
    revive = reviver(kind)

    def revived(sessions: list[Any]) -> list[Any]:
        return [
            [*session[:2], revive(session[2]), session[3]] if len(session) == MERGED else session
            for session in sessions
        ]

    return KeyedState(revived, declared=True)


class WindowJoin(Step):
    """Emits the pairs of both sides within a window of a key, when it closes; an outer join also what has no
    partner there."""

    def __init__(
        self, window: Tumbling | Calendar, join: Callable[[Any, Any], Any], how: How = "inner"
    ) -> None:
        super().__init__()
        self._window = window
        self._join = join
        self._alone = alone(how)
        self._state = KeyedState()
        self._open = TimeBuckets()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"sides": self._state}

    def loaded(self) -> None:
        self._open = opened(self._state)

    async def push(self, records: Batch, port: int) -> None:
        for value, key, time, _ in records:
            assert time is not None, "a join of windows has only records with a time"
            place = (key, next(self._window.starts(time)))
            is_open = self._window.end(place[1]) > closed_until(time)
            settle(time, taken=is_open)
            if not is_open:
                continue
            sides: Any = self._state.values.get(place)
            if sides is None:
                sides = [[], []]
                self._open.add(place[1], place)
            sides[port].append([float(time), value])
            self._state.put(place, sides)

    async def advance(self, watermark: float) -> None:
        window, pairs = self._window, list[Record]()
        for start, places in self._open.take(lambda start: window.end(start) <= watermark):
            end = window.end(start)
            for place in sorted(places, key=lambda place: repr(place[0])):
                left, right = (sorted(side, key=_start) for side in self._state.values[place])
                self._state.remove(place)
                pairs += [((a, b), place[0], end, 0) for a, b in self._pairs(left, right)]
        await self.emit(await self.each(pairs, self._joined))

    def _pairs(self, left: list[Any], right: list[Any]) -> Iterable[tuple[Any, Any]]:
        if left and right:
            return [(a, b) for _, a in left for _, b in right]
        lefts, rights = self._alone
        return [*((a, None) for _, a in left if lefts), *((None, b) for _, b in right if rights)]

    def _joined(self, record: Record) -> Iterable[Record]:
        (left, right), key, time, at = record
        return ((self._join(left, right), key, time, at),)


class IntervalJoin(Step):
    """Emits the pairs of two records of a key whose times lie near each other, with the second of them.

    A record is taken as long as a partner of it could still come, and kept until none can. An outer join
    emits it then, if none came. The records come in the order in which they were known, so that the pairs do.
    A key of the state is (key, side, time, number); a value is the record's value, and whether it is paired.
    """

    def __init__(self, window: Interval, join: Callable[[Any, Any], Any], how: How = "inner") -> None:
        super().__init__()
        before, after = window.before_seconds, window.after_seconds
        self._join = join
        self._alone = alone(how)
        # From a record's time to those of its partners, by side.
        self._reach = ((-before, after), (-after, before))
        self._taken_for = (window.left_ends_seconds, window.right_ends_seconds)
        self._kept_for = (after + window.right_ends_seconds, before + window.left_ends_seconds)
        self._state = KeyedState()
        self._places: dict[tuple[Any, int], list[tuple[float, int]]] = {}
        self._over: list[tuple[float, float, str, int, int, Any]] = []
        self._came = Known()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"sides": self._state}

    def loaded(self) -> None:
        self._places, self._over = {}, []
        for place in self._state.values:
            self._index(*place)

    async def push(self, records: Batch, port: int) -> None:
        for record in records:
            time = record[2]
            assert time is not None, "an interval has only records with a time"
            is_taken = closed_until(time) <= float(time) + self._taken_for[port]
            settle(time, taken=is_taken)
            if is_taken:
                self._came.add(record, port)

    async def advance(self, watermark: float) -> None:
        made: Batch = []
        for record, port in self._came.take():
            made += await self._expired(known_at(record))
            made += await self.each(self._take(record, port), self._joined)
        made += await self._expired(watermark)
        await self.emit(made)

    def _take(self, record: Record, port: int) -> Batch:
        value, key, time, at = record
        assert time is not None, "an interval has only records with a time"
        moment, known = float(time), known_at(record)
        pairs: Batch = []
        first, last = self._reach[port]
        others = self._places.get((key, 1 - port), [])
        for near in others[bisect_left(others, (moment + first, 0)) :]:
            if near[0] > moment + last:
                break
            place = (key, 1 - port, *near)
            other, is_paired = self._state.values[place]
            if not is_paired:
                self._state.put(place, [other, True])
            pairs.append(((other, value) if port else (value, other), key, known, at))
        alike = self._places.get((key, port), [])
        number = bisect_right(alike, (moment, sys.maxsize)) - bisect_left(alike, (moment, 0))
        self._state.put((key, port, moment, number), [value, bool(pairs)])
        self._index(key, port, moment, number)
        return pairs

    def _index(self, key: Any, port: int, moment: float, number: int) -> None:
        insort(self._places.setdefault((key, port), []), (moment, number))
        heapq.heappush(self._over, (moment + self._kept_for[port], moment, repr(key), port, number, key))

    async def _expired(self, until: float) -> Batch:
        """Forget what no partner can come for any more; return what had none, in order of time."""
        single: Batch = []
        while self._over and self._over[0][0] < until:
            over, moment, _, port, number, key = heapq.heappop(self._over)
            place = (key, port, moment, number)
            value, is_paired = self._state.values[place]
            self._state.remove(place)
            places = self._places[key, port]
            del places[bisect_left(places, (moment, number))]
            if not places:
                del self._places[key, port]
            if not is_paired and self._alone[port]:
                single.append(((None, value) if port else (value, None), key, over, 0))
        return await self.each(single, self._joined)

    def _joined(self, record: Record) -> Iterable[Record]:
        (left, right), key, time, at = record
        return ((self._join(left, right), key, time, at),)


def alone(how: How) -> tuple[bool, bool]:
    """Whether a left and a right record without a partner are emitted."""
    return how in ("left", "outer"), how in ("right", "outer")


def _start(session: list[Any]) -> float:
    return float(session[0])
