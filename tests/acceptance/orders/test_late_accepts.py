"""A storm of 5xx and late acceptances at brokers that forget a client id and do not bound a request's life.

Nothing is doubled, and fewer than one order in a hundred waits for a person.
"""

import asyncio
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.outbox.settings import OutboxSettings
from fencepost_orders._alpaca import AlpacaBroker
from fencepost_orders._oanda import OandaBroker
from fencepost_orders._settings import OrdersSettings
from fencepost_orders.broker import BrokerAdapter, Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest
from fencepost_orders.service import Orders
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_dialect import Dialect
from fencepost_orders.testing.broker_faults import BrokerFaults
from tests.integration.orders.broker_env import adapter_for
from tests.integration.orders.dialects import AlpacaDialect, OandaDialect
from tests.waiting_for import found

LIMITS = BrokerLimits(rate_per_second=1e6, burst=1e6, failures_max=1_000_000)
AS_SHIPPED = OrdersSettings()
# Every request arrives, and two in five are not answered, or answered before they have.
LATE = BrokerFaults(fail_after=15, accept_late=20, lose_reply=5)
NEVER = BrokerFaults(fail_after=15, accept_late=16, lose_reply=5, fail_before=4)
WAITING = """
select broker, count(*) filter (where o.status = 'parked' or exists (
    select from fencepost.outbox_orders h
    where h.status = 'parked' and h.broker = o.broker and h.order_key = o.order_key)), count(*)
from fencepost.outbox_orders o group by broker order by broker
"""
UNSETTLED = (
    "select count(*) from fencepost.outbox_orders where settled_at is null and (%s or status <> 'parked')"
)


class ManyAPage(OandaDialect):
    page = 500


@dataclass(frozen=True)
class Storm:
    """How many orders a broker gets, what it does to them, and how long it is asked."""

    count: int
    faults: BrokerFaults = LATE
    late_seconds: float = 1.5
    valid_seconds: float | None = None
    settings: OrdersSettings = AS_SHIPPED
    within_seconds: float = 100.0
    until_none_waits: bool = False
    """What is parked is waited for too: it is asked about as long as it is."""


@dataclass(frozen=True)
class Report:
    waiting: Counter[str]
    total: Counter[str]
    doubled: list[str]
    wrong: list[str]

    @property
    def share(self) -> float:
        return self.waiting.total() / self.total.total()


def adapters(urls: dict[str, str], valid_seconds: float | None) -> dict[str, BrokerAdapter]:
    return {
        "alpaca": AlpacaBroker("k", "s", base_url=urls["alpaca"], request_valid_seconds=valid_seconds),
        "oanda": OandaBroker("t", base_url=urls["oanda"], request_valid_seconds=valid_seconds),
        "plain": adapter_for(urls["plain"], Promise.WHILE_OPEN, valid_seconds=valid_seconds),
    }


async def health(database: Database, storm: Storm) -> Report:
    dialects: dict[str, Dialect] = {"alpaca": AlpacaDialect(), "oanda": ManyAPage(), "plain": Dialect()}
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(
                HostileBroker(
                    Promise.WHILE_OPEN,
                    dialect=dialect,
                    faults=storm.faults,
                    late_seconds=storm.late_seconds,
                    seed=number,
                )
            )
            for number, (name, dialect) in enumerate(dialects.items())
        }
        urls = {name: broker.url for name, broker in brokers.items()}
        async with Fencepost(database.url) as fp:
            made = adapters(urls, storm.valid_seconds)
            orders = Orders(
                fp,
                {name: Broker(adapter, LIMITS) for name, adapter in made.items()},
                storm.settings,
                OutboxSettings(backoff_base_seconds=0.2, idle_seconds=0.05),
            )
            async with orders.running():
                for number in range(storm.count):
                    await asyncio.gather(*(orders.place(_order(name, number)) for name in brokers))
                await _until_still(database, storm)
        for broker in brokers.values():
            await asyncio.to_thread(broker.quiet)
        return _report(database, brokers)


async def _until_still(database: Database, storm: Storm) -> None:
    with database.connect_admin() as admin:
        admin.autocommit = True

        async def left() -> object:
            return admin.execute(UNSETTLED, (storm.until_none_waits,)).fetchone()

        await found("every order has ended", left, lambda rows: rows == (0,), within=storm.within_seconds)


def _report(database: Database, brokers: dict[str, HostileBroker]) -> Report:
    with database.connect_admin() as admin:
        counted = admin.execute(WAITING).fetchall()
        ended = admin.execute(
            "select broker, idempotency_key, status from fencepost.outbox_orders"
        ).fetchall()
    books = {name: broker.client_ids() for name, broker in brokers.items()}
    return Report(
        Counter({name: waiting for name, waiting, _ in counted}),
        Counter({name: total for name, _, total in counted}),
        [key for broker in brokers.values() for key in broker.doubled()],
        [
            f"{key} is {status}"
            for name, key, status in ended
            if (status == "sent" and key not in books[name]) or (status == "dead" and key in books[name])
        ],
    )


def _order(broker: str, number: int) -> OrderRequest:
    return OrderRequest.of(
        {
            "idempotency_key": f"{broker}-{number}",
            "broker": broker,
            "account": "101-1",
            "symbol": f"S{number}",
            "intent": "BUY" if number % 2 else "SELL",
            "qty": str(number + 1),
        }
    )


async def test_what_a_broker_accepts_late_waits_for_no_caller(database: Database) -> None:
    report = await health(database, Storm(40))
    assert (report.doubled, report.wrong) == ([], [])
    assert report.share < 0.01, report


async def test_what_comes_after_it_was_parked_is_found_too(database: Database) -> None:
    """Everything late is later than the time in which it is asked about before it is parked."""
    soon = OrdersSettings(ask_seconds=0.5, parked_ask_seconds=0.5)
    report = await health(database, Storm(20, late_seconds=3.0, settings=soon, until_none_waits=True))
    assert (report.doubled, report.wrong) == ([], [])
    assert report.waiting.total() == 0, report


async def test_asked_once_and_never_again_many_would_wait(database: Database) -> None:
    """The storm can be lost: this is what one question and then nothing leaves to people."""
    once = OrdersSettings(ask_seconds=0, parked_ask_seconds=86_400)
    report = await health(database, Storm(40, settings=once))
    assert report.doubled == []
    assert report.share > 0.05, report


@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_the_share_that_waits_for_a_person_at_full_size(database: Database) -> None:
    storm = Storm(500, late_seconds=5.0, within_seconds=600)
    report = await health(database, storm)
    print(f"5xx and late accepts, adapters as shipped: {_told(report)}")  # noqa: T201 - Figures for people.
    assert (report.doubled, report.wrong) == ([], [])
    assert report.share < 0.01, report


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("valid_seconds", [10.0, None], ids=["bounded", "unbounded"])
async def test_requests_that_never_arrive_are_proved_absent_only_where_they_have_a_bound(
    database: Database, valid_seconds: float | None
) -> None:
    settings = OrdersSettings(ask_seconds=30)
    storm = Storm(
        500, NEVER, late_seconds=2.0, valid_seconds=valid_seconds, settings=settings, within_seconds=600
    )
    report = await health(database, storm)
    print(f"with requests that never arrive, valid for {valid_seconds} s: {_told(report)}")  # noqa: T201
    assert (report.doubled, report.wrong) == ([], [])
    if valid_seconds is not None:
        assert report.share < 0.01, report


def _told(report: Report) -> str:
    by_broker = ", ".join(f"{name} {report.waiting[name]} of {report.total[name]}" for name in report.total)
    return f"{by_broker}; {100 * report.share:.2f} % wait; doubled {len(report.doubled)}"
