"""One call of a hot function on the rows of population*.sql, and the ids that such calls take.

The ids lie in the middle of the table and beside each other, as those of one batch do.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

BATCH = 100

Arguments = tuple[Any, ...]
Statement = tuple[LiteralString, Arguments]


def nothing(_: int) -> list[Statement]:
    return []


@dataclass(frozen=True)
class HotCall:
    """One call. `arguments`, and what the transaction did `before`, are made for a size of the tables."""

    name: str
    sql: LiteralString
    arguments: Callable[[int], Arguments]
    before: Callable[[int], Sequence[Statement]] = nothing

    def __str__(self) -> str:
        return self.name


def plain(*arguments: Any) -> Callable[[int], Arguments]:
    return lambda _: arguments


def ids_from(first: int, digits: str) -> list[int]:
    """A batch of ids from `first` on that end in one of these digits."""
    wanted = [identity for identity in range(first, first + 20 * BATCH) if str(identity)[-1] in digits]
    return wanted[:BATCH]


def pending(size: int) -> list[int]:
    return ids_from(size // 2, "1359")[: min(BATCH, size // 8)]


def dispatched(size: int) -> list[int]:
    return ids_from(size // 2, "2468")[: min(BATCH, size // 8)]


def running(size: int) -> list[int]:
    return ids_from(size + size // 2, "123456789")


def sending(size: int) -> list[int]:
    return list(range(size // 20 * 10 + 8, size // 20 * 10 + 408, 10))


def time_ordered_key(number: int) -> str:
    """A UUIDv7 of this hour."""
    hour = int(time.time()) // 3600 * 3600
    millis = f"{hour * 1000:012x}"
    return f"{millis[:8]}-{millis[8:]}-7000-8000-{number:012x}"


def ones(ids: Sequence[int]) -> list[int]:
    return [1] * len(ids)


def batch_of_running(size: int) -> Arguments:
    return running(size), ones(running(size)), "owner"


def one_running(size: int) -> Arguments:
    return (running(size)[0],)


def one_dead(size: int) -> Arguments:
    return (2 * size + 50,)
