"""How the arguments and the result of a step become JSON, and the result a value again. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, get_type_hints
from uuid import UUID

from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Json
from fencepost.kernel.idempotency import digest


@dataclass(frozen=True, slots=True)
class Codec:
    """The type of a value. Without one, the value is what JSON makes of it."""

    what: str
    adapter: TypeAdapter[Any] | None

    def encode(self, value: Any) -> Json:
        if value is None:
            return None
        try:
            if self.adapter is None:
                return to_jsonable_python(value)
            return self.adapter.dump_python(value, mode="json")
        except (PydanticSerializationError, ValueError) as error:
            raise InvalidInput(f"{self.what} cannot be stored as JSON: {error}", field="result") from error

    def decode(self, value: Json) -> Any:
        if self.adapter is None:
            return value
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidInput(
                f"{self.what} that was stored does not fit its type any more: {error}", field="result"
            ) from error


def codec_for(what: str, kind: Any) -> Codec:
    """The codec of a type; of every JSON value for Any."""
    if kind is Any:
        return Codec(what, None)
    try:
        return Codec(what, TypeAdapter(kind))
    except PydanticSchemaGenerationError as error:
        raise InvalidInput(
            f"{what} has a type that cannot be stored as JSON: {error}", field="result"
        ) from error


@lru_cache(maxsize=1024)
def codec_of(function: Callable[..., Any]) -> Codec:
    """The codec of a function's result, by its annotation. Made once: making it costs as much as a thousand
    uses."""
    what = f"the result of {getattr(function, '__qualname__', function)}"
    try:
        hints = get_type_hints(getattr(function, "__func__", function), include_extras=True)
    except NameError as error:
        raise InvalidInput(
            f"{what} has a type that is not known outside its function ({error}). Define it at the top of "
            "its module.",
            field="result",
        ) from error
    except TypeError:
        hints = {}
    kind = hints.get("return", Any)
    return codec_for(what, None if kind is type(None) else kind)


def step_name(function: Callable[..., Any]) -> str:
    """The name of a step that was given no other: the function's."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str) or name == "<lambda>":
        raise InvalidInput(
            "A step of a lambda or a callable object has no name: give it one with `wf.options(name=...)`.",
            field="name",
        )
    return name


def arguments_digest(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """A digest of a step's arguments: the same step with other arguments is another step."""
    if not args and not kwargs:
        return _NOTHING
    try:
        return digest("step", to_jsonable_python([list(args), dict(kwargs)]))
    except (PydanticSerializationError, ValueError) as error:
        raise InvalidInput(
            f"An argument of a step is no JSON value, so a later attempt could not compare it: {error}",
            field="arguments",
        ) from error


_NOTHING = digest("step", [[], {}])
TIME = codec_for("the time", datetime)
NUMBER = codec_for("the random number", float)
IDENTIFIER = codec_for("the UUID", UUID)
ANYTHING = codec_for("the result", Any)
