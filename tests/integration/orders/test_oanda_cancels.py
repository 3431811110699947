"""OANDA creates an order and cancels it in the same answer: that is no success, and a part that was filled is
read as a part."""

import json
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.http_client import Reply
from fencepost_orders._oanda import OandaBroker
from fencepost_orders.broker import Meaning, OutgoingOrder, Promise
from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Said
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.integration.orders.broker_env import open_floor
from tests.integration.orders.dialects import CANCELS_FROM, FILLS_FROM, OandaDialect
from tests.integration.orders.test_real_brokers import outgoing


class Cancelling(OandaDialect):
    """Fills a part, or nothing, and cancels the rest at once, as with FOK and IOC."""

    def __init__(self, filled: str | None) -> None:
        self.filled = filled

    def placed(self, order: BookOrder) -> Said:
        status, said = super().placed(order)
        number = int(order.broker_order_id.removeprefix("brk-"))
        cancel = {"id": str(CANCELS_FROM + number), "orderID": str(number), "reason": "MARKET_HALTED"}
        fill = {"id": str(FILLS_FROM + number), "units": self.filled, "price": "145.002"}
        order.is_open = False
        return status, {
            **said,
            "orderCancelTransaction": cancel,
            **({"orderFillTransaction": fill} if self.filled else {}),
        }

    def shown(self, order: BookOrder) -> dict[str, Any]:
        said = super().shown(order)
        number = int(said["id"])
        ended = {"state": "CANCELLED", "cancellingTransactionID": str(CANCELS_FROM + number)}
        if self.filled is None:
            said.pop("fillingTransactionID", None)
        return {**said, **ended, "units": order.request["order"]["units"]}

    def answer(self, path: str, book: Book) -> Said:
        last = path.rpartition("/")[2]
        if "/transactions/" in path and int(last) >= CANCELS_FROM:
            cancel = {"id": last, "type": "ORDER_CANCEL", "reason": "MARKET_HALTED"}
            return 200, {"transaction": cancel, "lastTransactionID": "9"}
        status, said = super().answer(path, book)
        if "transaction" in said:
            said["transaction"]["units"] = self.filled
        return status, said


ANSWERED = pytest.mark.parametrize(
    "faults", [FRIENDLY, BrokerFaults(lose_reply=100)], ids=["answered", "answer lost"]
)


@ANSWERED
async def test_an_order_that_is_cancelled_at_once_is_dead_and_says_why(
    database: Database, faults: BrokerFaults
) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=Cancelling(None), faults=faults) as broker:
        async with open_floor(database.url, OandaBroker("token", base_url=broker.url)) as floor:
            found = await floor.until_status(await floor.place("halted"), "dead", "sent")
            history = await floor.orders.history(found["id"])
        assert found["status"] == "dead"
        assert found["result"]["status"] == "CANCELLED"
        assert "MARKET_HALTED" in history[-1]["detail"]
        assert len(broker.orders) == 1


@ANSWERED
async def test_a_part_that_was_filled_before_the_cancel_reads_so(
    database: Database, faults: BrokerFaults
) -> None:
    with HostileBroker(Promise.WHILE_OPEN, dialect=Cancelling("4"), faults=faults) as broker:
        async with open_floor(database.url, OandaBroker("token", base_url=broker.url)) as floor:
            found = await floor.until_status(await floor.place("part", qty="10"), "sent", "dead")
        assert (found["status"], found["result"]["status"]) == ("sent", "PARTIALLY_FILLED_CANCELLED")
        assert [fill["qty"] for fill in found["result"]["fills"]] == ["4"]
        assert not found["result"]["is_followed"]


def created(**transactions: Any) -> Reply:
    create = {"id": "7", "clientExtensions": {"id": "key-1"}, "units": "-10"}
    return Reply(201, {}, json.dumps({"orderCreateTransaction": create, **transactions}).encode())


@pytest.mark.parametrize(
    ("transactions", "status", "live", "is_open"),
    [
        ({}, "PENDING", True, True),
        ({"orderFillTransaction": {"units": "-10"}}, "FILLED", True, False),
        ({"orderFillTransaction": {"units": "-4"}}, "PARTIALLY_FILLED", True, True),
        ({"orderFillTransaction": {}}, "PENDING", True, True),
        ({"orderCancelTransaction": {"reason": "X"}}, "CANCELLED", False, False),
        (
            {"orderFillTransaction": {"units": "-4"}, "orderCancelTransaction": {"reason": "X"}},
            "PARTIALLY_FILLED_CANCELLED",
            True,
            False,
        ),
        # Units that cannot be read show that something was filled, and not how much.
        ({"orderFillTransaction": {"units": "many"}}, "PARTIALLY_FILLED", True, True),
    ],
)
def test_each_answer_to_a_new_order_reads_as_what_happened(
    transactions: dict[str, Any], status: str, live: bool, is_open: bool
) -> None:
    order: OutgoingOrder = outgoing()
    verdict = OandaBroker("token").classify(order, created(**transactions))
    assert verdict.meaning is Meaning.ACCEPTED
    assert verdict.order is not None
    assert (verdict.order.status, verdict.order.live, verdict.order.is_open) == (status, live, is_open)
