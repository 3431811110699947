"""A worker that dies or stands still at the worst places: its order is at the broker once, and known to
be."""

import time

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.orders import desk, order
from fencepost.orders.broker import Promise
from fencepost.orders.request import OrderRequest, by_account_and_symbol
from fencepost.testing import Child
from fencepost.testing.broker import HostileBroker
from tests.acceptance.orders.traders import STRENGTH, trade
from tests.integration.orders.trading_floor import VALID_SECONDS

QUICK = ("orders.after_send",)
REST = (
    "outbox.after_take",
    "orders.before_send",
    "outbox.after_delivery",
    "outbox.before_settle",
    "outbox.after_settle",
)
POINTS = [*QUICK, *(pytest.param(point, marks=pytest.mark.full) for point in REST)]


def place(database: Database, key: str) -> None:
    request = OrderRequest.of(
        {"idempotency_key": key, "broker": "nothing", "symbol": "USDJPY", "intent": "BUY", "qty": "1"}
    )
    with database.connect() as connection:
        run(connection, desk.declare_broker("nothing", STRENGTH))
        run(connection, order.accept(request, by_account_and_symbol(request)))


def worker(database: Database, broker: HostileBroker, crash: str = "") -> Child:
    described = {"url": broker.url, "promise": Promise.NOTHING.value, "valid_seconds": VALID_SECONDS}
    return Child(trade, database.url, {"nothing": described}, 30, crash=crash)


def wait_for(database: Database, what: str, within: float = 60) -> None:
    """Until the only order is so."""
    give_up = time.monotonic() + within
    with psycopg.connect(database.url, autocommit=True) as connection:
        while True:
            row = connection.execute(
                "select status, open_since is null from fencepost.outbox_orders"
            ).fetchone()
            if row is not None and row[0] == what:
                return
            assert time.monotonic() < give_up, f"it is {row} and not {what}"
            time.sleep(0.05)


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_killed_leaves_one_order(database: Database, point: str) -> None:
    with HostileBroker(Promise.NOTHING) as broker:
        place(database, "killed")
        with worker(database, broker, f"{point}:kill") as first:
            first.be_killed(within=60)
        with worker(database, broker):
            wait_for(database, "sent")
        assert [one.client_id for one in broker.orders] == ["killed"]


def test_a_worker_that_stood_still_before_the_send_sends_too_late(database: Database) -> None:
    """The worst pause: taken, about to send, and awake again when another has sent the order long ago."""
    with HostileBroker(Promise.NOTHING) as broker:
        place(database, "paused")
        with worker(database, broker, "orders.before_send:stop") as first:
            first.wait_until_stopped(within=60)
            with worker(database, broker):
                wait_for(database, "sent")
                first.resume()
                give_up = time.monotonic() + 30
                while not broker.book.refusals["stale"]:
                    assert time.monotonic() < give_up, "the late request never came"
                    time.sleep(0.05)
        assert [one.client_id for one in broker.orders] == ["paused"]
