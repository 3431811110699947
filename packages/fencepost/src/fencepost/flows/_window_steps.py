"""Window steps: they gather records until the watermark has passed the window's end, and emit once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import itemgetter
from typing import Any

from fencepost.flows._errors import StateMismatch
from fencepost.flows._record import Behind, Record, WindowResult, closed_until, settle
from fencepost.flows._state import KeyedState, reviver, state_of
from fencepost.flows._steps import Batch, Step
from fencepost.flows._time_index import Deadlines, TimeBuckets
from fencepost.flows._windows import Session, Sliding, Tumbling

_TIME = itemgetter(2)


class WindowFold(Step):
    """Tumbling and sliding windows. A key of the state is (key, start)."""

    def __init__(
        self,
        window: Tumbling | Sliding,
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
            self._push_tumbling(records, self._window.size_seconds)
        else:
            await self.each(records, self._take)

    def _push_tumbling(self, records: Batch, size: float) -> None:
        values, f, opened = self._state.values, self._function, self._open
        dirty = self._state.dirty
        for value, key, time, _ in records:
            moment: Any = time
            start: float = moment - moment % size
            place = (key, start)
            if place in values:
                values[place] = f(values[place], value)
            else:
                values[place] = f(self._initial(), value)
                opened.add(start, place)
            dirty.add(place)

    async def advance(self, watermark: float) -> None:
        size = self._window.size_seconds
        closed: Batch = []
        for start, places in self._open.take(lambda start: start + size <= watermark):
            for place in places:
                value = self._state.values[place]
                self._state.remove(place)
                closed.append((WindowResult(place[0], start, start + size, value), place[0], start + size, 0))
        await self.emit(closed)

    def _take(self, record: Record) -> Iterable[Record]:
        value, key, time, _ = record
        assert time is not None, "a window behind event time has only records with a time"
        folded = [
            ((key, start), self._function(self._state.values.get((key, start), self._initial()), value))
            for start in self._window.starts(time)
            if start + self._window.size_seconds > closed_until(time)
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
    """Emits pairs of both sides within a tumbling window of a key, when it closes."""

    def __init__(self, window: Tumbling, join: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._window = window
        self._join = join
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
            is_open = place[1] + self._window.size_seconds > closed_until(time)
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
        size = self._window.size_seconds
        pairs: Batch = []
        for start, places in self._open.take(lambda start: start + size <= watermark):
            for place in sorted(places, key=lambda place: repr(place[0])):
                left, right = (sorted(side, key=_start) for side in self._state.values[place])
                self._state.remove(place)
                pairs += [((a, b), place[0], start + size, 0) for _, a in left for _, b in right]
        await self.emit(await self.each(pairs, self._joined))

    def _joined(self, record: Record) -> Iterable[Record]:
        (left, right), key, time, at = record
        return ((self._join(left, right), key, time, at),)


def _start(session: list[Any]) -> float:
    return float(session[0])
