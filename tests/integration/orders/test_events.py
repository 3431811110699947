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


class EventsEnv:
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
def env(database: Database, clock: Clock) -> Generator[EventsEnv]:
    env = EventsEnv(database, clock)
    yield env
    env.close()


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
    env: EventsEnv, answer: dict[str, Any], end: str
) -> None:
    order_id = env.place(meta={"workflow_event": "bought"})
    env.settle(**{"outcome": "sent", **answer})

    [(emitted,)] = env.connection.execute(EMITTED).fetchall()
    assert (emitted["order_id"], emitted["end"]) == (order_id, end)


def test_a_fill_that_comes_later_emits_the_event_without_a_webhook(env: EventsEnv) -> None:
    env.run(webhooks.remove("audit", "ann"))
    env.place(meta={"workflow_event": "bought"})
    env.settle("sent", result=result(qty="4"))
    assert env.connection.execute(EMITTED).fetchall() == []

    env.report(over=True, status="filled", qty="10", is_open=False)

    [(emitted,)] = env.connection.execute(EMITTED).fetchall()
    assert (emitted["end"], emitted["filled_quantity"]) == ("filled", "10")


def test_a_name_that_cannot_be_an_event_does_not_keep_an_order_from_its_end(env: EventsEnv) -> None:
    for number, name in enumerate(["", "x" * 600, {"a": 1}, 5]):
        env.place(f"k{number}", meta={"workflow_event": name}, symbol=f"S{number}")
    env.settle("sent", result=result("filled", "10", is_open=False))
    assert env.events.count("filled") == 4


def test_a_message_has_the_documented_shape(env: EventsEnv) -> None:
    order_id = env.sent(status="partially_filled", qty="4")
    sent, filled = env.said()
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


def test_the_sender_tells_how_a_request_ended(env: EventsEnv) -> None:
    env.place("refused")
    env.settle("dead", fate="not_this", code="BAD_REQUEST")
    env.place("waits")
    env.settle("failed", fate="not_this", code="NETWORK_TIMEOUT")
    assert env.events == ["dead"]
    assert env.said()[0]["reason"] == "BAD_REQUEST"


def test_a_batch_with_an_old_delivery_of_the_same_order_tells_once(env: EventsEnv) -> None:
    """A worker that stood still may have taken an order again: both of its deliveries end in one batch."""
    order_id = env.place()
    (old,) = env.run(order_source.take("acme", "me", 60, 1))
    env.later(61)
    env.run(order_source.expire_takes("acme", 10))
    env.run(operator_calls.resolve(order_id, "unknown", "queued", "ann", "again"))
    (new,) = env.run(order_source.take("acme", "me", 60, 1))
    both = [OrderSettlement(order_id, one.take, "sent", result=result()) for one in (old, new)]
    env.run(order_source.settle("acme", "me", both))
    assert env.events == ["sent"]


def test_a_question_tells_that_an_order_is_parked_once_and_how_it_ended(env: EventsEnv) -> None:
    env.place()
    env.settle("unknown", code="BROKER_5XX")
    env.answer("parked", code="BROKER_5XX")
    env.answer("parked", parked=True, code="BROKER_5XX")
    env.answer("parked", parked=True, code="UNKNOWN")
    assert env.events == ["parked"]
    env.answer("sent", parked=True, result=result())
    assert env.events == ["parked", "sent"]
    assert [one["sequence"] for one in env.said()] == [1, 2]


def test_fills_are_told_as_they_grow_and_the_end_once(env: EventsEnv) -> None:
    env.sent()
    env.report(status="accepted")
    env.report(status="partially_filled", qty="3")
    env.report(status="partially_filled", qty="3.0")
    env.report(status="filled", qty="10", is_open=False, over=True)
    assert env.events == ["sent", "partially_filled", "filled"]
    assert [one["order"]["filled_quantity"] for one in env.said()] == ["0", "3", "10"]


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
    env: EventsEnv, first: dict[str, Any], then: dict[str, Any] | None, events: Sequence[str]
) -> None:
    env.sent(**first)
    if then is not None:
        env.report(over=True, **then)
    assert env.events == ["sent", *events]


def test_an_operator_s_decisions_are_told(env: EventsEnv) -> None:
    decisions: dict[str, operator_calls.Resolution] = {"seen": "sent", "gone": "dead", "again": "queued"}
    for key, outcome in decisions.items():
        order_id = env.place(key)
        env.settle("unknown")
        env.answer("parked")
        env.run(operator_calls.resolve(order_id, "parked", outcome, "ann", "looked"))
        if outcome == "queued":
            env.settle("dead", fate="not_this", code="BAD_REQUEST")
    cancelled = env.place("cancelled")
    env.run(operator_calls.cancel(cancelled, "ann", "not wanted"))
    by_key = {
        key: [(one["event"], one["reason"]) for one in env.said() if one["order"]["idempotency_key"] == key]
        for key in ("seen", "gone", "again", "cancelled")
    }
    assert by_key == {
        "seen": [("order.parked", None), ("order.sent", "RESOLVED")],
        "gone": [("order.parked", None), ("order.dead", "RESOLVED")],
        "again": [("order.parked", None), ("order.dead", "BAD_REQUEST")],
        "cancelled": [("order.dead", "CANCELLED")],
    }
    assert env.mistold() == []


def test_a_resent_order_ends_and_the_new_one_names_it(env: EventsEnv) -> None:
    order_id = env.place()
    env.settle("unknown")
    env.answer("parked")
    old = env.run(order_calls.get(order_id=order_id))
    new_id = env.run(operator_calls.resend_of(old, "parked", by_itself, "ann", "again"))
    env.settle("sent", result=result())
    assert [(one["event"], one["order"]["id"], one["order"]["resend_of"]) for one in env.said()] == [
        ("order.parked", order_id, None),
        ("order.dead", order_id, None),
        ("order.sent", new_id, order_id),
    ]


def test_an_order_that_expires_is_told(env: EventsEnv) -> None:
    env.place("soon", expires_at="2100-01-01T00:00:00Z")
    env.later(80 * 366 * 86_400)
    assert len(env.run(order_calls.expire_due(10))) == 1
    assert [(one["event"], one["reason"]) for one in env.said()] == [("order.dead", "EXPIRED")]


def test_a_kill_switch_is_one_message_for_each_turn(env: EventsEnv) -> None:
    env.place()
    for _ in range(2):
        env.run(operator_calls.halt("acme", None, "ann", "news"))
        env.run(operator_calls.halt("acme", "default", "ann", "that one"))
    for _ in range(2):
        env.run(operator_calls.resume("acme", None, "ann", "over"))
        env.run(operator_calls.resume("acme", "default", "ann", "over"))
    assert [(one["event"], one["broker"]["account"], one["actor"]) for one in env.said()] == [
        ("broker.halted", None, "ann"),
        ("broker.halted", "default", "ann"),
        ("broker.resumed", None, "ann"),
        ("broker.resumed", "default", "ann"),
    ]


def test_refused_credentials_halt_the_broker_and_the_orders_that_were_under_way(env: EventsEnv) -> None:
    first, second = env.place("first"), env.place("second")
    env.settle("dead", fate="not_this", code="UNAUTHORIZED", health="unauthorized")
    told = [(one["event"], one.get("order", {}).get("id")) for one in env.said()]
    assert told == [("broker.halted", None), ("order.dead", first), ("order.halted", second)]


def test_nothing_is_told_of_what_is_rolled_back(env: EventsEnv) -> None:
    order_id = env.place()
    env.connection.autocommit = False
    with env.connection.transaction(force_rollback=True):
        run(env.connection, operator_calls.cancel(order_id, "ann", "not wanted"))
    assert env.said() == []


def test_every_webhook_with_the_topic_is_told_and_no_other(env: EventsEnv) -> None:
    env.run(webhooks.add("books", None, ["orders"], "ann"))
    env.run(webhooks.add("quiet", "https://quiet.example", [], "ann"))
    env.sent()
    assert [env.said("books"), env.said("quiet")] == [env.said(), []]
    assert len(env.said()) == 1


def test_without_a_webhook_nothing_is_written(env: EventsEnv) -> None:
    env.run(webhooks.remove("audit", "ann"))
    env.sent()
    assert env.said() == []


def test_a_report_that_cannot_be_read_does_not_stop_its_settlement(env: EventsEnv) -> None:
    env.place()
    strange: dict[str, Any] = {
        **result(),
        "fills": [{"qty": "1e9"}, 7, {"qty": {}}, {"qty": "2"}],
        "digest": "x",
    }
    env.settle("sent", result=strange)
    assert [one["order"]["filled_quantity"] for one in env.said()] == ["0", "2"]


# Planted bugs.


def test_a_question_that_is_told_as_a_transition_would_be_seen(env: EventsEnv) -> None:
    env.plant("fencepost._orders_tell_transition", " and p_from is distinct from p_to", "")
    env.place()
    env.settle("unknown", code="BROKER_5XX")
    env.answer("parked", code="BROKER_5XX")
    assert env.mistold() == []
    env.answer("parked", parked=True, code="UNKNOWN")
    assert env.events == ["parked", "parked"]
    assert len(env.mistold()) == 1


def test_an_expiry_that_is_not_told_would_be_seen(env: EventsEnv) -> None:
    env.plant("fencepost._orders_expire_one", "perform fencepost._orders_tell_transition", "perform row")
    env.place("soon", expires_at="2100-01-01T00:00:00Z")
    env.later(80 * 366 * 86_400)
    env.run(order_calls.expire_due(10))
    assert len(env.mistold()) == 1


def test_an_order_that_is_cancelled_at_the_broker_is_closed_once(env: EventsEnv) -> None:
    order_id = env.sent(status="partially_filled", qty="4")
    env.run(change_source.cancel(order_id, "c", "ann", "not wanted"))
    env.change("done", result("cancelled", "6", is_open=False))
    assert env.events == ["sent", "partially_filled", "partially_filled", "closed"]
    assert env.said()[-1]["order"]["filled_quantity"] == "6"


def test_an_order_that_was_told_as_closed_is_not_closed_again_by_its_cancel(env: EventsEnv) -> None:
    order_id = env.sent()
    env.run(change_source.cancel(order_id, "c", "ann", "not wanted"))
    env.report(over=True, status="cancelled", is_open=False)
    env.change("done", result("cancelled", is_open=False))
    assert env.events == ["sent", "closed"]


def test_a_replacement_is_told_and_its_fills_are_its_own(env: EventsEnv) -> None:
    order_id = env.sent(status="partially_filled", qty="4")
    env.run(change_source.replace_order(order_id, "r", {"qty": "6"}, "ann", "less"))
    env.change("done", {**result(), "broker_order_id": "brk-2"})
    env.report(over=True, status="filled", qty="6", is_open=False)
    assert env.events == ["sent", "partially_filled", "replaced", "filled"]
    replaced, filled = env.said()[-2:]
    assert (replaced["order"]["broker_order_id"], replaced["order"]["quantity"]) == ("brk-2", "6")
    assert filled["order"]["filled_quantity"] == "6"
