"""Window steps: they gather records until the watermark has passed the window's end, and emit once."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

from fencepost.flows._record import Behind, Record, WindowResult, closed_until, settle
from fencepost.flows._state import KeyedState, state_of
from fencepost.flows._steps import Batch, Step
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
        self._open: dict[float, list[Any]] = {}

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"window": self._state}

    def loaded(self) -> None:
        self._open = {}
        for place in self._state.values:
            self._open.setdefault(place[1], []).append(place)

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
                opened.setdefault(start, []).append(place)
            dirty.add(place)

    async def advance(self, watermark: float) -> None:
        size = self._window.size_seconds
        closed: Batch = []
        for start in sorted(start for start in self._open if start + size <= watermark):
            for place in self._open.pop(start):
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
                self._open.setdefault(place[1], []).append(place)
            self._state.put(place, state)
        return ()


class SessionFold(Step):
    """Sessions. The state of a key is its open sessions: [start, last, values in order of time].

    A record may join two sessions, and two folded values cannot be combined; so the values are kept until the
    session ends.
    """

    def __init__(
        self, window: Session, initial: Callable[[], Any], function: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__()
        self._gap = window.gap_seconds
        self._initial = initial
        self._function = function
        self._state = KeyedState()
        self._ends: list[tuple[float, str, Any]] = []

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"sessions": self._state}

    def loaded(self) -> None:
        self._ends = [
            (last + self._gap, repr(key), key)
            for key, sessions in self._state.values.items()
            for _, last, _ in sessions
        ]
        heapq.heapify(self._ends)

    async def push(self, records: Batch, port: int) -> None:
        for record in records:
            self._take(record)

    async def advance(self, watermark: float) -> None:
        closed: Batch = []
        while self._ends and self._ends[0][0] <= watermark:
            _, _, key = heapq.heappop(self._ends)
            for session in self._close(key, watermark):
                closed.extend(await self._result(key, *session))
        await self.emit(closed)

    def _take(self, record: Record) -> None:
        value, key, time, _ = record
        assert time is not None, "a session behind event time has only records with a time"
        apart: list[Any] = []
        members: list[Any] = []
        start = last = float(time)
        closed = closed_until(time)
        for session in self._state.values.get(key, ()):
            # A session that is closed for this record may not have been emitted yet: the result must not
            # depend on which records were read together.
            is_open = session[1] + self._gap > closed
            if is_open and session[0] - self._gap < time < session[1] + self._gap:
                start, last = min(start, session[0]), max(last, session[1])
                # In place: with a copy for each record, a long session would take quadratic time.
                session[2].extend(members)
                members = session[2]
            else:
                apart.append(session)
        settle(time, taken=bool(members) or time + self._gap > closed)
        if not members and time + self._gap <= closed:
            return
        members.append([float(time), value])
        self._state.put(key, [*apart, [start, last, members]])
        heapq.heappush(self._ends, (last + self._gap, repr(key), key))

    def _close(self, key: Any, watermark: float) -> list[Any]:
        sessions = self._state.values.get(key, [])
        over = [session for session in sessions if session[1] + self._gap <= watermark]
        if not over:
            return []
        left = [session for session in sessions if session[1] + self._gap > watermark]
        if left:
            self._state.put(key, left)
        else:
            self._state.remove(key)
        return sorted(over, key=_start)

    async def _result(self, key: Any, start: float, last: float, members: list[Any]) -> Batch:
        """None when the fold could process no value."""
        folded, end = self._initial(), last + self._gap

        def fold(record: Record) -> Iterable[Record]:
            nonlocal folded
            folded = self._function(folded, record[0])
            return (record,)

        taken = await self.each([(value, key, end, 0) for _, value in sorted(members, key=_start)], fold)
        return [(WindowResult(key, start, end, folded), key, end, 0)] if taken else []


class WindowJoin(Step):
    """Emits pairs of both sides within a tumbling window of a key, when it closes."""

    def __init__(self, window: Tumbling, join: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._window = window
        self._join = join
        self._state = KeyedState()

    @property
    def states(self) -> dict[str, KeyedState]:
        return {"sides": self._state}

    async def push(self, records: Batch, port: int) -> None:
        for value, key, time, _ in records:
            assert time is not None, "a join of windows has only records with a time"
            place = (key, next(self._window.starts(time)))
            is_open = place[1] + self._window.size_seconds > closed_until(time)
            settle(time, taken=is_open)
            if not is_open:
                continue
            sides = self._state.values.get(place, [[], []])
            sides[port].append([float(time), value])
            self._state.put(place, sides)

    async def advance(self, watermark: float) -> None:
        size = self._window.size_seconds
        pairs: Batch = []
        over = [place for place in self._state.values if place[1] + size <= watermark]
        for place in sorted(over, key=lambda place: (place[1], repr(place[0]))):
            left, right = (sorted(side, key=_start) for side in self._state.values[place])
            self._state.remove(place)
            pairs += [((a, b), place[0], place[1] + size, 0) for _, a in left for _, b in right]
        await self.emit(await self.each(pairs, self._joined))

    def _joined(self, record: Record) -> Iterable[Record]:
        (left, right), key, time, at = record
        return ((self._join(left, right), key, time, at),)


def _start(session: list[Any]) -> float:
    return float(session[0])
