"""Windows by their definition, record by record, without a line of the code under test.

A record belongs to windows. It is late when every one of them was closed already when it came. A window
is closed
when the watermark of the record's partition (the highest time before it, less the allowed lateness) has
reached
its end. A session is the records of a key of which each follows another within the gap; its end is the
gap behind
its last one.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Event = tuple[str, int, int]
"""Key, time, number."""


@dataclass
class Answer:
    windows: dict[tuple[str, float, float], list[int]] = field(default_factory=dict[Any, Any])
    late: list[int] = field(default_factory=list[int])

    @property
    def told(self) -> list[Any]:
        return sorted((*place, sorted(numbers)) for place, numbers in self.windows.items())


def watermarks(events: Iterable[Event], lateness: float) -> list[float]:
    """Before each record: what was known when it came."""
    highest, found = float("-inf"), list[float]()
    for _, time, _ in events:
        found.append(highest - lateness)
        highest = max(highest, time)
    return found


def of_fixed(events: list[Event], lateness: float, size: int, step: int) -> Answer:
    """Tumbling with step = size, sliding with a smaller one."""
    answer = Answer()
    every = range(-size, max((time for _, time, _ in events), default=0) + 1)
    for (key, time, number), watermark in zip(events, watermarks(events, lateness), strict=True):
        mine = [start for start in every if start % step == 0 and start <= time < start + size]
        still_open = [start for start in mine if not start + size <= watermark]
        if not still_open:
            answer.late.append(number)
        for start in still_open:
            answer.windows.setdefault((key, start, start + size), []).append(number)
    return answer


def of_sessions(events: list[Event], lateness: float, gap: int) -> Answer:
    answer = Answer()
    going: dict[str, list[list[Event]]] = {}
    for event, watermark in zip(events, watermarks(events, lateness), strict=True):
        key, time, number = event
        for session in list(going.get(key, [])):
            if max(each[1] for each in session) + gap <= watermark:
                going[key].remove(session)
                _tell(answer, session, gap)
        near = [s for s in going.get(key, []) if any(abs(each[1] - time) < gap for each in s)]
        if not near and time + gap <= watermark:
            answer.late.append(number)
            continue
        rest = [s for s in going.get(key, []) if s not in near]
        going[key] = [*rest, [event, *(each for s in near for each in s)]]
    for sessions in going.values():
        for session in sessions:
            _tell(answer, session, gap)
    return answer


def _tell(answer: Answer, session: list[Event], gap: int) -> None:
    first, last = min(each[1] for each in session), max(each[1] for each in session)
    # Two sessions of a key may begin and end alike only if one of them was told before.
    answer.windows.setdefault((session[0][0], first, last + gap), []).extend(each[2] for each in session)


def of_join(
    left: list[Event], right: list[Event], lateness: float, size: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """The pairs of one key and window, and which records came too late for theirs."""
    one, other = of_fixed(left, lateness, size, size), of_fixed(right, lateness, size, size)
    pairs = [
        (a, b)
        for place, numbers in one.windows.items()
        for a in numbers
        for b in other.windows.get(place, [])
    ]
    return sorted(pairs), sorted([*one.late, *other.late])


Reference = Callable[[list[Event], float], Answer]
