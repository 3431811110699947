"""The declared mutations as protobuf: a `.proto` file, and messages for protobuf bodies.

Everything follows from the declarations: the fields of a request become those of its message, in their order.
Numbers are stable as long as new fields are added at the end of a model; `docs/reference/players.proto` keeps
them, and a test compares.

    str, UUID            string           int                 int64         bool      bool
    X | None, default    optional         tuple[X, ...]       repeated X    model     its message
    Mapping[str, int]    map              dict of JSON        string that holds the JSON document

The text needs no library. Bodies need `protobuf` (the extra `twirp`).
"""

from __future__ import annotations

import importlib
import json
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

from fencepost_players.mutations.errors import InvalidArgument

MEDIA_TYPE = "application/protobuf"
REQUEST_ID = "request_id"
_SCALARS: Mapping[Any, str] = {str: "string", UUID: "string", int: "int64", bool: "bool"}


@dataclass(frozen=True, slots=True)
class Field:
    """`kind` is the name of a scalar or a message; for a map, that of its values."""

    name: str
    number: int
    kind: str
    is_optional: bool = False
    is_repeated: bool = False
    is_map: bool = False
    is_json: bool = False

    @property
    def line(self) -> str:
        label = "repeated " if self.is_repeated else "optional " if self.is_optional else ""
        kind = f"map<string, {self.kind}>" if self.is_map else f"{label}{self.kind}"
        note = "  // a JSON document" if self.is_json else ""
        return f"  {kind} {self.name} = {self.number};{note}"


@dataclass(frozen=True, slots=True)
class Message:
    name: str
    fields: tuple[Field, ...]

    @property
    def text(self) -> str:
        return "\n".join([f"message {self.name} {{", *(field.line for field in self.fields), "}"])


@dataclass(frozen=True, slots=True)
class ProtoService:
    """A Twirp service: its methods, each with a request, and one response message for all."""

    package: str
    name: str
    methods: Mapping[str, str]
    answer: str
    messages: Mapping[str, Message]

    @property
    def text(self) -> str:
        """The `.proto` file."""
        rpcs = [f"  rpc {method}({asked}) returns ({self.answer});" for method, asked in self.methods.items()]
        return (
            "\n\n".join(
                [
                    'syntax = "proto3";',
                    f"package {self.package};",
                    "\n".join([f"service {self.name} {{", *rpcs, "}"]),
                    *(message.text for message in self.messages.values()),
                ]
            )
            + "\n"
        )


def service_of(
    package: str, name: str, requests: Mapping[str, type[BaseModel]], answer: type[BaseModel]
) -> ProtoService:
    """The service of these methods. `request_id` is the first field of a request, and not in the model."""
    messages: dict[str, Message] = {}
    for asked in requests.values():
        _add(messages, asked, f"{asked.__name__}Request", [Field(REQUEST_ID, 1, "string", is_optional=True)])
    _add(messages, answer, answer.__name__, [])
    methods = {method: f"{asked.__name__}Request" for method, asked in requests.items()}
    return ProtoService(package, name, methods, answer.__name__, messages)


def _add(messages: dict[str, Message], model: type[BaseModel], name: str, first: Sequence[Field]) -> str:
    if name not in messages:
        messages[name] = Message(name, ())
        fields = [
            _field(messages, field, info.annotation, len(first) + place, is_required=info.is_required())
            for place, (field, info) in enumerate(model.model_fields.items(), start=1)
        ]
        messages[name] = Message(name, (*first, *fields))
    return name


def _field(
    messages: dict[str, Message], name: str, annotation: Any, number: int, *, is_required: bool
) -> Field:
    kind = _plain(annotation)
    if kind in _SCALARS:
        return Field(name, number, _SCALARS[kind], is_optional=not is_required)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return Field(name, number, _kind(messages, _plain(arguments[0])), is_repeated=True)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value = _plain(arguments[1])
        if value in _SCALARS:
            return Field(name, number, _SCALARS[value], is_map=True)
        return Field(name, number, "string", is_optional=not is_required, is_json=True)
    return Field(name, number, _kind(messages, kind), is_optional=not is_required)


def _kind(messages: dict[str, Message], kind: Any) -> str:
    if kind in _SCALARS:
        return _SCALARS[kind]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return _add(messages, kind, kind.__name__, [])
    raise TypeError(f"{kind!r} cannot be expressed in protobuf")


def _plain(annotation: Any) -> Any:
    """The annotation without its constraints, and without None."""
    if get_origin(annotation) is typing.Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in {Union, types.UnionType}:
        (kind,) = (one for one in get_args(annotation) if one is not type(None))
        return _plain(kind)
    return annotation


class Codec:
    """Encodes and decodes protobuf bodies of one service. Raises ImportError if protobuf is not installed."""

    def __init__(self, service: ProtoService) -> None:
        self._service = service
        self._error: type[Exception] = _library("message").DecodeError
        self._factory = _library("message_factory")
        self._pool = _library("descriptor_pool").DescriptorPool()
        self._pool.Add(_described(service))

    def decode(self, method: str, body: bytes) -> dict[str, Any]:
        """A request in its JSON form, without the fields that were not sent."""
        name = self._service.methods[method]
        encoded: Any = self._classes[name]()
        try:
            encoded.ParseFromString(body)
        except self._error:
            raise InvalidArgument(f"The body is not a {name} in protobuf.", argument="body") from None
        return self._read(encoded, self._service.messages[name])

    def encode(self, response: Mapping[str, Any]) -> bytes:
        """A response. The same response has the same bytes."""
        encoded = self._write(response, self._service.messages[self._service.answer])
        return bytes(encoded.SerializeToString(deterministic=True))

    @cached_property
    def _classes(self) -> dict[str, Any]:
        names = ((name, f"{self._service.package}.{name}") for name in self._service.messages)
        return {
            name: self._factory.GetMessageClass(self._pool.FindMessageTypeByName(full))
            for name, full in names
        }

    def _read(self, encoded: Any, message: Message) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for field in message.fields:
            value: Any = getattr(encoded, field.name)
            nested = self._service.messages.get(field.kind)
            if field.is_map or field.is_repeated:
                if value:
                    # A map has no order of its own: sorted by name, so that a repeat has the same plan.
                    many = [self._value(one, nested) for one in value] if field.is_repeated else None
                    found[field.name] = dict(sorted(value.items())) if many is None else many
            elif encoded.HasField(field.name) if field.is_optional or nested else value:
                plain = self._value(value, nested)
                found[field.name] = _document(field.name, value) if field.is_json else plain
        return found

    def _value(self, value: Any, nested: Message | None) -> Any:
        return self._read(value, nested) if nested else value

    def _write(self, facts: Mapping[str, Any], message: Message) -> Any:
        encoded: Any = self._classes[message.name]()
        known = {field.name: field for field in message.fields}
        for name, value in facts.items():
            # A KeyError would mean a response that its model does not describe: a test calls every method.
            field, nested = known[name], self._service.messages.get(known[name].kind)
            if field.is_map:
                getattr(encoded, name).update(value)
            elif field.is_repeated:
                parts = [self._write(one, nested) for one in value] if nested else value
                getattr(encoded, name).extend(parts)
            elif nested:
                getattr(encoded, name).CopyFrom(self._write(value, nested))
            else:
                setattr(encoded, name, json.dumps(value) if field.is_json else value)
        return encoded


def _document(name: str, value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{name} holds no JSON document.", argument=name) from None


def _library(name: str) -> Any:
    """A module of protobuf, which has no types and may not be installed."""
    return importlib.import_module(f"google.protobuf.{name}")


def _described(service: ProtoService) -> Any:
    """The file's descriptor, for the pool."""
    descriptor_pb2 = _library("descriptor_pb2")
    kinds: Any = descriptor_pb2.FieldDescriptorProto
    scalars = {"string": kinds.TYPE_STRING, "int64": kinds.TYPE_INT64, "bool": kinds.TYPE_BOOL}

    def describe(described: Any, fields: Iterable[Field]) -> None:
        for field in fields:
            is_many = field.is_repeated or field.is_map
            made = described.field.add(
                name=field.name,
                number=field.number,
                label=kinds.LABEL_REPEATED if is_many else kinds.LABEL_OPTIONAL,
            )
            if field.is_map:
                entry = described.nested_type.add(name=_entry(field.name))
                entry.options.map_entry = True
                describe(entry, (Field("key", 1, "string"), Field("value", 2, field.kind)))
                made.type = kinds.TYPE_MESSAGE
                made.type_name = f".{service.package}.{described.name}.{entry.name}"
            elif field.kind in scalars:
                made.type = scalars[field.kind]
            else:
                made.type = kinds.TYPE_MESSAGE
                made.type_name = f".{service.package}.{field.kind}"
            if field.is_optional:
                made.proto3_optional = True
                made.oneof_index = len(described.oneof_decl)
                described.oneof_decl.add(name=f"_{field.name}")

    file: Any = descriptor_pb2.FileDescriptorProto(
        name=f"{service.package}.{service.name}.proto", package=service.package, syntax="proto3"
    )
    for message in service.messages.values():
        describe(file.message_type.add(name=message.name), message.fields)
    return file


def _entry(name: str) -> str:
    """The name that protoc gives the entries of a map."""
    return "".join(part.capitalize() for part in name.split("_")) + "Entry"
