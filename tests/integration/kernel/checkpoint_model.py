"""What checkpoints promise, in Python: one resource, its token, and what has become of each number."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

DURABLE = ("stored", "committed")


class Refusal(Exception):
    """The reason why a call is refused; `invalid` for an argument that cannot be right."""


@dataclass
class Checkpoint:
    """One line of the view."""

    token: int
    handles: Any
    begun_at: datetime
    status: str = "begun"
    whole: bool = True
    frontier: Any = None
    state: bytes | None = None
    stored_at: datetime | None = None
    committed_at: datetime | None = None


@dataclass
class Resource:
    """A lease and its checkpoints."""

    token: int = 1
    known: dict[int, Checkpoint] = field(default_factory=dict[int, Checkpoint])

    def _fence(self, token: int) -> None:
        if token != self.token:
            raise Refusal("not_owner")

    def _durable(self) -> list[int]:
        return sorted(number for number, one in self.known.items() if one.status in DURABLE)

    def _whole_below(self, bound: int) -> int | None:
        return max((n for n in self._durable() if self.known[n].whole and n <= bound), default=None)

    def begin(self, now: datetime, token: int, handles: Any) -> int:
        self._fence(token)
        number = max(self.known, default=0) + 1
        self.known[number] = Checkpoint(token, handles, now)
        return number

    def store(
        self,
        now: datetime,
        token: int,
        number: int,
        expected: Any,
        frontier: Any,
        state: bytes,
        *,
        whole: bool,
    ) -> None:
        self._fence(token)
        mine = self.known.get(number)
        if mine is None:
            raise Refusal("not_found")
        if mine.status != "begun":
            raise Refusal("already_finished")
        if mine.token != token:
            raise Refusal("not_owner")
        newest = max(self._durable(), default=None)
        there = None if newest is None else self.known[newest].frontier
        if there != expected or (newest is not None and newest > number):
            raise Refusal("mismatch")
        if newest is None and not whole:
            raise Refusal("invalid")
        mine.status, mine.whole, mine.frontier, mine.state, mine.stored_at = (
            "stored",
            whole,
            frontier,
            state,
            now,
        )
        mine.handles = [frontier]

    def commit(self, now: datetime, token: int, number: int) -> None:
        self._fence(token)
        mine = self.known.get(number)
        if mine is None:
            raise Refusal("not_found")
        if mine.status not in DURABLE:
            raise Refusal("mismatch")
        mine.status, mine.committed_at = "committed", mine.committed_at or now

    def abort(self, token: int, number: int) -> None:
        self._fence(token)
        mine = self.known.get(number)
        if mine is None:
            raise Refusal("not_found")
        if mine.status in DURABLE:
            raise Refusal("already_finished")
        mine.status = "aborted"

    def restore(self, token: int) -> list[tuple[int, str, Any, bytes | None]]:
        self._fence(token)
        durable = self._durable()
        whole = self._whole_below(durable[-1]) if durable else None
        needed = [number for number in durable if whole is not None and number >= whole]
        begun = sorted(number for number, one in self.known.items() if one.status == "begun")
        return [
            (number, self.known[number].status, self.known[number].frontier, self.known[number].state)
            for number in [*needed, *begun]
        ]

    def prune(self, token: int, keep: int) -> int:
        self._fence(token)
        durable = self._durable()
        floor = self._whole_below(durable[-keep:][0]) if durable else None
        gone = [
            n for n, one in self.known.items() if floor is not None and n < floor and one.status != "begun"
        ]
        for number in gone:
            del self.known[number]
        return len(gone)
