"""One call of a kernel function, as a value.

A call defines what to send and how to read the result, without I/O; the drivers send it. So one description
serves psycopg, asyncpg, SQLAlchemy and Django, in sync and in async code.
"""

from __future__ import annotations

import json
import json.encoder
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, LiteralString, Protocol, TypeVar, cast

import msgspec

from fencepost.errors import InvalidInput

T = TypeVar("T")
Row = Sequence[Any]
Json = Any
"""A JSON document as Python values that json.dumps accepts."""


def _refuse_type(value: object) -> str:
    raise TypeError(f"{type(value).__name__} is not a type of JSON")


def _make_encoder() -> Callable[[object], str]:
    """The encoder that json.dumps uses, without its overhead: a third of the time for small documents."""
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode
    settings = (_refuse_type, json.encoder.encode_basestring, None, ":", ",", False, False, False)
    # The first argument holds the containers being encoded, to detect a circular document: one per call.
    return lambda value: "".join(make({}, *settings)(value, 0))


_encode = _make_encoder()
_decode = msgspec.json.Decoder().decode


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A statement that calls one function, its arguments, and how to read the rows it returns.

    JSON travels as text in both directions, because drivers disagree about what they decode.
    """

    sql: LiteralString
    arguments: tuple[Any, ...]
    read: Callable[[Sequence[Row]], T]

    @property
    def function(self) -> str:
        """The function's name, for metrics and logs."""
        _, _, rest = self.sql.partition("fencepost.")
        return rest.partition("(")[0].partition(" ")[0]


class CallRunner(Protocol):
    """Makes a call: in a transaction of its own, or in the one that it stands for."""

    async def run(self, call: Call[T]) -> T:
        """Send the call and return its result. Raises a `Refusal` if the database refused it."""
        ...


class SyncCallRunner(Protocol):
    """`CallRunner` without an event loop."""

    def run(self, call: Call[T]) -> T:
        """Send the call and return its result. Raises a `Refusal` if the database refused it."""
        ...


def nothing(rows: Sequence[Row]) -> None:
    """Read the result of a function that returns void."""


def scalar(rows: Sequence[Row]) -> Any:
    """Read the result of a function that returns one value."""
    return rows[0][0]


def column(rows: Sequence[Row]) -> list[Any]:
    """Read the result of a function that returns a set of values."""
    return [row[0] for row in rows]


def each(make: Callable[..., T]) -> Callable[[Sequence[Row]], list[T]]:
    """Read every row into a value; a named tuple is made from the row directly."""
    of_row: Callable[[Row], T] = getattr(make, "_make", lambda row: make(*row))
    return lambda rows: [of_row(row) for row in rows]


def one(make: Callable[..., T]) -> Callable[[Sequence[Row]], T]:
    """Read the only row into a value."""
    return lambda rows: make(*rows[0])


def text(field: str, value: str) -> str:
    """A text argument. PostgreSQL cannot store a NUL; the check here names the field."""
    if "\0" in value:
        raise InvalidInput(f"{field} contains a NUL character, which PostgreSQL cannot store.", field=field)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{field} is not valid Unicode: {error.reason}.", field=field) from None
    return value


def optional_text(field: str, value: str | None) -> str | None:
    """`text`, for an argument that may be None."""
    return None if value is None else text(field, value)


def document(field: str, value: Json) -> str:
    """A JSON argument as text. NaN and infinities are not JSON; a NUL cannot be stored."""
    try:
        # Many jobs have no arguments, and the encoder takes as long for an empty document as for a small one.
        encoded = "{}" if value == {} else _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        # Without an end to the document, nothing in it is to be found.
        endless = isinstance(error, RecursionError) or "Circular" in str(error)
        found = None if endless else unstorable(value)
        place, what = (field, str(error)) if found is None else (joined(field, found[0]), found[1])
        why = what if found is None else f"{place} is {what}"
        raise InvalidInput(f"{field} is no JSON document: {why}.", field=place) from None
    # Escaped backslashes are ignored: a text may contain the characters \u0000, as a program's source does.
    if "\\u0000" in encoded and "\\u0000" in encoded.replace("\\\\", ""):
        raise InvalidInput(f"{field} contains a NUL character, which PostgreSQL cannot store.", field=field)
    return text(field, encoded)


def unstorable(value: object, place: str = "") -> tuple[str, str] | None:
    """Where a value has a part that JSON cannot hold, and what that is: `("lines[2].price", "nan")`."""
    if value is None or isinstance(value, str | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else (place, str(value))
    if isinstance(value, dict):
        parts = cast("dict[object, object]", value)
        wrong = next((key for key in parts if not isinstance(key, str)), None)
        if wrong is not None:
            return place, f"a mapping with the key {wrong!r}"
        inside = ((joined(place, str(key)), part) for key, part in parts.items())
    elif isinstance(value, list | tuple):
        inside = ((f"{place}[{i}]", part) for i, part in enumerate(cast("Sequence[object]", value)))
    else:
        return place, f"of the type {type(value).__name__}"
    return next((found for at, part in inside if (found := unstorable(part, at)) is not None), None)


def joined(place: str, name: str) -> str:
    """The name of a nested field: `place.name`, or `place[0]` for an index."""
    return f"{place}{'' if name.startswith('[') or not (place and name) else '.'}{name}"


def optional_document(field: str, value: Json | None) -> str | None:
    """`document`, for an argument that may be None."""
    return None if value is None else document(field, value)


def parsed(value: str | None) -> Json:
    """A JSON column that was read as text."""
    return None if value is None else _decode(value)


def duration(field: str, seconds: float) -> timedelta:
    """Seconds as an interval. Raises InvalidInput unless they are finite and fit."""
    if not math.isfinite(seconds):
        raise InvalidInput(f"{field} is {seconds}; it must be a finite number of seconds.", field=field)
    try:
        return timedelta(seconds=seconds)
    except OverflowError:
        raise InvalidInput(f"{field} is {seconds} seconds, which is too long.", field=field) from None


def optional_duration(field: str, seconds: float | None) -> timedelta | None:
    """`duration`, for an argument that may be None."""
    return None if seconds is None else duration(field, seconds)
