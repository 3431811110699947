"""Arguments are checked before they are sent, and the error names the field."""

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Call, InvalidInput
from fencepost.kernel import call
from fencepost.kernel.call import (
    column,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)

# What PostgreSQL can store: no NUL, no half of a surrogate pair.
STORABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STORABLE,
    lambda inner: st.lists(inner) | st.dictionaries(STORABLE, inner),
    max_leaves=10,
)


def test_text_passes_unchanged() -> None:
    assert text("key", "naïve 日本 \U0001f600") == "naïve 日本 \U0001f600"


@pytest.mark.parametrize("value", ["\0", "before\0after"])
def test_a_nul_in_a_text_is_refused_by_its_field(value: str) -> None:
    with pytest.raises(InvalidInput, match="key contains a NUL") as caught:
        text("key", value)
    assert caught.value.field == "key"


def test_half_of_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(InvalidInput, match="key is not valid Unicode") as caught:
        text("key", "\ud83d")
    assert caught.value.field == "key"


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [-math.inf],
        {"deep": [math.nan]},
        b"bytes",
        {1, 2},
        Decimal("1.5"),
        timedelta(1),
        Decimal,
        {("a", "tuple"): 1},
    ],
    ids=repr,
)
def test_what_is_no_json_is_refused_by_its_field(value: Any) -> None:
    with pytest.raises(InvalidInput, match="payload is no JSON document") as caught:
        document("payload", value)
    assert str(caught.value.field).startswith("payload")


def test_the_place_of_what_is_no_json_is_told() -> None:
    with pytest.raises(
        InvalidInput, match=r"payload is no JSON document: payload.deep\[1\] is nan"
    ) as caught:
        document("payload", {"deep": [1, math.nan]})
    assert caught.value.field == "payload.deep[1]"


def test_a_document_that_contains_itself_is_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    with pytest.raises(InvalidInput, match="payload is no JSON document"):
        document("payload", circle)


def test_a_document_that_is_too_deep_is_refused() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput, match="payload is no JSON document"):
        document("payload", deep)


@pytest.mark.parametrize("value", ["\0", ["a", {"b": "\0"}], {"\0": 1}, "\\\0"], ids=repr)
def test_a_nul_inside_a_document_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="payload contains a NUL"):
        document("payload", value)


@pytest.mark.parametrize("value", ["\\u0000", "char c = '\\u0000';", "\\\\u0000"], ids=repr)
def test_a_text_that_only_speaks_of_a_nul_is_none(value: str) -> None:
    """A program's source may hold a backslash, a u and four zeros; PostgreSQL stores them."""
    assert parsed(document("payload", {"source": value})) == {"source": value}


def test_half_of_a_surrogate_pair_inside_a_document_is_refused() -> None:
    with pytest.raises(InvalidInput, match="payload is not valid Unicode"):
        document("payload", {"name": "\udc00"})


@given(JSON)
def test_every_json_value_comes_back_as_it_was(value: Any) -> None:
    assert parsed(document("payload", value)) == value


def test_a_duration_is_a_number_of_seconds() -> None:
    assert duration("ttl", 1.5) == timedelta(seconds=1.5)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_a_duration_must_be_finite(seconds: float) -> None:
    with pytest.raises(InvalidInput, match=r"ttl is .*finite") as caught:
        duration("ttl", seconds)
    assert caught.value.field == "ttl"


@pytest.mark.parametrize("seconds", [1e14, -1e14, 1e300])
def test_a_duration_that_no_clock_can_hold_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidInput, match="too long") as caught:
        duration("ttl", seconds)
    assert caught.value.field == "ttl"


@pytest.mark.parametrize("optional", [optional_text, optional_document, optional_duration])
def test_what_is_left_out_stays_left_out(optional: Callable[[str, None], object]) -> None:
    assert optional("field", None) is None


def test_what_is_optional_is_checked_when_it_is_given() -> None:
    with pytest.raises(InvalidInput):
        optional_text("field", "\0")
    with pytest.raises(InvalidInput):
        optional_document("field", math.nan)
    with pytest.raises(InvalidInput):
        optional_duration("field", math.inf)


def test_json_null_and_no_json_are_two_things() -> None:
    assert document("field", None) == "null"
    assert parsed("null") is None
    assert parsed(None) is None


class Pair(NamedTuple):
    left: int
    right: int


def test_rows_are_read_by_place() -> None:
    rows = [(1, 2), (3, 4)]
    nothing(rows)
    assert scalar(rows) == 1
    assert column(rows) == [1, 3]
    assert one(Pair)(rows) == Pair(1, 2)
    assert each(Pair)(rows) == [Pair(1, 2), Pair(3, 4)]
    assert each(Pair)([]) == []


def test_a_call_knows_the_function_it_calls() -> None:
    assert (
        Call("select a, b::text from fencepost.lease_renew(%s::text)", ("x",), scalar).function
        == "lease_renew"
    )


def test_a_call_is_a_value_that_does_not_change() -> None:
    made = Call("select 1", (), scalar)
    with pytest.raises(FrozenInstanceError):
        made.sql = "select 2"  # type: ignore[misc] # That is what is tested.
    assert made == Call("select 1", (), scalar)


def test_making_a_call_does_no_io() -> None:
    assert not {"psycopg", "asyncpg", "sqlalchemy", "django"} & set(vars(call))
