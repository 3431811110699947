"""Cancels and replacements at the broker: whatever is lost, an order that is reported cancelled is cancelled,
and one that is replaced is replaced once."""

import contextlib
from collections.abc import Callable, Generator
from typing import Any
from unittest import mock

import pytest

from fencepost.embedded import Database
from fencepost.errors import AlreadyFinished, InFlight, InvalidInput, Mismatch, NotFound
from fencepost.http_client import Reply
from fencepost_orders import _changer as changer
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._change_source import ChangeSettlement, TakenChange
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._outcome import result_of
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import BrokerAdapter, BrokerOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.http_rules import HttpBrokerConfig
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.integration.orders.broker_env import MARGIN_SECONDS, BrokerEnv, adapter_for, open_floor
from tests.integration.orders.dialects import AlpacaDialect, OandaDialect

# Followed quickly, and a cancel that was accepted is not sent again meanwhile.
QUICKLY = OrdersSettings(margin_seconds=MARGIN_SECONDS, ask_lease_seconds=5, follow_seconds=1, ask_seconds=60)


def plain(url: str) -> BrokerAdapter:
    return adapter_for(url, Promise.WHILE_OPEN)


def alpaca(url: str) -> BrokerAdapter:
    return AlpacaBroker("key", "secret", base_url=url)


def oanda(url: str) -> BrokerAdapter:
    return OandaBroker("secret", base_url=url)


Make = Callable[[str], BrokerAdapter]
EACH = pytest.mark.parametrize(
    ("make", "dialect"),
    [(plain, Dialect), (alpaca, AlpacaDialect), (oanda, OandaDialect)],
    ids=["plain", "alpaca", "oanda"],
)
LOST = ("lose_reply", "fail_after", "accept_late", "close_halfway", "garble", "duplicate", "slow")


def hostile(dialect: type[Dialect] = Dialect, **how: Any) -> HostileBroker:
    broker = HostileBroker(Promise.WHILE_OPEN, dialect=dialect(), late_seconds=0.1, **how)
    broker.book.fill_chance = 0.0
    return broker


async def sent(floor: BrokerEnv, key: str, **fields: Any) -> int:
    order_id = await floor.place(key, symbol=key, qty="10", limit_price="145", account="101-1", **fields)
    await floor.until_status(order_id, "sent")
    return order_id


async def ended(floor: BrokerEnv, order_id: int) -> dict[str, Any]:
    """The order, once its last change has ended."""
    return await floor.until(
        "changed", lambda seen: bool(seen["changes"] and seen["changes"][-1]["settled_at"]), order_id
    )


@EACH
async def test_an_order_is_cancelled_at_the_broker_whatever_becomes_of_the_answers(
    database: Database, make: Make, dialect: type[Dialect]
) -> None:
    with hostile(dialect) as broker:
        async with open_floor(database.url, make(broker.url), settings=QUICKLY) as floor:
            for fault in ("plain", *LOST):
                broker.faults = FRIENDLY
                order_id = await sent(floor, f"cancel-{fault}")
                broker.faults = FRIENDLY if fault == "plain" else BrokerFaults(**{fault: 100.0})
                said = await floor.orders.cancel_at_broker(order_id, "c1", "ann", "not wanted")
                assert said == "requested"
                seen = await ended(floor, order_id)
                assert (seen["changes"][0]["state"], seen["status"]) == ("done", "sent"), (fault, seen)
                assert seen["result"]["status"].lower().startswith("cancel"), fault
                assert not seen["result"]["is_followed"]
                history = await floor.orders.history(order_id)
                assert [row["actor"] for row in history if "new -> queued" in str(row["detail"])] == ["ann"]
        assert all(order.is_cancelled for order in broker.orders)
        assert broker.doubled() == []


@EACH
async def test_an_order_is_replaced_once_and_the_replacement_is_followed(
    database: Database, make: Make, dialect: type[Dialect]
) -> None:
    with hostile(dialect) as broker:
        async with open_floor(database.url, make(broker.url), settings=QUICKLY) as floor:
            for fault in ("plain", *LOST):
                broker.faults = FRIENDLY
                order_id = await sent(floor, f"replace-{fault}")
                before = await floor.orders.get(order_id=order_id)
                broker.faults = FRIENDLY if fault == "plain" else BrokerFaults(**{fault: 100.0})
                changes = {"qty": "7", "limit_price": "144.5"}
                first = await floor.orders.replace(order_id, "r1", changes, "ann", "cheaper")
                again = await floor.orders.replace(order_id, "r1", changes, "ann", "cheaper")
                assert (first.outcome, again.outcome) == ("accepted", "replay")
                assert first.change_id == again.change_id
                seen = await ended(floor, order_id)
                (change,) = seen["changes"]
                assert change["state"] == "done", (fault, seen)
                assert seen["broker_order_id"] not in {None, before["broker_order_id"]}
                assert (seen["terms"]["qty"], seen["request_json"]["qty"]) == ("7", "10")
                assert change["replaced_result"]["broker_order_id"] == before["broker_order_id"]
                # The replacement is filled, and the order reads so.
                broker.faults = FRIENDLY
                (made,) = [order for order in broker.orders if order.client_id == change["client_id"]]
                made.is_open = False
                filled = await floor.until("filled", lambda one: not one["result"]["is_followed"], order_id)
                assert filled["result"]["status"].lower() == "filled"
        assert broker.doubled() == []
        assert len(broker.orders) == 2 * len(("plain", *LOST))


@pytest.mark.parametrize("fault", ["lose_request", "fail_before", "limit"])
async def test_a_request_that_never_arrived_is_sent_again(database: Database, fault: str) -> None:
    with hostile(retry_after_seconds=0) as broker:
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            order_id = await sent(floor, "again")
            broker.faults = BrokerFaults(**{fault: 100.0})
            await floor.orders.replace(order_id, "r1", {"qty": "7"}, "ann", "less")
            await floor.until("tried twice", lambda one: one["changes"][0]["requests"] > 1, order_id)
            broker.faults = FRIENDLY
            assert (await ended(floor, order_id))["changes"][0]["state"] == "done"
        assert len(broker.orders) == 2


@EACH
async def test_an_order_that_is_filled_first_is_not_reported_as_cancelled_or_replaced(
    database: Database, make: Make, dialect: type[Dialect]
) -> None:
    with hostile(dialect) as broker:
        async with open_floor(database.url, make(broker.url), settings=QUICKLY) as floor:
            for kind in ("cancel", "replace"):
                order_id = await sent(floor, kind)
                broker.orders[-1].is_open = False
                if kind == "cancel":
                    await floor.orders.cancel_at_broker(order_id, "c", "ann", "too late")
                else:
                    await floor.orders.replace(order_id, "c", {"qty": "7"}, "ann", "too late")
                seen = await ended(floor, order_id)
                assert (seen["changes"][0]["state"], seen["changes"][0]["last_error"]) == (
                    "refused",
                    "TOO_LATE",
                )
                assert seen["result"]["status"].lower() == "filled"
        assert [order.is_filled for order in broker.orders] == [True, True]


async def test_a_change_that_the_broker_refuses_leaves_the_order_open_and_followed(
    database: Database,
) -> None:
    with hostile() as broker:
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            order_id = await sent(floor, "kept")
            broker.faults = BrokerFaults(change_mind=100)
            await floor.orders.replace(order_id, "r1", {"qty": "7"}, "ann", "less")
            seen = await ended(floor, order_id)
        assert (seen["changes"][0]["state"], seen["changes"][0]["last_error"]) == ("refused", "BAD_REQUEST")
        assert seen["result"]["is_followed"]
        assert broker.orders[0].is_open
        assert len(broker.orders) == 1


async def test_a_cancel_of_an_order_whose_outcome_is_unknown_waits_until_it_is_found(
    database: Database,
) -> None:
    """The broker takes the order late: nothing could be cancelled before."""
    with HostileBroker(Promise.WHILE_OPEN, faults=BrokerFaults(accept_late=100), late_seconds=None) as broker:
        broker.book.fill_chance = 0.0
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            order_id = await floor.place("late")
            await floor.until_status(order_id, "unknown", "parked", "failed")
            broker.faults = FRIENDLY
            said = await floor.orders.cancel_at_broker(order_id, "c1", "ann", "not wanted")
            assert said in {"requested", "dead"}
            found = await floor.until_status(order_id, "sent", "dead")
            if found["status"] == "sent":
                found = await ended(floor, order_id)
                assert found["changes"][0]["state"] == "done"
        assert all(order.is_cancelled for order in broker.orders)


async def test_the_kill_switch_cancels_what_is_open_and_nothing_is_sent_afterwards(
    database: Database,
) -> None:
    with hostile() as broker:
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            open_ids = [await sent(floor, f"open-{number}") for number in range(3)]
            other = await floor.place("other", symbol="other", account="elsewhere")
            await floor.until_status(other, "sent")
            await floor.orders.halt("acme", "101-1", "ann", "stop")
            waiting = await floor.place("waiting", account="101-1")
            done = await floor.orders.cancel_open("acme", "101-1", "k", "ann", "stop")
            assert (done.dead, done.requested, done.left_open) == (1, 3, 0)
            for order_id in open_ids:
                assert (await ended(floor, order_id))["changes"][0]["state"] == "done"
            assert (await floor.orders.get(order_id=waiting))["status"] == "dead"
            again = await floor.orders.cancel_open("acme", "101-1", "k2", "ann", "again")
            assert (again.dead, again.requested) == (0, 0)
        assert sorted(order.client_id for order in broker.orders if order.is_open) == ["other"]


async def test_an_adapter_that_cannot_is_refused_clearly(database: Database) -> None:
    with hostile() as broker:
        config = HttpBrokerConfig(base_url=broker.url, promise=Promise.WHILE_OPEN)
        async with open_floor(database.url, HttpBroker(config), settings=QUICKLY) as floor:
            order_id = await sent(floor, "here")
            with pytest.raises(InvalidInput, match="cannot cancel"):
                await floor.orders.cancel_at_broker(order_id, "c", "ann", "not wanted")
            with pytest.raises(InvalidInput, match="cannot replace"):
                await floor.orders.replace(order_id, "c", {"qty": "7"}, "ann", "less")
            done = await floor.orders.cancel_open("acme", None, "k", "ann", "stop")
            assert (done.requested, done.left_open) == (0, 1)
        assert broker.orders[0].is_open


async def test_what_makes_no_change_is_refused(database: Database) -> None:
    with hostile() as broker:
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            order_id = await sent(floor, "kept")
            replace = floor.orders.replace
            with pytest.raises(InvalidInput, match="takes no stop"):
                await replace(order_id, "c", {"stop_price": "1"}, "ann", "why")
            with pytest.raises(InvalidInput, match="qty"):
                await replace(order_id, "c", {"qty": "-1"}, "ann", "why")
            with pytest.raises(InvalidInput, match="changes must have"):
                await replace(order_id, "c", {}, "ann", "why")
            with pytest.raises(InvalidInput, match="changes must have"):
                await replace(order_id, "c", {"symbol": "OTHER"}, "ann", "why")
            with pytest.raises(NotFound):
                await replace(999, "c", {"qty": "1"}, "ann", "why")
            with pytest.raises(NotFound):
                await floor.orders.cancel_at_broker(999, "c", "ann", "why")
            broker.faults = BrokerFaults(lose_request=100)
            await replace(order_id, "c", {"qty": "7"}, "ann", "why")
            with pytest.raises(Mismatch):
                await replace(order_id, "c", {"qty": "8"}, "ann", "why")
            with pytest.raises(InFlight):
                await replace(order_id, "d", {"qty": "8"}, "ann", "why")
            broker.faults = FRIENDLY
            await ended(floor, order_id)
            await floor.orders.cancel_at_broker(order_id, "e", "ann", "why")
            await ended(floor, order_id)
            with pytest.raises(AlreadyFinished):
                await floor.orders.cancel_at_broker(order_id, "f", "ann", "why")
            assert await floor.orders.cancel_at_broker(order_id, "e", "ann", "why") == "replay"
        assert [order.is_cancelled for order in broker.orders] == [False, True]


@contextlib.contextmanager
def believing_the_answer() -> Generator[None]:
    """A broker's yes to a cancel is taken for the cancel."""
    right = changer.answered

    def answered(change: TakenChange, reply: Reply, *others: Any) -> ChangeSettlement:
        if 200 <= reply.status < 300:
            told = BrokerOrder(change.order_client_id, change.broker_order_id, "cancelled", is_cancelled=True)
            return ChangeSettlement(change.id, change.take, "done", "none", result=result_of(told))
        return right(change, reply, *others)

    with mock.patch.object(changer, "answered", answered):
        yield


async def reported_and_real(database: Database) -> tuple[str, bool]:
    """A cancel that the broker accepts, and an order that is filled before the cancel takes effect: what is
    reported, and whether the order is filled."""
    with HostileBroker(Promise.WHILE_OPEN, late_seconds=None, lazy_changes=True) as broker:
        broker.book.fill_chance = 0.0
        async with open_floor(database.url, plain(broker.url), settings=QUICKLY) as floor:
            order_id = await sent(floor, "raced")
            await floor.orders.cancel_at_broker(order_id, "c", "ann", "not wanted")
            await floor.until("asked for", lambda one: one["changes"][0]["requests"] > 0, order_id)
            await floor.until("answered", lambda one: one["changes"][0]["state"] != "sending", order_id)
            broker.orders[0].is_open = False
            seen = await ended(floor, order_id)
        broker.quiet()
        return str(seen["changes"][0]["state"]), broker.orders[0].is_filled


async def test_a_yes_that_is_taken_for_the_cancel_reports_a_filled_order_as_cancelled(
    database: Database,
) -> None:
    with believing_the_answer():
        assert await reported_and_real(database) == ("done", True)


async def test_without_the_bug_the_order_is_reported_as_filled(database: Database) -> None:
    assert await reported_and_real(database) == ("refused", True)
