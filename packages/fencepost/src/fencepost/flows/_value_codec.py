"""Values as bytes, and back with their types: MessagePack, with a tag on every type that it lacks.

Plain data (the types of JSON, bytes, UTC timestamps) is written as it is. Tuples, sets, decimals, named
tuples, dataclasses, structs and enumerations are an extension that names their type. A class is found again
by its module and name, so it must be defined at the top level of a module, and none of its code is called
except a struct's constructor: the attributes are restored as they were.

For data from PostgreSQL a class may be imported. For data from Redis (`found_only`) it must be loaded
already: a client that can write to Redis cannot make a worker import a module.
"""

# Values are of any type here by design: pyright calls that unknown.
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import cache, cached_property
from typing import Any, cast
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec.msgpack import Ext

from fencepost.flows._errors import FlowError, StateMismatch

CODE = 70
"""The code of the extension. MessagePack's own is -1, for timestamps."""

_SCALARS = frozenset({type(None), bool, int, float, str, bytes})
_KEYS = frozenset({bool, int, float, str, bytes})


class Unstorable(FlowError, TypeError):
    """A value cannot be stored and restored with its type. The message names the remedy."""


class UnknownClass(StateMismatch):
    """A stored value is of a class that is gone, or whose fields have changed."""


def flat(value: Any) -> bytes:
    """Encode plain data only, in a form that never changes: key groups are chosen by it."""
    return _encode(value)


def pack(value: Any) -> bytes:
    """Encode a value. Raises Unstorable for a value that could not be restored."""
    try:
        return _encode(marked(value))
    except OverflowError:
        return _encode(marked_wide(value))


def stored(value: Any, *, plain: bool = False) -> msgspec.Raw:
    """A part of a larger value that is written with `flat`; `plain` for data that a declared type converts
    back."""
    return msgspec.Raw(_encode(value) if plain else pack(value))


def unpack(data: bytes) -> Any:
    """Restore a value with its type. Raises UnknownClass."""
    return decoder(Any)(data)


def unpack_plain(data: bytes) -> Any:
    """Restore any value as plain data: for a caller that converts it itself."""
    return _decode_plain(data)


def decoder(kind: Any, *, found_only: bool = False) -> Callable[[bytes], Any]:
    """A decoder for a structure of the given type whose parts may be any values."""
    return _decoder(kind, found_only).decode


def marked(value: Any) -> Any:
    """The same value with a tag on every part that MessagePack would change."""
    return _marked(value, wide=False)


def marked_wide(value: Any) -> Any:
    """The same, with a tag on integers beyond 64 bits too: MessagePack raises OverflowError for them."""
    return _marked(value, wide=True)


def _marked(value: Any, *, wide: bool) -> Any:  # noqa: PLR0911 - One way out for each kind, the usual ones first.
    kind = type(value)
    if kind in _SCALARS:
        return _wide(value) if wide and kind is int else value
    if kind is dict:
        if _KEYS.issuperset(map(type, value)) and not (wide and any(map(_is_wide, value))):
            if not wide and _SCALARS.issuperset(map(type, value.values())):
                return value
            return {key: _marked(part, wide=wide) for key, part in value.items()}
        return _ext("dict", [[_marked(k, wide=wide), _marked(v, wide=wide)] for k, v in value.items()])
    if kind is list:
        if _SCALARS.issuperset(map(type, value)) and not wide:
            return value
        return [_marked(part, wide=wide) for part in value]
    if kind is datetime and value.tzinfo is UTC:
        return value
    known: Any = kind
    return _wrapper(known)(value, wide)


def _wide(value: int) -> Any:
    return _ext("int", str(value)) if _is_wide(value) else value


def _is_wide(value: Any) -> bool:
    return type(value) is int and not -(2**63) <= value < 2**64


def _ext(*parts: Any) -> Ext:
    return Ext(CODE, _encode(parts))


Wrapper = Callable[[Any, bool], Any]


@cache
def _wrapper(kind: Any) -> Wrapper:
    """How values of a type are written. Determined once per type."""
    if kind in _BUILTIN:
        return _BUILTIN[kind]
    if issubclass(kind, Enum):
        where = _address(kind)
        return lambda value, wide: _ext("enum", where, [value.name, _marked(value.value, wide=wide)])
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        where = _address(kind)
        return lambda value, wide: _ext("named", where, _all(value, wide))
    names = _fields(kind)
    if names is not None:
        where = _address(kind)
        return lambda value, wide: _ext("object", where, _attributes(value, names, wide))
    base = next((each for each in kind.__mro__ if each in _BASES), None)
    if base is not None:
        where, as_base = _address(kind), cast("Callable[[Any], Any]", base)
        return lambda value, wide: _ext(
            "kind", where, [_marked(as_base(value), wide=wide), _attributes(value, (), wide)]
        )
    raise Unstorable(
        f"A value is a {kind.__module__}.{kind.__qualname__}, which no checkpoint can hold. Use plain "
        f"data, a "
        "dataclass, a named tuple or a msgspec.Struct."
    )


_BASES: frozenset[type[Any]] = frozenset({dict, list, str, int, float, bytes, set, frozenset, tuple})


def _all(values: Any, wide: bool) -> list[Any]:
    return [_marked(part, wide=wide) for part in values]


def _moment(value: datetime, _wide: bool) -> Any:
    zone = value.tzinfo
    name = zone.key if isinstance(zone, ZoneInfo) else None
    return _ext(
        "datetime", value.replace(tzinfo=None).isoformat() if name else value.isoformat(), name, value.fold
    )


_BUILTIN: dict[type[Any], Wrapper] = {
    tuple: lambda value, wide: _ext("tuple", _all(value, wide)),
    set: lambda value, wide: _ext("set", _all(value, wide)),
    frozenset: lambda value, wide: _ext("frozenset", _all(value, wide)),
    bytearray: lambda value, _: _ext("bytearray", bytes(value)),
    complex: lambda value, _: _ext("complex", [value.real, value.imag]),
    Decimal: lambda value, _: _ext("decimal", str(value)),
    UUID: lambda value, _: _ext("uuid", value.bytes),
    datetime: _moment,
    date: lambda value, _: _ext("date", value.isoformat()),
    time: lambda value, _: _ext("time", value.isoformat()),
    timedelta: lambda value, _: _ext("timedelta", [value.days, value.seconds, value.microseconds]),
    deque: lambda value, wide: _ext("deque", [_all(value, wide), value.maxlen]),
    defaultdict: lambda value, wide: _ext(
        "defaultdict", _factory(value.default_factory), _marked(dict(value), wide=wide)
    ),
    # A user's own extension, which this module does not define.
    Ext: lambda value, _: _ext("ext", [value.code, value.data]),
}

_READ: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "bytearray": bytearray,
    "complex": lambda parts: complex(*parts),
    "decimal": Decimal,
    "uuid": lambda data: UUID(bytes=data),
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "dict": dict,
    "deque": lambda parts: deque(*parts),
    "ext": lambda parts: Ext(*parts),
}


def _factory(made: Any) -> str | None:
    """The factory of a defaultdict: a class, or None."""
    if made is None:
        return None
    if not isinstance(made, type):
        raise Unstorable(
            "The factory of a defaultdict is a function, which no checkpoint can hold. Use a class (list, "
            "int), or "
            "a dict."
        )
    return _address(made)


def _fields(kind: type[Any]) -> tuple[str, ...] | None:
    """The attributes of a data class; None for any other class."""
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    attributes = getattr(kind, "__attrs_attrs__", None)
    return None if attributes is None else tuple(each.name for each in attributes)


def _attributes(value: Any, names: tuple[str, ...], wide: bool) -> dict[str, Any]:
    """The attributes of a value, fields first; values of cached properties are computed again."""
    found = {name: getattr(value, name) for name in names if hasattr(value, name)}
    for name, part in getattr(value, "__dict__", {}).items():
        if name not in found and not isinstance(getattr(type(value), name, None), cached_property):
            found[name] = part
    return {name: _marked(part, wide=wide) for name, part in found.items()}


@cache
def _address(kind: Any) -> str:
    where = f"{kind.__module__}:{kind.__qualname__}"
    if "<locals>" in kind.__qualname__:
        raise Unstorable(
            f"{kind.__name__} is defined inside a function, so no other process can find it, and a value "
            f"of it "
            "would not come back after a crash. Define it at the top of a module, or declare the type "
            "(state= of the step, value= of key_by), which makes plain data of it and back."
        )
    if _lookup(where, found_only=True) is not kind:
        raise Unstorable(
            f"{where} is another thing than the class of a value, so it would not come back after a "
            f"crash. Give "
            "the class a name of its own at the top of its module."
        )
    return where


def _lookup(where: str, *, found_only: bool) -> Any:
    module, _, name = where.partition(":")
    found: Any = sys.modules.get(module)
    if found is None and not found_only:
        try:
            found = importlib.import_module(module)
        except ImportError:
            found = None
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@cache
def _hook(found_only: bool) -> Callable[[int, memoryview], Any]:
    def read(code: int, data: memoryview) -> Any:
        if code != CODE:
            return Ext(code, bytes(data))
        what, *parts = _decoder(Any, found_only).decode(data)
        try:
            return _read(what, parts, found_only=found_only)
        except UnknownClass:
            raise
        except Exception as error:
            raise ValueError(f"The stored value is malformed: {error}.") from error

    return read


def _read(what: str, parts: list[Any], *, found_only: bool) -> Any:
    if what in _READ:
        return _READ[what](*parts)
    if what == "datetime":
        return _as_moment(*parts)
    if what == "defaultdict":
        factory = None if parts[0] is None else _known(parts[0], found_only=found_only)
        return defaultdict(factory, parts[1])
    return _as_object(what, *parts, found_only=found_only)


@cache
def _decoder(kind: Any, found_only: bool) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind, ext_hook=_hook(found_only))


def _as_moment(text: str, zone: str | None, fold: int) -> datetime:
    moment = datetime.fromisoformat(text).replace(fold=fold)
    return moment if zone is None else moment.replace(tzinfo=ZoneInfo(zone))


def _as_object(what: str, where: str, content: Any, *, found_only: bool) -> Any:
    known = _known(where, found_only=found_only)
    if what == "enum" and issubclass(known, Enum) and content[0] in known.__members__:
        return known[content[0]]
    if what == "named" and issubclass(known, tuple) and len(content) == len(getattr(known, "_fields", ())):
        return tuple.__new__(known, content)
    if what == "kind" and issubclass(known, type(content[0])):
        return _of_kind(known, *content)
    names = _fields(known)
    if what == "object" and names is not None:
        return _rebuilt(known, names, content, where)
    raise UnknownClass(
        f"A stored value is a {where} with {content!r:.200}, which that class does not take any more. "
        f"Keep what it "
        "had; for the state of a step give version= and migrations=, which get plain data."
    )


def _known(where: str, *, found_only: bool) -> type[Any]:
    kind = _lookup(where, found_only=found_only)
    if not isinstance(kind, type):
        seen = "is not loaded by this worker" if found_only else "is not there any more"
        raise UnknownClass(
            f"A stored value is a {where}, and that class {seen}. Put it back where it was, or import its "
            f"module "
            "where the flow is made; for the state of a step give version= and migrations=, which get "
            "plain data."
        )
    return cast("type[Any]", kind)


def _of_kind(kind: type[Any], content: Any, more: Mapping[str, Any]) -> Any:
    """Restore an instance of a user's subclass of a builtin type."""
    base: Any = type(content)
    made: Any = base.__new__(kind) if base in (dict, list, set) else base.__new__(kind, content)
    if base is dict:
        put: Any = OrderedDict if issubclass(kind, OrderedDict) else dict
        for key, part in content.items():
            put.__setitem__(made, key, part)
    elif base is list:
        list.extend(made, content)
    elif base is set:
        set.update(made, content)
    for name, part in more.items():
        object.__setattr__(made, name, part)
    return made


def _rebuilt(kind: type[Any], names: tuple[str, ...], content: Mapping[str, Any], where: str) -> Any:
    content = {**_defaults(kind), **content}
    lacking = [name for name in names if name not in content]
    has_dict = hasattr(kind, "__dict__") and "__slots__" not in vars(kind)
    unknown = [name for name in content if name not in names and not has_dict]
    if lacking or unknown:
        raise UnknownClass(
            f"A stored value is a {where} without {lacking}, and with {unknown} that the class does not "
            f"have. "
            "Give new fields a default; for the state of a step give version= and migrations=, which get "
            "plain "
            "data."
        )
    if issubclass(kind, msgspec.Struct):
        return kind(**{name: content[name] for name in names})
    made = object.__new__(kind)
    for name, part in content.items():
        object.__setattr__(made, name, part)
    return made


def _defaults(kind: type[Any]) -> dict[str, Any]:
    """The defaults of fields that were added since."""
    if issubclass(kind, msgspec.Struct):
        return {
            field.name: field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            for field in msgspec.structs.fields(kind)
            if not field.required
        }
    if not dataclasses.is_dataclass(kind):
        return {}
    found: dict[str, Any] = {}
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            found[field.name] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory()
    return found


def _plain(code: int, data: memoryview) -> Any:  # noqa: PLR0911
    """The plain data that `flat` would have written."""
    if code != CODE:
        return Ext(code, bytes(data))
    what, *parts = _decode_plain(data)
    if what in ("named", "object", "defaultdict"):
        return parts[1]
    if what in ("enum", "kind"):
        return parts[1][1 if what == "enum" else 0]
    if what == "deque":
        return parts[0][0]
    if what in ("tuple", "set", "frozenset"):
        return parts[0]
    if what == "dict":
        return {_hashable(key): value for key, value in parts[0]}
    return _as_moment(*parts) if what == "datetime" else _READ[what](*parts)


def _hashable(key: Any) -> Any:
    return tuple(_hashable(part) for part in key) if isinstance(key, list) else key  # pyright: ignore[reportUnknownVariableType]


_encode = msgspec.msgpack.Encoder().encode
_decode_plain = msgspec.msgpack.Decoder(ext_hook=_plain).decode
