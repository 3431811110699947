"""The merge of source partitions in a defined order: by the time at which records were known, then partition,
then place in it. A record that came behind the watermark of its partition was known at that watermark.

Records wait until the watermark of every partition has passed them; then their order is the same in every
run, whichever partition was faster. Waiting records are part of the task's state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fencepost.flows._record import known_at
from fencepost.flows._state import as_key
from fencepost.flows._steps import Batch
from fencepost.flows._value_codec import stored

Waiting = tuple[float, str, int, int, Any]
"""Time at which it was known, sender, place among the sender's records, input, and the record."""


class TimeMerge:
    """Holds records back until every watermark has passed them. `waiting` is plain data except the records'
    keys."""

    def __init__(self) -> None:
        self._stored: list[Waiting] = []
        self._fresh: list[Waiting] = []
        """Those that came since the last commit."""
        self._places: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._stored) + len(self._fresh)

    def add(self, sender: str, input_number: int, records: Batch) -> None:
        place = self._places.get(sender, 0)
        for number, record in enumerate(records, place):
            self._fresh.append((known_at(record), sender, number, input_number, record))
        self._places[sender] = place + len(records)

    def release(self, watermark: float) -> list[tuple[int, Batch]]:
        """The records that all partitions have passed, in order, as runs for one input each."""
        ready: list[Waiting] = []
        for waiting in (self._stored, self._fresh):
            before = len(ready)
            ready += [w for w in waiting if w[0] < watermark]
            if len(ready) > before:
                waiting[:] = [w for w in waiting if w[0] >= watermark]
        ready.sort(key=lambda w: w[:4])
        runs: list[tuple[int, Batch]] = []
        for _, _, _, input_number, record in ready:
            if not runs or runs[-1][0] != input_number:
                runs.append((input_number, []))
            runs[-1][1].append(record)
        return runs

    def clean(self) -> None:
        """What waits is stored."""
        self._stored += self._fresh
        self._fresh = []

    def dump(self, declared: Sequence[bool], *, whole: bool = True) -> list[Any]:
        """The waiting records, ready for MessagePack: all, or marked as such those that came since the last
        commit. Records from an input with a declared type are plain data."""
        waiting = [*self._stored, *self._fresh] if whole else self._fresh
        return [
            self._places,
            [
                [
                    time,
                    sender,
                    place,
                    input_number,
                    [stored(value, plain=declared[input_number]), stored(key), stored(moment), at],
                ]
                for time, sender, place, input_number, (value, key, moment, at) in waiting
            ],
            *(() if whole else (True,)),
        ]

    def load(
        self,
        dumped: list[Any],
        revive: Sequence[Callable[[Any], Any]],
        numbers: Mapping[int, int],
        released: float = float("-inf"),
    ) -> None:
        """`numbers` maps the stored input numbers to the current ones; inputs not in it are gone. `released`
        is the watermark that was reached since what was loaded before."""
        self._places = dict(dumped[0])
        is_change = len(dumped) > 2
        self._stored = [w for w in self._stored if w[0] >= released] if is_change else []
        self._stored += [
            (
                time,
                sender,
                place,
                numbers[input_number],
                (revive[numbers[input_number]](value), as_key(key), moment, at),
            )
            for time, sender, place, input_number, (value, key, moment, at) in dumped[1]
            if input_number in numbers
        ]
