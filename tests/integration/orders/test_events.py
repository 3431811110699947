"""What webhooks are told of orders: each transition once, in the transaction that decides it."""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, LiteralString

import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost.testing import Clock
from fencepost.webhooks import calls as webhooks
from fencepost_orders import _change_source as change_source
from fencepost_orders import _fill_source as fill_source
from fencepost_orders import _order_calls as order_calls
from fencepost_orders import _order_source as order_source
from fencepost_orders import operator_calls
from fencepost_orders._change_source import ChangeSettlement
from fencepost_orders._fill_source import FollowUp
from fencepost_orders._order_source import OrderSettlement
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.request import OrderRequest, by_itself

LIMITS = BrokerLimits(rate_per_second=1e6, burst=1e6)
SAID = (
    "select payload from (select id, payload, channel from fencepost.outbox union all"
    " select id, payload, channel from fencepost.outbox_settled) m where channel = %s order by id"
)


# Transitions that were told another number of times than once.
MISTOLD: LiteralString = """
    select a.outbox_id, a.status_to, count(*) from fencepost.outbox_audit a
    where a.status_to in ('sent', 'dead', 'parked') and a.status_from is distinct from a.status_to
    group by 1, 2
    except
    select (m.payload -> 'order' ->> 'id')::bigint, split_part(m.payload ->> 'event', '.', 2), count(*)
    from fencepost.outbox_messages m where m.channel = 'audit' group by 1, 2
"""


class Desk:
    """One broker, acme, of which the webhook `audit` is told."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clock = clock
        self.connection = database.connect()
        self._admin = database.connect_admin()
        for connection in (self.connection, self._admin):
            connection.autocommit = True
        self.run(operator_calls.declare_broker("acme", LIMITS, can_ask=True))
        self.run(change_source.declare_abilities("acme", can_cancel=True, can_replace=True))
        self.run(webhooks.add("audit", "https://audit.example/in", ["orders"], "ann"))

    def run(self, call: Any) -> Any:
        return run(self.connection, call)

    def place(self, key: str = "k", **fields: Any) -> int:
        asked = {"idempotency_key": key, "broker": "acme", "symbol": "USDJPY", "intent": "BUY", "qty": "10"}
        request = OrderRequest.of({**asked, **fields})
        order_id = self.run(order_calls.accept(request, by_itself(request))).order_id
        assert order_id is not None
        return int(order_id)

    def sent(self, key: str = "k", **report: Any) -> int:
        """An order that the broker has."""
        order_id = self.place(key)
        self.settle("sent", result=result(**report))
        return order_id

    def settle(self, outcome: Any, **how: Any) -> None:
        """Take what is due, and settle it."""
        taken = self.run(order_source.take("acme", "me", 60, 10))
        settlements = [OrderSettlement(one.id, one.take, outcome, **how) for one in taken]
        assert settlements
        for answer in self.run(order_source.settle("acme", "me", settlements)):
            assert answer.refusal is None

    def answer(self, outcome: Any, *, parked: bool = False, **how: Any) -> None:
        """Query what is unknown, and settle it."""
        self.later(86_400)
        (one,) = self.run(order_source.take_unknown("acme", "me", 60, 10, parked=parked))
        self.run(order_source.settle("acme", "me", [OrderSettlement(one.id, one.take, outcome, **how)]))

    def report(self, over: bool = False, **report: Any) -> None:
        """The broker's next word about an order that it has."""
        self.later(3600)
        (one,) = self.run(fill_source.take("acme", 60, 10))
        heard = result(**report) if report else None
        self.run(fill_source.settle("acme", "me", [FollowUp(one.id, one.take, heard, over)]))

    def change(self, outcome: Any, report: Mapping[str, Any]) -> None:
        """Settle the change that is due."""
        (one,) = self.run(change_source.take("acme", "me", 60, 10))
        settlement = ChangeSettlement(one.id, one.take, outcome, fate="none", result=report)
        (settled,) = self.run(change_source.settle("acme", "me", [settlement]))
        assert settled.refusal is None

    def later(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def said(self, channel: str = "audit") -> list[dict[str, Any]]:
        return [row[0] for row in self._admin.execute(SAID, (channel,)).fetchall()]

    @property
    def events(self) -> list[str]:
        return [str(one["event"]).removeprefix("order.") for one in self.said()]

    def mistold(self) -> list[Any]:
        return self._admin.execute(MISTOLD).fetchall()

    def plant(self, function: str, right: str, wrong: str) -> None:
        row = self._admin.execute("select pg_get_functiondef(%s::regproc)", (function,)).fetchone()
        assert row is not None
        assert right in row[0]
        self._admin.execute(str(row[0]).replace(right, wrong).encode())

    def close(self) -> None:
        self.connection.close()
        self._admin.close()


def result(status: str = "accepted", qty: str | None = None, *, is_open: bool = True) -> Mapping[str, Any]:
    fills = [] if qty is None else [{"qty": qty}]
    return {
        "broker_order_id": "brk-1",
        "status": status,
        "fills": fills,
        "digest": f"{status}{qty}{is_open}",
        "open": is_open,
    }


@pytest.fixture
def desk(database: Database, clock: Clock) -> Generator[Desk]:
    desk = Desk(database, clock)
    yield desk
    desk.close()


EMITTED = "select payload from fencepost.workflow_events where event = 'bought'"


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ({"result": result("filled", "10", is_open=False)}, "filled"),
        ({"result": result("expired", "4", is_open=False)}, "closed"),
        ({"outcome": "dead", "fate": "not_this", "code": "BAD_REQUEST"}, "dead"),
    ],
)
def test_the_end_of_an_order_emits_the_event_that_it_names(
    desk: Desk, answer: dict[str, Any], end: str
) -> None:
    order_id = desk.place(meta={"workflow_event": "bought"})
    desk.settle(**{"outcome": "sent", **answer})

    [(emitted,)] = desk.connection.execute(EMITTED).fetchall()
    assert (emitted["order_id"], emitted["end"]) == (order_id, end)


def test_a_fill_that_comes_later_emits_the_event_without_a_webhook(desk: Desk) -> None:
    desk.run(webhooks.remove("audit", "ann"))
    desk.place(meta={"workflow_event": "bought"})
    desk.settle("sent", result=result(qty="4"))
    assert desk.connection.execute(EMITTED).fetchall() == []

    desk.report(over=True, status="filled", qty="10", is_open=False)

    [(emitted,)] = desk.connection.execute(EMITTED).fetchall()
    assert (emitted["end"], emitted["filled_quantity"]) == ("filled", "10")


def test_a_name_that_cannot_be_an_event_does_not_keep_an_order_from_its_end(desk: Desk) -> None:
    for number, name in enumerate(["", "x" * 600, {"a": 1}, 5]):
        desk.place(f"k{number}", meta={"workflow_event": name}, symbol=f"S{number}")
    desk.settle("sent", result=result("filled", "10", is_open=False))
    assert desk.events.count("filled") == 4


def test_a_message_has_the_documented_shape(desk: Desk) -> None:
    order_id = desk.sent(status="partially_filled", qty="4")
    sent, filled = desk.said()
    assert set(sent) == {"version", "id", "event", "at", "sequence", "reason", "order"}
    assert (sent["version"], sent["id"], sent["event"], sent["sequence"]) == (
        1,
        f"order-{order_id}-1",
        "order.sent",
        1,
    )
    assert filled["order"] == {
        "id": order_id,
        "idempotency_key": "k",
        "broker": "acme",
        "account": "default",
        "symbol": "USDJPY",
        "intent": "BUY",
        "state": "sent",
        "quantity": "10",
        "filled_quantity": "4",
        "broker_order_id": "brk-1",
        "broker_status": "partially_filled",
        "resend_of": None,
    }
    assert (filled["id"], filled["event"], filled["sequence"]) == (
        f"order-{order_id}-2",
        "order.partially_filled",
        2,
    )


def test_the_sender_tells_how_a_request_ended(desk: Desk) -> None:
    desk.place("refused")
    desk.settle("dead", fate="not_this", code="BAD_REQUEST")
    desk.place("waits")
    desk.settle("failed", fate="not_this", code="NETWORK_TIMEOUT")
    assert desk.events == ["dead"]
    assert desk.said()[0]["reason"] == "BAD_REQUEST"


def test_a_batch_with_an_old_delivery_of_the_same_order_tells_once(desk: Desk) -> None:
    """A worker that stood still may have taken an order again: both of its deliveries end in one batch."""
    order_id = desk.place()
    (old,) = desk.run(order_source.take("acme", "me", 60, 1))
    desk.later(61)
    desk.run(order_source.expire_takes("acme", 10))
    desk.run(operator_calls.resolve(order_id, "unknown", "queued", "ann", "again"))
    (new,) = desk.run(order_source.take("acme", "me", 60, 1))
    both = [OrderSettlement(order_id, one.take, "sent", result=result()) for one in (old, new)]
    desk.run(order_source.settle("acme", "me", both))
    assert desk.events == ["sent"]


def test_a_question_tells_that_an_order_is_parked_once_and_how_it_ended(desk: Desk) -> None:
    desk.place()
    desk.settle("unknown", code="BROKER_5XX")
    desk.answer("parked", code="BROKER_5XX")
    desk.answer("parked", parked=True, code="BROKER_5XX")
    desk.answer("parked", parked=True, code="UNKNOWN")
    assert desk.events == ["parked"]
    desk.answer("sent", parked=True, result=result())
    assert desk.events == ["parked", "sent"]
    assert [one["sequence"] for one in desk.said()] == [1, 2]


def test_fills_are_told_as_they_grow_and_the_end_once(desk: Desk) -> None:
    desk.sent()
    desk.report(status="accepted")
    desk.report(status="partially_filled", qty="3")
    desk.report(status="partially_filled", qty="3.0")
    desk.report(status="filled", qty="10", is_open=False, over=True)
    assert desk.events == ["sent", "partially_filled", "filled"]
    assert [one["order"]["filled_quantity"] for one in desk.said()] == ["0", "3", "10"]


@pytest.mark.parametrize(
    ("first", "then", "events"),
    [
        ({}, {"status": "canceled", "qty": "3", "is_open": False}, ["partially_filled", "closed"]),
        ({}, {"status": "expired", "is_open": False}, ["closed"]),
        ({}, {}, ["unfollowed"]),
        ({"status": "filled", "qty": "10", "is_open": False}, None, ["filled"]),
        ({"status": "FILLED", "is_open": False}, None, ["filled"]),
        ({"status": "canceled", "is_open": False}, None, ["closed"]),
    ],
)
def test_the_end_at_the_broker(
    desk: Desk, first: dict[str, Any], then: dict[str, Any] | None, events: Sequence[str]
) -> None:
    desk.sent(**first)
    if then is not None:
        desk.report(over=True, **then)
    assert desk.events == ["sent", *events]


def test_an_operator_s_decisions_are_told(desk: Desk) -> None:
    decisions: dict[str, operator_calls.Resolution] = {"seen": "sent", "gone": "dead", "again": "queued"}
    for key, outcome in decisions.items():
        order_id = desk.place(key)
        desk.settle("unknown")
        desk.answer("parked")
        desk.run(operator_calls.resolve(order_id, "parked", outcome, "ann", "looked"))
        if outcome == "queued":
            desk.settle("dead", fate="not_this", code="BAD_REQUEST")
    cancelled = desk.place("cancelled")
    desk.run(operator_calls.cancel(cancelled, "ann", "not wanted"))
    by_key = {
        key: [(one["event"], one["reason"]) for one in desk.said() if one["order"]["idempotency_key"] == key]
        for key in ("seen", "gone", "again", "cancelled")
    }
    assert by_key == {
        "seen": [("order.parked", None), ("order.sent", "RESOLVED")],
        "gone": [("order.parked", None), ("order.dead", "RESOLVED")],
        "again": [("order.parked", None), ("order.dead", "BAD_REQUEST")],
        "cancelled": [("order.dead", "CANCELLED")],
    }
    assert desk.mistold() == []


def test_a_resent_order_ends_and_the_new_one_names_it(desk: Desk) -> None:
    order_id = desk.place()
    desk.settle("unknown")
    desk.answer("parked")
    old = desk.run(order_calls.get(order_id=order_id))
    new_id = desk.run(operator_calls.resend_of(old, "parked", by_itself, "ann", "again"))
    desk.settle("sent", result=result())
    assert [(one["event"], one["order"]["id"], one["order"]["resend_of"]) for one in desk.said()] == [
        ("order.parked", order_id, None),
        ("order.dead", order_id, None),
        ("order.sent", new_id, order_id),
    ]


def test_an_order_that_expires_is_told(desk: Desk) -> None:
    desk.place("soon", expires_at="2100-01-01T00:00:00Z")
    desk.later(80 * 366 * 86_400)
    assert len(desk.run(order_calls.expire_due(10))) == 1
    assert [(one["event"], one["reason"]) for one in desk.said()] == [("order.dead", "EXPIRED")]


def test_a_kill_switch_is_one_message_for_each_turn(desk: Desk) -> None:
    desk.place()
    for _ in range(2):
        desk.run(operator_calls.halt("acme", None, "ann", "news"))
        desk.run(operator_calls.halt("acme", "default", "ann", "that one"))
    for _ in range(2):
        desk.run(operator_calls.resume("acme", None, "ann", "over"))
        desk.run(operator_calls.resume("acme", "default", "ann", "over"))
    assert [(one["event"], one["broker"]["account"], one["actor"]) for one in desk.said()] == [
        ("broker.halted", None, "ann"),
        ("broker.halted", "default", "ann"),
        ("broker.resumed", None, "ann"),
        ("broker.resumed", "default", "ann"),
    ]


def test_refused_credentials_halt_the_broker_and_the_orders_that_were_under_way(desk: Desk) -> None:
    first, second = desk.place("first"), desk.place("second")
    desk.settle("dead", fate="not_this", code="UNAUTHORIZED", health="unauthorized")
    told = [(one["event"], one.get("order", {}).get("id")) for one in desk.said()]
    assert told == [("broker.halted", None), ("order.dead", first), ("order.halted", second)]


def test_nothing_is_told_of_what_is_rolled_back(desk: Desk) -> None:
    order_id = desk.place()
    desk.connection.autocommit = False
    with desk.connection.transaction(force_rollback=True):
        run(desk.connection, operator_calls.cancel(order_id, "ann", "not wanted"))
    assert desk.said() == []


def test_every_webhook_with_the_topic_is_told_and_no_other(desk: Desk) -> None:
    desk.run(webhooks.add("books", None, ["orders"], "ann"))
    desk.run(webhooks.add("quiet", "https://quiet.example", [], "ann"))
    desk.sent()
    assert [desk.said("books"), desk.said("quiet")] == [desk.said(), []]
    assert len(desk.said()) == 1


def test_without_a_webhook_nothing_is_written(desk: Desk) -> None:
    desk.run(webhooks.remove("audit", "ann"))
    desk.sent()
    assert desk.said() == []


def test_a_report_that_cannot_be_read_does_not_stop_its_settlement(desk: Desk) -> None:
    desk.place()
    strange: dict[str, Any] = {
        **result(),
        "fills": [{"qty": "1e9"}, 7, {"qty": {}}, {"qty": "2"}],
        "digest": "x",
    }
    desk.settle("sent", result=strange)
    assert [one["order"]["filled_quantity"] for one in desk.said()] == ["0", "2"]


# Planted bugs.


def test_a_question_that_is_told_as_a_transition_would_be_seen(desk: Desk) -> None:
    desk.plant("fencepost._orders_tell_transition", " and p_from is distinct from p_to", "")
    desk.place()
    desk.settle("unknown", code="BROKER_5XX")
    desk.answer("parked", code="BROKER_5XX")
    assert desk.mistold() == []
    desk.answer("parked", parked=True, code="UNKNOWN")
    assert desk.events == ["parked", "parked"]
    assert len(desk.mistold()) == 1


def test_an_expiry_that_is_not_told_would_be_seen(desk: Desk) -> None:
    desk.plant("fencepost._orders_expire_one", "perform fencepost._orders_tell_transition", "perform row")
    desk.place("soon", expires_at="2100-01-01T00:00:00Z")
    desk.later(80 * 366 * 86_400)
    desk.run(order_calls.expire_due(10))
    assert len(desk.mistold()) == 1


def test_an_order_that_is_cancelled_at_the_broker_is_closed_once(desk: Desk) -> None:
    order_id = desk.sent(status="partially_filled", qty="4")
    desk.run(change_source.cancel(order_id, "c", "ann", "not wanted"))
    desk.change("done", result("cancelled", "6", is_open=False))
    assert desk.events == ["sent", "partially_filled", "partially_filled", "closed"]
    assert desk.said()[-1]["order"]["filled_quantity"] == "6"


def test_an_order_that_was_told_as_closed_is_not_closed_again_by_its_cancel(desk: Desk) -> None:
    order_id = desk.sent()
    desk.run(change_source.cancel(order_id, "c", "ann", "not wanted"))
    desk.report(over=True, status="cancelled", is_open=False)
    desk.change("done", result("cancelled", is_open=False))
    assert desk.events == ["sent", "closed"]


def test_a_replacement_is_told_and_its_fills_are_its_own(desk: Desk) -> None:
    order_id = desk.sent(status="partially_filled", qty="4")
    desk.run(change_source.replace_order(order_id, "r", {"qty": "6"}, "ann", "less"))
    desk.change("done", {**result(), "broker_order_id": "brk-2"})
    desk.report(over=True, status="filled", qty="6", is_open=False)
    assert desk.events == ["sent", "partially_filled", "replaced", "filled"]
    replaced, filled = desk.said()[-2:]
    assert (replaced["order"]["broker_order_id"], replaced["order"]["quantity"]) == ("brk-2", "6")
    assert filled["order"]["filled_quantity"] == "6"
