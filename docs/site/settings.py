"""The page of all settings: variable, key, what is allowed, default, from the classes that read them."""

from __future__ import annotations

import re
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import annotated_types

from fencepost.layered_settings import LayeredSettings, readers
from fencepost.plugin import load

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

SIMPLE: Mapping[Any, str] = {bool: "on or off", int: "integer", float: "number", str: "text", Path: "path"}
INTRODUCTION = """\
Every variable that an installed distribution reads, and its key in `config.yaml`.
[Settings](../reference/settings.md) says how they are read and what the shared ones mean; the reference of
each part says it of its own."""


def page() -> str:
    lines = ["# Settings, all of them", "", INTRODUCTION]
    for reader in readers():
        cls: type[LayeredSettings] = load(reader)
        lines += ["", f"## {cls.__module__.partition('.')[0]}: {cls.__name__}", ""]
        lines += ["| variable | key in config.yaml | allowed | default |", "|---|---|---|---|"]
        lines += [_row(cls, name) for name in cls.model_fields]
    return "\n".join(lines) + "\n"


def _row(cls: type[LayeredSettings], name: str) -> str:
    source, field = cls.sources()[name], cls.model_fields[name]
    return (
        f"| `{source.env}` | `{source.file}` | {_allowed(field)} | {_default(field, secret=source.secret)} |"
    )


def _allowed(field: FieldInfo) -> str:
    kind = _kind(field.annotation)
    low = next((m.ge for m in field.metadata if isinstance(m, annotated_types.Ge)), None)
    high = next((m.le for m in field.metadata if isinstance(m, annotated_types.Le)), None)
    match low, high:
        case None, None:
            return kind
        case _, None:
            return f"{kind}, at least {low}"
        case None, _:
            return f"{kind}, at most {high}"
        case _:
            return f"{kind}, {low} to {high}"


def _kind(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_kind(one) for one in arguments if one is not type(None)))
    if origin is typing.Annotated:
        return _kind(arguments[0])
    if origin is not None:
        return "mapping" if issubclass(origin, Mapping) else "list"
    return SIMPLE.get(annotation) or _words(annotation)


def _words(annotation: Any) -> str:
    name: str = getattr(annotation, "__name__", "text")
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{one.value}`" for one in annotation)
    return re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()


def _default(field: FieldInfo, *, secret: bool) -> str:
    if field.is_required():
        return "must be set"
    value = field.get_default(call_default_factory=True, validated_data={})
    match value:
        case None | () | "" | {} | []:
            return "none"
        case True:
            return "on"
        case False:
            return "off"
        case Enum():
            return f"`{value.value}`"
        case _:
            return "secret" if secret else f"`{value}`"
