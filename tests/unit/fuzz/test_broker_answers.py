"""Whatever a broker answers has a meaning, and what is kept of it can be stored."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, cast

import pytest
from hypothesis import strategies as st

from fencepost._http1 import address_of
from fencepost.backoff import RETRY_AFTER_SECONDS_MAX, retry_after_seconds
from fencepost.http_client import HttpClient, NotSent, Reply, Request
from fencepost.kernel.call import document
from fencepost_orders import _alpaca as alpaca
from fencepost_orders import _oanda as oanda
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._outcome import result_of
from fencepost_orders.broker import BrokerAdapter, BrokerOrder, LookupFinding, OutgoingOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import Fields, HttpBrokerConfig
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import bodies, wrong_text

WHEN = "2030-01-01T00:00:00.123456789Z"
PLAIN = {
    "status": "open",
    "idempotency_key": "k",
    "broker_order_id": "1",
    "accepted_at": WHEN,
    "fills": [{"qty": "1"}],
}
DEEP = {"order": {"state": "open", "ids": {"ours": "k", "theirs": 1}}, "at": WHEN}
ALPACA = {
    "id": "1",
    "status": "filled",
    "client_order_id": "k",
    "submitted_at": WHEN,
    "filled_qty": "1.5",
    "filled_avg_price": "2",
    "filled_at": WHEN,
}
CREATED = {
    "orderCreateTransaction": {"id": "1", "time": WHEN, "clientExtensions": {"id": "k"}},
    "orderFillTransaction": {"units": "1", "price": "2", "time": WHEN},
    "orderCancelTransaction": {"id": "2"},
}
LISTED = {"id": "1", "state": "FILLED", "createTime": WHEN, "clientExtensions": {"id": "other"}}
PAGE = {
    "orders": [LISTED, LISTED | {"id": "2", "clientExtensions": {"id": "k"}}],
    "order": LISTED | {"fillingTransactionID": "3", "filledTime": WHEN},
    "transaction": {"units": "1", "price": "2", "time": WHEN},
}
REJECTED = {"orderRejectTransaction": {"rejectReason": "CLIENT_ORDER_ID_ALREADY_EXISTS"}}
ORDER = OutgoingOrder("k", {}, datetime(2031, 1, 1, tzinfo=UTC))
NAMED = OutgoingOrder("k", {}, datetime(2031, 1, 1, tzinfo=UTC), broker_order_id="1")


class Said(HttpClient):
    """Answers whatever is asked with one reply."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def exchange(self, request: Request) -> Reply:
        try:
            address_of(request.url)
        except ValueError as error:
            raise NotSent(str(error)) from error
        return self._reply

    async def close(self) -> None:
        """Nothing is open."""


def broker(kind: str, reply: Reply) -> BrokerAdapter:
    client = Said(reply)
    match kind:
        case "alpaca":
            return AlpacaBroker("id", "secret", client=client)
        case "oanda":
            return OandaBroker("token", client=client)
        case _:
            fields = Fields(
                status="order.state", client_id="order.ids.ours", broker_order_id="order.ids.theirs"
            )
            config = HttpBrokerConfig(
                base_url="http://broker",
                promise=Promise.FOREVER,
                fields=fields if kind == "deep" else Fields(),
            )
            return HttpBroker(config, client=client)


def kept(order: BrokerOrder | None) -> str:
    """What is stored of it. An id that is no text would be compared with ours, and kept."""
    if order is None:
        return ""
    assert order.client_id is None or isinstance(order.client_id, str)
    return document("result", [{"result": result_of(order)}])


def understand(kind: str, reply: Reply) -> None:
    adapter = broker(kind, reply)
    verdict = adapter.classify(ORDER, reply)
    document("detail", [(verdict.detail or "").encode(errors="replace").decode()])
    kept(verdict.order)
    for order in (ORDER, NAMED):
        kept(asyncio.run(adapter.find_order(order)).order)


def replies(*rights: Any) -> st.SearchStrategy[Reply]:
    waits = st.one_of(wrong_text("120"), wrong_text("Wed, 21 Oct 2015 07:28:00 GMT"))
    return st.builds(
        Reply,
        st.sampled_from([200, 201, 400, 403, 404, 409, 422, 429, 500, 600]),
        st.dictionaries(st.just("retry-after"), waits),
        st.one_of([bodies(right) for right in rights]),
    )


RIGHT: Mapping[str, tuple[Any, ...]] = {
    "plain": (PLAIN,),
    "deep": (DEEP,),
    "alpaca": (ALPACA, {"code": 40310000, "message": "insufficient buying power"}),
    "oanda": (CREATED, PAGE, REJECTED),
}


def parser_of(kind: str) -> Parser:
    return Parser(lambda reply: understand(kind, reply), replies(*RIGHT[kind]))


PARSERS = {kind: parser_of(kind) for kind in RIGHT} | {
    "how long to wait": Parser(
        retry_after_seconds, st.one_of(wrong_text("120"), wrong_text("Wed, 21 Oct 2015 07:28:00 +0100"))
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_any_answer_has_a_meaning_and_can_be_kept(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_any_answer_has_a_meaning_and_can_be_kept_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


def answer(body: Any) -> Reply:
    return Reply(200, body=body if isinstance(body, bytes) else json.dumps(body).encode())


@pytest.mark.parametrize("quantity", [{}, [], {"a": 1}], ids=repr)
def test_a_quantity_that_is_none_is_kept_as_it_came(quantity: Any) -> None:
    understand("alpaca", answer(ALPACA | {"filled_qty": quantity}))


@pytest.mark.parametrize("name", [{}, [1], 7], ids=repr)
def test_an_order_of_an_id_that_is_no_text_is_another(name: Any) -> None:
    for order in (
        alpaca.read_order(ALPACA | {"client_order_id": name}),
        oanda.read_order(LISTED | {"clientExtensions": {"id": name}}),
        oanda.created_order({"orderCreateTransaction": {"id": "1", "clientExtensions": {"id": name}}}),
    ):
        assert order is not None
        assert order.client_id == str(name)


def test_an_id_that_no_url_can_carry_is_no_answer() -> None:
    listed = {"order": LISTED | {"fillingTransactionID": "\ud800"}}

    found = asyncio.run(broker("oanda", answer(listed)).find_order(NAMED))

    assert found.finding is LookupFinding.NO_ANSWER


@pytest.mark.parametrize("exponent", ["999999999", "-999999999", "5000"])
def test_a_number_without_end_is_kept_as_it_was_written(exponent: str) -> None:
    order = alpaca.read_order(answer(f'{{"id": 1, "status": "new", "x": 1E{exponent}}}'.encode()).json())

    assert order is not None
    assert cast("dict[str, Any]", order.body)["x"] == Decimal(f"1E{exponent}")
    assert len(kept(order)) < 1000


@pytest.mark.parametrize("levels", [90, 400, 900])
def test_a_document_without_a_floor_is_kept_down_to_a_depth(levels: int) -> None:
    body = b'{"id": 1, "status": "new", "x": ' + b"[" * levels + b"]" * levels + b"}"
    order = alpaca.read_order(answer(body).json())

    assert order is not None
    assert ("nested too deeply to be stored" in kept(order)) is (levels > 90)


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2015 07:28:00 +99999999999999999999", "9" * 5000, "\u0661"])
def test_an_unreadable_retry_delay_is_none_or_the_longest(value: str) -> None:
    assert retry_after_seconds(value) in {None, RETRY_AFTER_SECONDS_MAX}
