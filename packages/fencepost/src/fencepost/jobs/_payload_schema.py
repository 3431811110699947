"""The schema of a handler's arguments: validates payloads on submit and on run."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from functools import lru_cache
from string import Formatter
from typing import Any, cast, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fencepost.errors import InvalidInput
from fencepost.kernel.call import Json

Key = str | Callable[..., object]
"""Makes a key from a job's arguments: a template, `"user:{user_id}"`, or a function of the arguments it
names."""


JOB_TYPES = ("Job", "Workflow", "SyncWorkflow")


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A function's parameters after the job, as a model. Strict about names, as a call is."""

    kind: str
    signature: inspect.Signature
    model: type[BaseModel]

    @property
    def names(self) -> Iterable[str]:
        """The names of the arguments."""
        return self.signature.parameters

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, without defaults."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise self._misfit(kwargs, error) from None
        return dict(bound.arguments)

    def with_defaults(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments that the function would see."""
        return {
            name: given.get(name, parameter.default) for name, parameter in self.signature.parameters.items()
        }

    def payload(self, given: Mapping[str, Any]) -> Json:
        """The arguments that were given as a JSON document. A default that is not in it needs no worker that
        knows the argument, and may change with a release."""
        try:
            model = self.model(**given)
        except ValidationError as error:
            raise self._problem(error) from error
        return self._dumped(model, given)

    def argument(self, name: str, value: Any) -> Json:
        """One argument as JSON, for a call whose other arguments are not known yet."""
        model = self.model.model_construct()
        try:
            self.model.__pydantic_validator__.validate_assignment(model, name, value)
        except ValidationError as error:
            raise self._problem(error) from error
        return self._dumped(model, (name,))[name]

    def _dumped(self, model: BaseModel, names: Iterable[str]) -> Json:
        # Pydantic would make texts of bytes, and null of NaN: the handler would get something else.
        wrong = next((w for name in names if (w := _lossy(getattr(model, name), name)) is not None), None)
        if wrong is None:
            try:
                payload = model.model_dump(mode="json", include=set(names))
            except PydanticSerializationError as error:
                wrong = next((w for name in names if (w := _object(getattr(model, name), name))), None)
                if wrong is None:
                    raise InvalidInput(f"{self.kind}: {error}", field="payload") from error
            else:
                return payload
        place, what = wrong
        raise InvalidInput(
            f"{self.kind}: {place} is {what}, which JSON cannot hold; submit a number, a text, or a type "
            "that pydantic writes as JSON.",
            field=place,
        )

    def parse(self, payload: Json, *, ignore_unknown: bool = False) -> dict[str, Any]:
        """The arguments of a payload. Raises InvalidInput when it does not fit the function."""
        if payload == {} and not self.signature.parameters:
            return {}
        if ignore_unknown and isinstance(payload, dict):
            known = cast("dict[str, Json]", payload)
            payload = {name: value for name, value in known.items() if name in self.signature.parameters}
        try:
            model = self.model.model_validate(payload)
        except ValidationError as error:
            raise self._problem(error) from error
        return {name: getattr(model, name) for name in self.signature.parameters}

    def check_key(self, what: str, key: Key | None) -> None:
        """Rejects a key that names a missing argument, when the handler is declared."""
        self.check_names(what, () if key is None else _named_by(key))

    def check_names(self, what: str, named: Iterable[str]) -> None:
        """Rejects an option that names a missing argument."""
        unknown = set(named) - set(self.signature.parameters)
        if unknown:
            raise InvalidInput(
                f"{self.kind}: {what} asks for {', '.join(sorted(unknown))}; the arguments are "
                f"{', '.join(self.signature.parameters) or 'none'}.",
                field=what,
            )

    def _misfit(self, kwargs: Mapping[str, Any], error: TypeError) -> InvalidInput:
        """Why the function cannot be called so, with the argument's name."""
        known = ", ".join(self.signature.parameters) or "none"
        unknown = next((name for name in kwargs if name not in self.signature.parameters), None)
        if unknown is not None:
            return InvalidInput(
                f"{self.kind} has no argument {unknown}; its arguments are {known}.", field=unknown
            )
        missing = re.search(r"missing a required argument: '(\w+)'", str(error))
        if missing is not None:
            return InvalidInput(
                f"{self.kind} needs the argument {missing[1]}; its arguments are {known}.", field=missing[1]
            )
        return InvalidInput(f"{self.kind}: {error}; its arguments are {known}.", field="payload")

    def _problem(self, error: ValidationError) -> InvalidInput:
        detail = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, detail["loc"])) or "payload"
        return InvalidInput(f"{self.kind}: {place}: {detail['msg']}", field=place)


@dataclass(frozen=True, slots=True)
class ChunkSchema(PayloadSchema):
    """The schema of a chunk handler's jobs: the fields of a class. A job is submitted as one of its objects,
    or by its fields."""

    row: type[Any]

    def given(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) == 1 and not kwargs and isinstance(args[0], self.row):
            return {name: getattr(args[0], name) for name in self.signature.parameters}
        return PayloadSchema.given(self, args, kwargs)


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
    hints = get_type_hints(function, include_extras=True)
    _check_job(kind, next(iter(whole.parameters.values()), None), hints)
    return _shape(kind, whole.replace(parameters=list(whole.parameters.values())[1:]), hints)


def _shape(kind: str, signature: inspect.Signature, hints: Mapping[str, Any]) -> PayloadSchema:
    fields: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(f"{kind}: *{name} cannot be a payload; name each argument.", field=name)
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    try:
        model = create_model(kind, __config__=config, **fields)
    except PydanticSchemaGenerationError as error:
        raise InvalidInput(
            f"{kind}: an argument has a type that is no JSON: {str(error).partition('.')[0]}.",
            field="payload",
        ) from None
    return PayloadSchema(kind, signature, model)


def _check_job(kind: str, first: inspect.Parameter | None, hints: Mapping[str, Any]) -> None:
    """A handler takes its job first: one that does not would find it in the place of an argument."""
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        hint = hints.get(first.name)
        if hint is None:
            takes_job = first.name == "job" or first.name.startswith("_")
        else:
            # By name: the classes stand above this module.
            named = {base.__name__ for base in getattr(hint, "__mro__", ())}
            takes_job = hint in (Any, object) or not named.isdisjoint(JOB_TYPES)
        if takes_job:
            return
    raise InvalidInput(
        f"{kind} takes no Job: its first parameter is {first or 'missing'}. Write "
        f"`def {kind}(job: Job, ...)`.",
        field="job",
    )


def _lossy(value: object, place: str) -> tuple[str, str] | None:
    """The first part that would become something else on its way: NaN, infinities and bytes."""
    if value is None or isinstance(value, str | int):
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else (place, str(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return place, "bytes"
    return next((w for at, part in _parts(value, place) if (w := _lossy(part, at)) is not None), None)


def _object(value: object, place: str) -> tuple[str, str] | None:
    """The first part that has no JSON form."""
    try:
        to_jsonable_python(value)
    except PydanticSerializationError:
        inner = next((w for at, part in _parts(value, place) if (w := _object(part, at)) is not None), None)
        return inner or (place, f"a {type(value).__name__}")
    return None


def _parts(value: object, place: str) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for key, part in cast("Mapping[object, object]", value).items():
            yield f"{place}.{key}", part
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(cast("Iterable[object]", value)):
            yield f"{place}[{number}]", part
    elif isinstance(value, BaseModel) or is_dataclass(value):
        for name, part in vars(value).items():
            yield f"{place}.{name}", part


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
