"""Values that a sink can never take: the user chooses what happens to them with `on_reject=`.

A sink returns rejections. The committer alone decides what follows: `"stop"`, the default, stops the task
with an error that names the value; `DeadLetters(name)` stores the values in the table of dead letters, in the
transaction that skips them, and continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from fencepost.flows._errors import FlowError

T = TypeVar("T")
# What user functions raise for a value that they cannot convert.
UNFIT = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """Store what a sink rejects under a name; `fencepost flows replay` gives it to the sink again.

    Values are stored as plain data; `value` is the type that each is converted to for the replay. After
    `key_by` in event time nothing can be replayed: pass `replays=False` there, and values are only stored and
    shown.
    """

    name: str
    value: type[Any] | None = None
    replays: bool = True


OnReject = Literal["stop"] | DeadLetters
STOP: Literal["stop"] = "stop"


class Rejection(NamedTuple):
    """A value that the sink will never take: why, what was sent, and what the response was."""

    value: Any
    error: str
    body: bytes | None = None
    answer: str | None = None


Rejections = Sequence[Rejection] | None


class Rejected(FlowError):
    """Raised by a function that converts one value to a row, a body or a message, or by `invoke`: this
    value can never be taken."""

    def __init__(self, error: str, *, body: bytes | None = None, answer: str | None = None) -> None:
        super().__init__(error)
        self.body = body
        self.answer = answer


def rejection(value: Any, error: Exception) -> Rejection:
    """Make a rejection of one value from an exception."""
    words = str(error) if isinstance(error, Rejected) else f"{type(error).__name__}: {error}"
    return Rejection(value, words, getattr(error, "body", None), getattr(error, "answer", None))


def converted(values: Sequence[Any], convert: Callable[[Any], T]) -> tuple[list[T], list[Rejection]]:
    """Convert each value with a user function; return the results and the rejections of values that it
    cannot convert."""
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
