"""Every value comes back as what it was; what would not is refused when it is written."""

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from functools import cached_property
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.msgpack import Ext

from fencepost.flows import Failure, IdempotentRecord, WindowResult
from fencepost.flows._value_codec import (
    CODE,
    UnknownClass,
    Unstorable,
    decoder,
    flat,
    pack,
    unpack,
    unpack_plain,
)


class Colour(Enum):
    RED = "r"


class Level(IntEnum):
    HIGH = 3


class Word(StrEnum):
    YES = "yes"


class Point(NamedTuple):
    x: int
    y: Any = None


@dataclass
class Basket:
    items: list[Point]
    by: dict[Any, Any] = field(default_factory=dict[Any, Any])
    made: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.made += 1
        self.remark = "beside the fields"

    @cached_property
    def costly(self) -> object:
        return object()


@dataclass(frozen=True, slots=True)
class Slim:
    n: int


class Row(msgspec.Struct, frozen=True, tag="row"):
    basket: Basket
    n: int = 1


class UserId(str):
    __slots__ = ()


class Tags(list[Any]):
    pass


class Outer:
    @dataclass
    class Inner:
        n: int


ZURICH = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Zurich"), fold=1)
VALUES: list[Any] = [
    None,
    True,
    2**63,
    -(2**200),
    [1, 2**70, {"a": 2**90}],
    {2**70: 1, 3: (4,)},
    1.5,
    "text",
    b"bytes",
    bytearray(b"b"),
    2 + 3j,
    (1, (2, [3, (4,)])),
    {"a": (1, 2)},
    {(1, "a"): {Point(1): "p"}},
    {1, 2},
    frozenset({("a", 1)}),
    deque([1, (2,)], maxlen=3),
    Decimal("1.10"),
    UUID(int=7),
    datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - Naive ones come back too.
    datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    ZURICH,
    date(2026, 1, 2),
    time(3, 4, 5),
    timedelta(days=-1, microseconds=5),
    Colour.RED,
    Level.HIGH,
    Word.YES,
    Point(1, Point(2)),
    Basket([Point(1, 2)], {Colour.RED: {3}}),
    Slim(4),
    Row(Basket([]), 3),
    WindowResult(("eu", 1), 0.0, 10.0, [Slim(1)]),
    Failure(Slim(1), "ValueError: no", "map-1", ("k",)),
    IdempotentRecord("id", Point(1)),
    UserId("u-1"),
    Tags([Point(1)]),
    Counter("aab"),
    OrderedDict(b=1, a=2),
    defaultdict(list, {"a": [(1,)]}),
    Outer.Inner(1),
    Ext(9, b"somebody's own"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_comes_back_as_what_it_was(value: Any) -> None:
    for again in (unpack(pack(value)), decoder(Any, found_only=True)(pack(value))):
        assert type(again) is type(value)
        assert again == value
        assert isinstance(value, Ext) or repr(again) == repr(value)


def test_a_dataclass_has_its_attributes_and_no_second_beginning() -> None:
    basket = Basket([])
    _ = basket.costly
    again = unpack(pack(basket))

    assert (again.made, again.remark) == (1, "beside the fields")
    assert "costly" not in vars(again)
    assert unpack(pack(ZURICH)).fold == 1


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text("abc"),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("abc"), inner),
)
MIXED = st.recursive(
    JSON | st.integers() | st.binary() | st.decimals(allow_nan=False) | st.uuids() | st.dates(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.tuples(st.integers(), st.text("ab")), inner)
        | st.builds(Point, st.integers(), inner)
        | st.builds(WindowResult, st.text("ab"), st.floats(0, 9), st.floats(0, 9), inner)
    ),
    max_leaves=10,
)


@given(JSON)
def test_plain_data_is_written_as_it_always_was(value: Any) -> None:
    assert pack(value) == flat(value) == msgspec.msgpack.encode(value)


@given(MIXED)
def test_whatever_is_within_what(value: Any) -> None:
    assert repr(unpack(pack(value))) == repr(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, (2,)), [1, [2]]),
        (Point(1, Slim(2)), [1, {"n": 2}]),
        (Colour.RED, "r"),
        ({(1, 2): {3}}, {(1, 2): [3]}),
        (Tags([Slim(1)]), [{"n": 1}]),
        (defaultdict(int, a=1), {"a": 1}),
        (deque([1]), [1]),
        (2**70, 2**70),
        (ZURICH, ZURICH),
        (Decimal("1.1"), Decimal("1.1")),
    ],
    ids=repr,
)
def test_a_migration_gets_plain_data(value: Any, plain: Any) -> None:
    assert unpack_plain(pack(value)) == plain


def test_what_would_not_come_back_is_refused_when_it_is_written() -> None:
    @dataclass
    class Local:
        n: int

    with pytest.raises(Unstorable, match=r"Local is defined inside a function.*top of a module.*state="):
        pack([{"a": Local(1)}])
    with pytest.raises(Unstorable, match=r"builtins\.object, which no checkpoint can hold.*a dataclass"):
        pack({"a": object()})
    with pytest.raises(Unstorable, match=r"factory of a defaultdict is a function"):
        pack(defaultdict(lambda: 1))


def _module(name: str, **content: Any) -> ModuleType:
    module = ModuleType(name)
    for key, part in content.items():
        part.__module__, part.__qualname__ = name, key
        setattr(module, key, part)
    return module


def test_a_class_that_is_gone_or_has_changed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Before:
        n: int

    @dataclass
    class Grown:
        n: int
        more: int = 7

    @dataclass
    class Other:
        m: int

    monkeypatch.setitem(sys.modules, "release", _module("release", Thing=Before))
    written = pack(Before(1))

    monkeypatch.setitem(sys.modules, "release", _module("release", Thing=Grown))
    assert unpack(written) == Grown(1, 7)
    monkeypatch.setitem(sys.modules, "release", _module("release", Thing=Other))
    with pytest.raises(UnknownClass, match=r"release:Thing without \['m'\].*version= and migrations="):
        unpack(written)
    monkeypatch.setitem(sys.modules, "release", _module("release"))
    with pytest.raises(UnknownClass, match="release:Thing, and that class is not there any more"):
        unpack(written)
    assert unpack_plain(written) == {"n": 1}


def test_bytes_out_of_redis_import_nothing() -> None:
    stranger = flat(Ext(CODE, flat(["object", "antigravity:Thing", {}])))

    with pytest.raises(UnknownClass, match="is not loaded by this worker"):
        decoder(Any, found_only=True)(stranger)
    assert "antigravity" not in sys.modules
    harmful = flat(Ext(CODE, flat(["object", "subprocess:Popen", {"args": ["true"]}])))
    with pytest.raises(UnknownClass, match="does not take"):
        decoder(Any, found_only=True)(harmful)


@given(
    st.lists(
        st.sampled_from(["tuple", "enum", "named", "object", "kind", "decimal", "datetime", 3, None, []])
    )
)
def test_damaged_bytes_are_told_as_such(parts: list[Any]) -> None:
    damaged = flat(Ext(CODE, flat(parts)))
    with suppress(ValueError, UnknownClass):
        decoder(Any, found_only=True)(damaged)
