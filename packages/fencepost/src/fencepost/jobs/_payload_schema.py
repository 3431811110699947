"""The schema of a handler's arguments: validates payloads on submit and on run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Json

Key = str | Callable[..., object]
"""Makes a key from a job's arguments: a template, `"user:{user_id}"`, or a function of the arguments it
names."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A function's parameters after the job, as a model. Strict about names, as a call is."""

    kind: str
    signature: inspect.Signature
    model: type[BaseModel]

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, defaults included."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise InvalidInput(f"{self.kind}: {error}.", field="payload") from None
        bound.apply_defaults()
        return dict(bound.arguments)

    def payload(self, arguments: Mapping[str, Any]) -> Json:
        """The arguments as a JSON document."""
        try:
            return self.model(**arguments).model_dump(mode="json")
        except ValidationError as error:
            raise self._problem(error) from error

    def parse(self, payload: Json) -> dict[str, Any]:
        """The arguments of a payload. Raises InvalidInput when it does not fit the function."""
        if payload == {} and not self.signature.parameters:
            return {}
        try:
            model = self.model.model_validate(payload)
        except ValidationError as error:
            raise self._problem(error) from error
        return {name: getattr(model, name) for name in self.signature.parameters}

    def check_key(self, what: str, key: Key | None) -> None:
        """Rejects a key that names a missing argument, when the handler is declared."""
        named = frozenset[str]() if key is None else _named_by(key)
        unknown = named - set(self.signature.parameters)
        if unknown:
            raise InvalidInput(
                f"{self.kind}: {what} asks for {', '.join(sorted(unknown))}; the arguments are "
                f"{', '.join(self.signature.parameters) or 'none'}.",
                field=what,
            )

    def _problem(self, error: ValidationError) -> InvalidInput:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"])) or "payload"
        return InvalidInput(f"{self.kind}: {place}: {detail['msg']}", field=place)


@dataclass(frozen=True, slots=True)
class ChunkSchema(PayloadSchema):
    """The schema of a chunk handler's jobs: the fields of a class. A job is submitted as one of its objects,
    or by its fields."""

    row: type[Any]

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and not kwargs and isinstance(args[0], self.row):
            return {name: getattr(args[0], name) for name in self.signature.parameters}
        return PayloadSchema.arguments(self, args, kwargs)


@lru_cache(maxsize=1024)
def chunk_shape_of(function: Callable[..., Any], kind: str) -> ChunkSchema:
    """The schema of `T`, for a function whose one parameter is a `Chunk[T]`."""
    parameters = list(inspect.signature(function).parameters)
    hint = get_type_hints(function, include_extras=True).get(parameters[0]) if parameters else None
    rows = get_args(hint)
    if len(parameters) != 1 or len(rows) != 1 or not isinstance(rows[0], type):
        raise InvalidInput(
            f"{kind}: a chunk handler has one parameter, Chunk[T], where T is a dataclass, a named tuple or "
            "a pydantic model with a field for each argument of a job.",
            field="chunk",
        )
    row: type[Any] = rows[0]
    shape = _shape(kind, inspect.signature(row), get_type_hints(row, include_extras=True))
    return ChunkSchema(kind, shape.signature, shape.model, row)


@lru_cache(maxsize=1024)
def shape_of(function: Callable[..., Any], kind: str) -> PayloadSchema:
    """Built once for each function: building a model costs a thousand times what using it costs."""
    whole = inspect.signature(function)
    signature = whole.replace(parameters=list(whole.parameters.values())[1:])
    return _shape(kind, signature, get_type_hints(function, include_extras=True))


def _shape(kind: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> PayloadSchema:
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(f"{kind}: *{name} cannot be a payload; name each argument.", field=name)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    return PayloadSchema(kind, signature, create_model(kind, __config__=config, **fields))


def key_of(key: Key, arguments: Mapping[str, Any]) -> str:
    """The key of a job with these arguments."""
    named = {name: arguments[name] for name in _named_by(key)}
    return key.format_map(named) if isinstance(key, str) else str(key(**named))


@lru_cache(maxsize=1024)
def _named_by(key: Key) -> frozenset[str]:
    """The arguments that a key is made from."""
    if isinstance(key, str):
        return frozenset(re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(key) if name)
    return frozenset(inspect.signature(key).parameters)
