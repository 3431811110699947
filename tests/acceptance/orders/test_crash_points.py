"""A worker that dies or stands still at the worst places: its order is at the broker once, and known to
be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fencepost_orders
from fencepost import outbox
from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.outbox.settings import OutboxSettings
from fencepost.testing import Child, Signals
from fencepost.testing._points import points_in
from fencepost_orders import _change_source as change_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import operator_calls
from fencepost_orders.broker import Promise
from fencepost_orders.request import OrderRequest, by_account_and_symbol
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.acceptance.orders.traders import LEASE_SECONDS, LIMITS, trade, trade_late
from tests.integration.orders.broker_env import VALID_SECONDS

SETTLED_SECONDS_MAX = 100.0
QUICK = ("orders.after_send",)
# Read from the source: a point that is added is died at.
FURTHER = sorted(
    {
        str(point.name)
        for part in (fencepost_orders, outbox)
        for point in points_in(Path(str(part.__file__)).parent)
        if point.hook == "crash_point"
    }
    - {*QUICK}
)
# Reached only with a change under way.
OF_CHANGES = tuple(point for point in FURTHER if "change" in point)
REST = [point for point in FURTHER if point not in OF_CHANGES]
POINTS = [*QUICK, *(pytest.param(point, marks=pytest.mark.full) for point in REST)]


def place(database: Database, key: str) -> None:
    request = OrderRequest.of(
        {"idempotency_key": key, "broker": "nothing", "symbol": "USDJPY", "intent": "BUY", "qty": "1"}
    )
    with database.connect() as connection:
        run(connection, operator_calls.declare_broker("nothing", LIMITS))
        run(connection, order_calls.accept(request, by_account_and_symbol(request)))


def worker(
    database: Database,
    broker: HostileBroker,
    signals: Signals,
    crash: str = "",
    *,
    valid_seconds: float | None = VALID_SECONDS,
    trading: Callable[..., Any] = trade,
) -> Child:
    described = {"url": broker.url, "promise": Promise.NOTHING.value, "valid_seconds": valid_seconds}
    return Child(trading, database.url, {"nothing": described}, 30, crash=crash, signals=signals)


def wait_until(signals: Signals, is_so: Callable[[], bool]) -> None:
    """Looked at again after each settlement, whichever worker made it."""
    while True:
        heard = signals.heard("outbox.settled")
        if is_so():
            return
        signals.expect("outbox.settled", count=heard + 1, within=SETTLED_SECONDS_MAX)


def status_of(database: Database) -> str:
    """Of the only order."""
    with database.connect() as connection:
        row = connection.execute("select status from fencepost.outbox_orders").fetchone()
    assert row is not None
    return str(row[0])


def is_sent(database: Database) -> bool:
    return status_of(database) == "sent"


def is_refused(database: Database) -> bool:
    """Whether any settlement was."""
    with database.connect() as connection:
        row = connection.execute(
            "select coalesce(sum(refused), 0) > 0 from fencepost.refusal_counts()"
        ).fetchone()
    return row == (True,)


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_is_killed_leaves_one_order(database: Database, point: str) -> None:
    # Only about an order whose answer was lost is anything asked.
    faults = BrokerFaults(lose_reply=100) if point == "orders.after_question" else FRIENDLY
    with HostileBroker(Promise.NOTHING, faults=faults) as broker, Signals() as signals:
        place(database, "killed")
        with worker(database, broker, signals, f"{point}:kill") as first:
            first.be_killed(within=60)
        with worker(database, broker, signals):
            wait_until(signals, lambda: is_sent(database))
        assert [one.client_id for one in broker.orders] == ["killed"]


def test_a_dead_sender_is_noticed_by_its_lease_and_not_when_its_order_would_count_as_stuck(
    database: Database,
) -> None:
    """The workers have leases of two seconds, and ten minutes for a delivery that hangs although its worker
    lives."""
    with HostileBroker(Promise.NOTHING) as broker, Signals() as signals:
        place(database, "orphan")
        with worker(database, broker, signals, "orders.after_send:kill") as first:
            first.be_killed(within=60)
        with worker(database, broker, signals):
            wait_until(signals, lambda: is_sent(database))
        with database.connect() as connection:
            steps = connection.execute(
                "select status_to, detail, extract(epoch from at - lag(at) over (order by audit_id))::float"
                " from fencepost.outbox_audit order by audit_id"
            ).fetchall()
    (silent,) = [step for step in steps if step[1] == "the sender went silent"]
    assert silent[0] == "unknown"
    assert LEASE_SECONDS <= silent[2] < OutboxSettings().stuck_seconds / 5


@pytest.mark.parametrize(
    "point",
    ["orders.after_change", *(pytest.param(point, marks=pytest.mark.full) for point in OF_CHANGES[1:])],
)
def test_a_worker_that_is_killed_leaves_one_replacement(database: Database, point: str) -> None:
    with HostileBroker(Promise.NOTHING) as broker, Signals() as signals:
        broker.book.fill_chance = 0.0
        place(database, "replaced")
        with worker(database, broker, signals):
            wait_until(signals, lambda: is_sent(database))
        with database.connect() as connection:
            (row,) = connection.execute("select id from fencepost.outbox_orders").fetchall()
            run(connection, change_source.replace_order(row[0], "r", {"qty": "7"}, "ann", "more"))
        with worker(database, broker, signals, f"{point}:kill") as first:
            first.be_killed(within=60)
        with worker(database, broker, signals):
            wait_until(signals, lambda: is_replaced(database))
        assert [one.request["qty"] for one in broker.orders] == ["1", "7"]
        assert broker.orders[0].replaced_by == broker.orders[1].broker_order_id


def test_the_points_of_changes_are_known() -> None:
    assert OF_CHANGES[0] == "orders.after_change"
    assert len(OF_CHANGES) == 3


def is_replaced(database: Database) -> bool:
    with database.connect() as connection:
        row = connection.execute("select state from fencepost.orders_changes").fetchone()
    return row == ("done",)


def requests_around_a_pause(
    database: Database, valid_seconds: float | None, paused: Callable[..., Any] = trade
) -> int:
    """How many requests arrive when a worker stands still before it sends, and wakes after its lease.

    Another worker has sent the order meanwhile; or a person has had it sent, because nothing proves that a
    request without a bound will not arrive."""
    with HostileBroker(Promise.NOTHING) as broker, Signals() as signals:
        place(database, "paused")
        how: dict[str, Any] = {"valid_seconds": valid_seconds}
        with worker(database, broker, signals, "orders.before_send:stop", trading=paused, **how) as first:
            first.wait_until_stopped(within=60)
            with worker(database, broker, signals, **how):
                if valid_seconds is None:
                    wait_until(signals, lambda: status_of(database) == "parked")
                    with database.connect() as connection:
                        run(connection, operator_calls.resolve(1, "parked", "queued", "ann", "never arrived"))
                wait_until(signals, lambda: is_sent(database))
                first.resume()
                # Its settlement is refused, but it is one: whatever it sent has come before it.
                wait_until(signals, lambda: is_refused(database))
        assert broker.client_ids() == {"paused"}
        return broker.broker_faults.total()


@pytest.mark.parametrize("valid_seconds", [VALID_SECONDS, None], ids=["requests end", "requests never end"])
def test_a_worker_that_stood_still_before_the_send_sends_nothing(
    database: Database, valid_seconds: float | None
) -> None:
    assert requests_around_a_pause(database, valid_seconds) == 1


def test_a_worker_that_does_not_look_at_its_lease_would_place_a_second_order(database: Database) -> None:
    assert requests_around_a_pause(database, None, trade_late) == 2
