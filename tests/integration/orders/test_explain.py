"""The life of an order, as `fencepost explain` tells it: the kernel asks the plugin that brings the noun."""

from fencepost.testing import Clock
from tests.integration.orders.env import OrdersEnv


def life(market: OrdersEnv, subject: str) -> list[tuple[str, str | None, int | None]]:
    moments = market.rows("select event, actor, token from fencepost.explain(%s)", subject)
    return [(moment["event"], moment["actor"], moment["token"]) for moment in moments]


def test_the_life_of_an_order_by_its_key_and_by_its_id(market: OrdersEnv, clock: Clock) -> None:
    order_id = market.accepted("01JABC", trace_id="trace-1")
    clock.advance(1)
    assert market.accept("01JABC", limit_price="9").outcome == "mismatch"
    clock.advance(1)
    taken = market.take_one()
    clock.advance(1)
    assert market.settle(taken, "sent", owner="a stranger").refusal == "not_owner"
    clock.advance(1)
    market.settle(taken, "sent")

    told = life(market, "order:01JABC")

    assert [moment[0] for moment in told] == [
        "queued",
        "refused:mismatch",
        "sending",
        "refused:not_owner",
        "sent",
    ]
    assert told[2][1:] == ("worker-1", 1)
    assert life(market, f"order:{order_id}") == told
    (first, *_) = market.rows("select detail from fencepost.explain('order:01JABC')")
    assert (first["detail"]["trace_id"], first["detail"]["id"]) == ("trace-1", order_id)


def test_an_order_whose_key_is_another_ones_id_is_told_by_its_key(market: OrdersEnv) -> None:
    first = market.accepted("one")
    second = market.accepted(str(first))

    (moment,) = market.rows("select detail from fencepost.explain(%s)", f"order:{first}")

    assert moment["detail"]["id"] == second


def test_an_order_that_was_never_placed_has_no_history(market: OrdersEnv) -> None:
    assert [life(market, f"order:{name}") for name in ("nobody", "999", "9" * 30)] == [[], [], []]
