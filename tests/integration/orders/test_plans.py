"""No statement on the way of an order reads a table from end to end, however long the history is."""

from importlib.resources import files

import psycopg

from fencepost.embedded import Database
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from tests.integration.orders.env import BROKER, RESULT, OrdersEnv

HISTORY = 3000
LONG = ("orders_order", "orders_idempotency_key", "orders_result", "orders_audit", "outbox_settled", "outbox")


def scans(admin: psycopg.Connection[tuple[object, ...]]) -> dict[str, int]:
    admin.execute("select pg_stat_clear_snapshot()")
    rows = admin.execute(
        "select relname::text, seq_scan from pg_stat_user_tables where relname = any (%s)", (list(LONG),)
    ).fetchall()
    return {str(name): int(str(count)) for name, count in rows}


def test_a_long_history_is_never_scanned(database: Database) -> None:
    market = OrdersEnv(database.url)
    market.declare(rate_per_second=1e6, burst=1e6)
    with database.connect_admin() as admin:
        admin.execute("select set_config('bench.size', %s, false)", (str(HISTORY),))
        admin.execute(files("bench").joinpath("fixture_data/orders.sql").read_text().encode())
        admin.commit()
        admin.autocommit = True
        before = scans(admin)
        _live_a_life(market)
        _follow(market, admin)
        market.connection.execute("select pg_stat_force_next_flush()")
        market.close()
        after = scans(admin)
        admin.execute("select count(*) from fencepost.orders_audit a where a.detail = 'x'")
        admin.execute("select pg_stat_force_next_flush()")
        shown = scans(admin)
    assert after == before
    assert shown["orders_audit"] > after["orders_audit"], "a scan would not have been seen"


def _live_a_life(market: OrdersEnv) -> None:
    """Everything that happens to orders again and again."""
    ids = [market.accepted(symbol=f"S{number}") for number in range(8)]
    market.accept("key-1", symbol="S0")
    sent, refused, lost, failed, *others = market.take()
    market.settle(sent, "sent")
    market.settle(refused, "dead", fate="not_this", code="BAD_REQUEST")
    market.settle(lost, "unknown", code="BROKER_5XX")
    market.settle(failed, "failed", fate="not_this", delay_seconds=9)
    market.settle(market.ask()[0], "parked", "asker-1")
    market.run(order_source.settle(BROKER, "worker-1", [_sent(one) for one in others]))
    market.run(order_source.expire_takes(BROKER, 10))
    market.run(order_calls.expire_due(10))
    market.run(order_calls.prune(86_400 * 400, 10))
    market.run(order_calls.history(ids[0]))
    market.run(order_calls.listing(status="dead", limit=5))
    market.run(order_calls.listing(status="parked", limit=5))
    market.run(order_calls.listing(limit=5))
    market.run(order_calls.counts())
    market.get(ids[0])
    market.run(operator_calls.resolve(lost.id, "parked", "dead", "ann", "not there"))


def _follow(market: OrdersEnv, admin: psycopg.Connection[tuple[object, ...]]) -> None:
    """An order that the broker is not done with, asked about until it is."""
    market.accepted("followed", symbol="F")
    market.settle(market.take_one(), "sent", result={**RESULT, "open": True})
    # As if a minute had passed.
    admin.execute("update fencepost.orders_fill_tracking set ask_at = ask_at - interval '1 minute'")
    (followed,) = market.run(fill_source.take(BROKER, 60, 10))
    heard = fill_source.FollowUp(
        followed.id, followed.take, {"digest": "sha256:y", "status": "filled"}, over=True
    )
    market.run(fill_source.settle(BROKER, "asker-1", [heard]))
    market.run(fill_source.counts())


def _sent(taken: order_source.TakenOrder) -> order_source.OrderSettlement:
    return order_source.OrderSettlement(taken.id, taken.take, "sent", result={"digest": "sha256:x"})
