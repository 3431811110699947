"""What is wrong is named, and nothing is stored."""

from typing import Any

import pytest

from fencepost.errors import InvalidInput, WrongIsolation
from fencepost.kernel.call import Call, scalar
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._order_source import OrderSettlement
from tests.integration.orders.env import BROKER, OrdersEnv, request


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("idempotency_key", ("k" * 129, "{}", "sha256:" + "0" * 64, "b", "a", "s", "o")),
        ("idempotency_key", ("", "{}", "sha256:" + "0" * 64, "b", "a", "s", "o")),
        ("request", ("k", "[]", "sha256:" + "0" * 64, "b", "a", "s", "o")),
        ("request_digest", ("k", "{}", "md5:1", "b", "a", "s", "o")),
        ("broker", ("k", "{}", "sha256:" + "0" * 64, None, "a", "s", "o")),
        ("account", ("k", "{}", "sha256:" + "0" * 64, "b", "", "s", "o")),
        ("symbol", ("k", "{}", "sha256:" + "0" * 64, "b", "a", "s" * 65, "o")),
        ("order_key", ("k", "{}", "sha256:" + "0" * 64, "b", "a", "s", "")),
    ],
)
def test_accept_names_the_wrong_argument(market: OrdersEnv, field: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidInput) as caught:
        market.run(
            Call(
                "select fencepost.orders_accept(%s::text, %s::jsonb, %s::text, %s::text, %s::text, %s::text,"
                " %s::text)",
                arguments,
                scalar,
            )
        )
    assert caught.value.field == field
    assert market.rows("select 1 from fencepost.idempo_ledger") == []


def test_settle_names_the_wrong_argument(market: OrdersEnv) -> None:
    market.accepted()
    taken = market.take_one()
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("outcome", {"outcome": "lost"}),
        ("fates", {"outcome": "failed", "fate": "perhaps"}),
        ("delays", {"outcome": "failed", "delay_seconds": -1}),
        ("results", {"outcome": "sent"}),
    ]
    for field, how in wrong:
        with pytest.raises(InvalidInput) as caught:
            market.run(
                order_source.settle(BROKER, "worker-1", [OrderSettlement(taken.id, taken.take, **how)])
            )
        assert caught.value.field == field
    assert market.status(taken.id) == "sending"


def test_a_decision_needs_a_reason(market: OrdersEnv) -> None:
    order_id = market.accepted()
    calls: list[Call[Any]] = [
        operator_calls.cancel(order_id, "ann", ""),
        operator_calls.resolve(order_id, "queued", "dead", "ann", ""),
        operator_calls.resend(order_id, "dead", request("new"), "k", "ann", ""),
        operator_calls.halt(BROKER, None, "ann", ""),
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            market.run(call)
        assert caught.value.field == "reason"


def test_a_list_of_an_unknown_status_says_what_there_is(market: OrdersEnv) -> None:
    with pytest.raises(InvalidInput) as caught:
        market.run(order_calls.listing(status="lost"))
    assert caught.value.field == "status"


def test_judging_functions_need_read_committed(market: OrdersEnv) -> None:
    market.connection.autocommit = False
    market.connection.execute("set transaction isolation level repeatable read")
    with pytest.raises(WrongIsolation):
        market.accept("k")


def test_lists_are_newest_first_by_status_and_in_pages(market: OrdersEnv) -> None:
    ids = [market.accepted(symbol=f"S{number}") for number in range(5)]
    market.settle(market.take(limit=1)[0], "dead", fate="not_this", code="BAD_REQUEST")

    assert [row["id"] for row in market.run(order_calls.listing(limit=2))] == [ids[4], ids[3]]
    assert [row["id"] for row in market.run(order_calls.listing(before=ids[3], limit=9))] == [
        ids[2],
        ids[1],
        ids[0],
    ]
    assert [row["id"] for row in market.run(order_calls.listing(status="dead"))] == [ids[0]]
    assert [row["id"] for row in market.run(order_calls.listing(status="queued", limit=1))] == [ids[4]]
    assert market.run(order_calls.listing(status="queued", account="other")) == []
    (count,) = market.run(order_calls.counts())
    assert (count.broker, count.status, count.orders) == (BROKER, "queued", 4)
