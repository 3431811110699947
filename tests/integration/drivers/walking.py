"""How a walk goes: what it asks with, and the arguments that drivers like to get wrong."""

import uuid
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from fencepost import Call

T = TypeVar("T")

AWKWARD = "naïve 100 %s %(x)s \\u0000 $1 :x \"quoted\", {braced}, \\back\\slash, 'single', NULL, 日本"
DOCUMENT: dict[str, Any] = {"text": AWKWARD, "list": [1, -2.5, None, True, {"deep": []}], "big": 2**53}
AT_ONCE = 1e-6
"""Seconds: over when the next statement looks at the clock."""
LONG_AGO = datetime(2001, 2, 3, 4, 5, 6, 789_012, tzinfo=UTC)
NOBODY = 10**12
"""An id that nothing has."""


class Ask(Protocol):
    """Makes a call in the present transaction."""

    def __call__(self, call: Call[T], /) -> T: ...


class Recorder:
    """Makes calls and keeps them."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.calls: list[Call[Any]] = []

    def __call__(self, call: Call[T], /) -> T:
        self.calls.append(call)
        return self._ask(call)


def is_moment(value: object) -> bool:
    """Whether it is a point in time that says its zone."""
    return isinstance(value, datetime) and value.utcoffset() is not None


def time_ordered_key() -> str:
    """A UUIDv7 of this moment."""
    millis = int(datetime.now(UTC).timestamp() * 1000)
    return str(uuid.UUID(int=(millis << 80) | (7 << 76) | (2 << 62) | uuid.uuid4().int & (2**62 - 1)))
