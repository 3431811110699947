"""An order is validated by name, has exact amounts, and one digest."""

import math
from decimal import Decimal
from typing import Any

import pytest

from fencepost.errors import InvalidInput
from fencepost_orders.request import OrderRequest, canonical, digest_of, plain

FIELDS: dict[str, Any] = {
    "idempotency_key": "01JABC",
    "broker": "acme",
    "symbol": "USDJPY",
    "intent": "BUY",
    "qty": "10000",
    "limit_price": "145.001",
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("symbol", 7),
        ("symbol", ""),
        ("symbol", "USD JPY"),
        ("qty", "-1"),
        ("qty", "0"),
        ("qty", 1.5),
        ("qty", True),
        ("qty", "NaN"),
        ("qty", "Infinity"),
        ("qty", "ten"),
        ("qty", None),
        ("qty", "1e40"),
        ("limit_price", "0.0000000000001"),
        ("intent", "HOLD"),
        ("idempotency_key", "k" * 300),
        ("idempotency_key", "with space"),
        ("idempotency_key", ""),
        ("expires_at", "2030-01-01T00:00:00"),
        ("time_in_force", "SOON"),
        ("broker", None),
        ("colour", "red"),
    ],
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        OrderRequest.of({**FIELDS, field: value})
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"order"', b"\xff\xfe", b"NaN", b'{"qty": NaN}'])
def test_what_is_no_json_object_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        OrderRequest.parse(body)
    assert caught.value.field == "body"


def test_a_number_in_json_stays_exact() -> None:
    body = (
        '{"idempotency_key":"k","broker":"b","symbol":"S","intent":"SELL",'
        '"qty":0.1,"limit_price":1.10000000001}'
    )
    order = OrderRequest.parse(body)
    assert order.qty == Decimal("0.1")
    assert order.document()["limit_price"] == "1.10000000001"


def test_one_order_has_one_digest_however_it_is_written() -> None:
    one = OrderRequest.of(FIELDS)
    same = OrderRequest.of({**FIELDS, "qty": 10_000, "limit_price": "145.0010", "trace_id": "t"})
    other = OrderRequest.of({**FIELDS, "qty": "10000.5"})
    assert one.digest() == same.digest() != other.digest()
    assert one.digest().startswith("sha256:")


def test_canonical_json_has_sorted_keys_and_plain_numbers() -> None:
    assert canonical({"b": Decimal("1.50"), "a": [1, None, "é"]}) == '{"a":[1,null,"é"],"b":"1.5"}'
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
    assert plain(Decimal("1E+4")) == "10000"


@pytest.mark.parametrize("note", ["x" * 20_000, math.nan, b"bytes", {1, 2}, "\ud800"])
def test_a_meta_that_is_too_large_or_no_json_is_refused(note: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        OrderRequest.of({**FIELDS, "meta": {"note": note}})
    assert caught.value.field == "meta"
