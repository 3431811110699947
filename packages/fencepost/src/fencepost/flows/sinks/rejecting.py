"""Values that a sink cannot take, now or ever: what becomes of them is the user's choice, `on_reject=`.

A sink answers rejections. What follows is decided in one place, the committer: `"stop"`, the default, stops
the task with an error that names the value; `DeadLetters(name)` keeps the values in the table of dead
letters, in the transaction that passes them by, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from fencepost.flows.errors import FlowError

T = TypeVar("T")
# What functions of users raise for a value that they cannot convert.
UNFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Keep what a sink rejects under a name; `fencepost flows replay` gives it to the sink again.

    Values are kept as plain data; `value` is the type that each is made again. Behind `key_by` in event time
    nothing can come back: there say `replays=False`, and they are kept and shown only.
    """

    name: str
    value: type[Any] | None = None
    replays: bool = True


OnReject = Literal["stop"] | DeadLetters
STOP: Literal["stop"] = "stop"


class Rejection(NamedTuple):
    """A value that the sink will not take, however often it is asked: why, what was sent, what was
    answered."""

    value: Any
    error: str
    body: bytes | None = None
    answer: str | None = None


Rejections = Sequence[Rejection] | None


class Rejected(FlowError):
    """Raised by a function that makes a row, a body or a message of one value, or by `invoke`: this value
    can never be taken."""

    def __init__(self, error: str, *, body: bytes | None = None, answer: str | None = None) -> None:
        super().__init__(error)
        self.body = body
        self.answer = answer


def rejection(value: Any, error: Exception) -> Rejection:
    """What an exception says of one value."""
    words = str(error) if isinstance(error, Rejected) else f"{type(error).__name__}: {error}"
    return Rejection(value, words, getattr(error, "body", None), getattr(error, "answer", None))


def converted(values: Sequence[Any], convert: Callable[[Any], T]) -> tuple[list[T], list[Rejection]]:
    """Each value converted by a function of the user, and the values that it cannot convert."""
    made: list[T] = []
    rejected: list[Rejection] = []
    for value in values:
        try:
            made.append(convert(value))
        except (Rejected, *UNFIT) as error:
            rejected.append(rejection(value, error))
    return made, rejected


def halves(values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    middle = len(values) // 2
    return values[:middle], values[middle:]
