"""An order is a message too: the outbox's own functions do not touch it, or it would be lost in silence."""

from typing import Any

import pytest

from fencepost.errors import InvalidInput, NotOwner
from fencepost.kernel import outbox
from fencepost.kernel.call import Call
from fencepost.kernel.outbox import Settlement
from tests.integration.orders.env import BROKER, OrdersEnv


@pytest.mark.parametrize("outcome", ["dead", "sent", "queued"])
def test_a_parked_order_is_not_decided_about_as_a_message(market: OrdersEnv, outcome: outbox.Outcome) -> None:
    order_id = market.accepted()
    market.settle(market.take_one(), "parked")

    with pytest.raises(InvalidInput, match="orders") as caught:
        market.run(outbox.resolve(order_id, "parked", outcome, "ann", "looked at it"))

    assert caught.value.field == "id"
    assert market.status(order_id) == "parked"


def test_no_caller_puts_takes_holds_or_frees_messages_beside_the_orders(market: OrdersEnv) -> None:
    order_id = market.accepted()
    channel = f"orders:{BROKER}"
    calls: list[Call[Any]] = [
        outbox.put(channel, {}),
        outbox.put_many(channel, [{}]),
        outbox.hold(channel, 1),
        outbox.take(channel, "thief", 60, 1),
        outbox.expire(channel, "queued", 1),
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            market.run(call)
        assert caught.value.field == "channel"

    assert market.status(order_id) == "queued"


def test_an_order_is_not_settled_as_a_message_not_even_by_its_taker(market: OrdersEnv) -> None:
    order_id = market.accepted()
    taken = market.take_one()

    with pytest.raises(NotOwner):
        market.run(outbox.settle(Settlement(order_id, taken.take, "sent"), "worker-1"))
    answers = market.run(outbox.settle_many([Settlement(order_id, taken.take, "sent")], "worker-1"))

    assert [answer.refusal for answer in answers] == ["not_owner"]
    assert market.status(order_id) == "sending"
