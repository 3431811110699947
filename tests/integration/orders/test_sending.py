"""Orders reach a real server once, whatever it does to their replies."""

import asyncio

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.embedded import Database
from fencepost.errors import InFlight, Refusal
from fencepost.http_client import Reply
from fencepost.testing import at_crash_point
from fencepost_orders.broker import OutgoingOrder, Promise
from fencepost_orders.http_broker import HttpBroker
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.integration.orders.broker_env import STUCK_SOON, adapter_for, floor_with, open_floor, order

ALWAYS = 100.0
PROVING = (Promise.FOREVER, Promise.WINDOW, Promise.WHILE_OPEN, Promise.NOTHING)


async def test_one_key_put_in_ten_times_at_once_is_sent_once(database: Database) -> None:
    with HostileBroker(Promise.NOTHING) as broker:
        async with floor_with(database.url, broker) as floor:
            answers = await asyncio.gather(
                *(floor.orders.place(order("same")) for _ in range(10)), return_exceptions=True
            )
            accepted = [answer for answer in answers if not isinstance(answer, BaseException)]
            refused = [answer for answer in answers if isinstance(answer, BaseException)]
            assert all(isinstance(error, InFlight) for error in refused)
            ids = {answer.order_id for answer in accepted}
            assert len(ids) == 1
            await floor.until_status(ids.pop() or 0, "sent")
        assert [one.client_id for one in broker.orders] == ["same"]


@pytest.mark.parametrize("promise", PROVING)
async def test_a_5xx_backs_off_and_succeeds_where_non_arrival_can_be_proved(
    database: Database, promise: Promise
) -> None:
    with HostileBroker(promise, faults=BrokerFaults(fail_before=ALWAYS)) as broker:
        async with floor_with(database.url, broker) as floor:
            order_id = await floor.place("again")
            await floor.until_status(order_id, "unknown", "failed")
            broker.faults = FRIENDLY
            found = await floor.until_status(order_id, "sent")
            steps = await floor.steps(order_id)
        assert found["broker_order_id"] == "brk-1"
        assert found["retry_count"] >= 1
        assert ("sending", "unknown", "BROKER_5XX") in steps
        assert ("failed", "sending", "BROKER_5XX") in steps
        assert len(broker.orders) == 1


@pytest.mark.parametrize("promise", PROVING)
async def test_an_accepted_order_whose_answer_is_lost_is_found_and_not_repeated(
    database: Database, promise: Promise
) -> None:
    broker_faults = ["lose_reply", "fail_after", "close_halfway", "garble", "echo_another", "accept_late"]
    with HostileBroker(promise, late_seconds=0.1) as broker:
        async with floor_with(database.url, broker) as floor:
            for broker_fault in broker_faults:
                broker.faults = BrokerFaults(**{broker_fault: ALWAYS})
                order_id = await floor.place(broker_fault, symbol=broker_fault)
                found = await floor.until_status(order_id, "sent")
                assert found["broker_order_id"] == broker.orders[-1].broker_order_id
        assert [one.client_id for one in broker.orders] == broker_faults


async def test_a_400_is_dead_at_once(database: Database) -> None:
    with HostileBroker(Promise.NOTHING, faults=BrokerFaults(change_mind=ALWAYS)) as broker:
        async with floor_with(database.url, broker) as floor:
            order_id = await floor.place("wrong")
            found = await floor.until_status(order_id, "dead")
            steps = await floor.steps(order_id)
        assert (found["last_error"], found["retry_count"]) == ("BAD_REQUEST", 0)
        assert [to for _, to, _ in steps] == ["queued", "sending", "dead"]
        assert broker.book.refusals["random"] == 1


async def test_a_429_waits_and_spends_no_retry(database: Database) -> None:
    with HostileBroker(Promise.NOTHING, faults=BrokerFaults(limit=ALWAYS), retry_after_seconds=1) as broker:
        async with floor_with(database.url, broker) as floor:
            order_id = await floor.place("later")
            await floor.until("limited", lambda found: found["last_error"] == "RATE_LIMITED", order_id)
            broker.faults = FRIENDLY
            found = await floor.until_status(order_id, "sent")
        assert found["retry_count"] == 0


async def test_what_cannot_be_proved_is_parked_and_not_repeated(database: Database) -> None:
    with HostileBroker(Promise.NOTHING, faults=BrokerFaults(lose_request=ALWAYS)) as broker:
        async with floor_with(database.url, broker, valid_seconds=None) as floor:
            order_id = await floor.place("where")
            found = await floor.until_status(order_id, "parked")
        assert found["open_since"] is not None
        assert broker.broker_faults["lose_request"] == 1


async def test_a_broker_that_is_down_is_tried_again_without_a_doubt(database: Database) -> None:
    with HostileBroker(Promise.NOTHING) as broker:
        url = broker.url
        async with floor_with(database.url, broker, valid_seconds=None) as floor:
            await floor.place("warm", symbol="WARM")
            await asyncio.to_thread(broker.restart, 0.3)
            order_id = await floor.place("down")
            await floor.until_status(order_id, "sent", "parked")
        assert broker.url == url
        assert broker.doubled() == []


async def test_orders_of_one_key_arrive_in_the_order_of_their_acceptance(database: Database) -> None:
    with HostileBroker(Promise.FOREVER, faults=BrokerFaults(fail_before=30, lose_reply=20), seed=3) as broker:
        async with floor_with(database.url, broker) as floor:
            ids = [await floor.place(f"k{number}") for number in range(12)]
            for order_id in ids:
                await floor.until_status(order_id, "sent")
        assert [one.client_id for one in broker.orders] == [f"k{number}" for number in range(12)]


async def test_metrics_tell_what_happened(database: Database) -> None:
    with HostileBroker(Promise.FOREVER) as broker:
        async with floor_with(database.url, broker) as floor:
            order_id = await floor.place("counted")
            await floor.until_status(order_id, "sent")
            await floor.orders.place(order("counted"))
            with pytest.raises(Refusal):
                await floor.orders.place(order("counted", qty="2"))
            page = await floor.until_shown("fencepost_orders_retries_count 1.0")
    for line in (
        'fencepost_orders_sends_total{outcome="success"} 1.0',
        'fencepost_orders_takes_total{result="taken"} 1.0',
        'fencepost_orders_accepts_total{outcome="accepted"} 1.0',
        'fencepost_orders_accepts_total{outcome="replay"} 1.0',
        'fencepost_orders_accepts_total{outcome="mismatch"} 1.0',
        "fencepost_orders_lag_seconds_count 1.0",
        "fencepost_orders_retries_count 1.0",
        "# TYPE fencepost_orders_in_flight gauge",
    ):
        assert line in page, line


class Hanging(HttpBroker):
    """An adapter that passes the request on, and never comes back."""

    async def send_order(self, order: OutgoingOrder) -> Reply:
        await super().send_order(order)
        never: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        return await never


async def test_an_adapter_that_never_answers_does_not_hold_its_order_for_ever(database: Database) -> None:
    """It is asked about, as after any lost answer, and found: the broker had taken it."""
    with HostileBroker(Promise.FOREVER) as broker:
        adapter = adapter_for(broker.url, Promise.FOREVER)
        adapter.__class__ = Hanging
        async with open_floor(database.url, adapter, outbox_settings=STUCK_SOON) as floor:
            order_id = await floor.place("hangs")
            await floor.until_status(order_id, "sent")
            steps = await floor.steps(order_id)
        assert ("sending", "unknown", "UNKNOWN") in steps
        assert [one.client_id for one in broker.orders] == ["hangs"]


async def test_a_sender_that_is_stopped_between_take_and_send_leaves_no_lost_order(
    database: Database,
) -> None:
    crashed: list[bool] = []

    def crash() -> None:
        crashed.append(True)
        raise PlannedCrash

    with HostileBroker(Promise.NOTHING) as broker:
        async with floor_with(database.url, broker) as floor:
            with at_crash_point("orders.before_send", crash):
                order_id = await floor.place("crash")
                # That it is taken can be seen before its sender has come to the point.
                await floor.until("about to be sent", lambda found: bool(crashed), order_id)
            found = await floor.until_status(order_id, "sent")
        assert crashed
        assert found["requests"] == 2
        assert len(broker.orders) == 1
