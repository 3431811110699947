"""Planted bugs: each makes a second order, or a lost one, and would be seen."""

import contextlib
from collections.abc import Generator, Sequence
from typing import Any
from unittest import mock

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.embedded import Database
from fencepost.testing import at_crash_point
from fencepost_orders import _order_source as order_source
from fencepost_orders import _outcome as outcome
from fencepost_orders import _resend as resend
from fencepost_orders import _sender as sender
from fencepost_orders import operator_calls
from fencepost_orders._order_source import OrderSettlement, PendingOrderSource, TakenOrder
from fencepost_orders._resend import Decision, Facts, Next
from fencepost_orders.broker import AnswerVerdict, Declaration, LookupFinding, Meaning, Promise
from fencepost_orders.testing.broker import HostileBroker
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFaults
from tests.integration.orders.broker_env import STUCK_SOON, VALID_SECONDS, floor_with

ALWAYS = 100.0


def crash() -> None:
    raise PlannedCrash


@contextlib.contextmanager
def rewinding() -> Generator[None]:
    """A stuck order goes back into the queue, as if nothing had left."""

    async def expire(self: Any, limit: int) -> int:
        stuck = await self._database.run(order_source.expire_takes(self._broker, limit))
        for order_id in stuck:
            await self._database.run(operator_calls.resolve(order_id, "unknown", "queued", "bug", "rewound"))
        return len(stuck)

    with mock.patch.object(PendingOrderSource, "expire", expire):
        yield


@contextlib.contextmanager
def retrying_after_5xx() -> Generator[None]:
    """A 5xx is taken for a request that placed nothing."""
    right = outcome.answered

    def answered(taken: TakenOrder, verdict: AnswerVerdict, *others: Any) -> OrderSettlement:
        if verdict.meaning is Meaning.UNKNOWN:
            return OrderSettlement(taken.id, taken.take, "failed", "not_this", verdict.code)
        return right(taken, verdict, *others)

    with mock.patch.object(sender, "answered", answered):
        yield


@contextlib.contextmanager
def believing_absence() -> Generator[None]:
    """Not there means never there, whenever it is asked."""
    right = resend.decide

    def decide(declared: Declaration, facts: Facts, **how: Any) -> Next:
        if facts.finding is LookupFinding.ABSENT:
            return Next(Decision.RESEND_PROVED)
        return right(declared, facts, **how)

    with mock.patch.object(outcome, "decide", decide):
        yield


async def doubles_of_a_stuck_sender(database: Database) -> list[str]:
    """The sender dies after the broker has answered, before anything is written."""
    with HostileBroker(Promise.NOTHING) as broker:
        async with floor_with(database.url, broker, outbox_settings=STUCK_SOON) as floor:
            with at_crash_point("outbox.after_delivery", crash):
                order_id = await floor.place("stuck")
                await floor.until("stuck", lambda found: found["requests"] == 1, order_id)
                await floor.until("looked at", lambda found: found["status"] != "sending", order_id)
            await floor.until_status(order_id, "sent")
        return broker.doubled()


async def doubles_of(
    database: Database, faults: BrokerFaults, *, valid_seconds: float = VALID_SECONDS
) -> list[str]:
    """What is accepted late comes when all is over, if its request is still valid then."""
    with HostileBroker(Promise.NOTHING, faults=faults, late_seconds=None) as broker:
        async with floor_with(database.url, broker, valid_seconds=valid_seconds) as floor:
            order_id = await floor.place("once")
            # The error of a first try may be gone again before the test looks: then the broker was asked.
            await floor.until("tried", lambda found: bool(found["last_error"] or found["asks"]), order_id)
            broker.faults = FRIENDLY
            await floor.until_status(order_id, "sent")
        broker.quiet()
        return broker.doubled()


async def test_a_rewind_instead_of_a_question_doubles_an_order(database: Database) -> None:
    with rewinding():
        assert await doubles_of_a_stuck_sender(database) == ["stuck"]


async def test_without_the_rewind_it_does_not(database: Database) -> None:
    assert await doubles_of_a_stuck_sender(database) == []


@pytest.mark.parametrize(
    ("bug", "faults"),
    [
        (retrying_after_5xx, BrokerFaults(fail_after=ALWAYS)),
        (believing_absence, BrokerFaults(accept_late=ALWAYS)),
    ],
)
async def test_a_planted_bug_doubles_an_order_and_the_right_code_does_not(
    database: Database, bug: Any, faults: BrokerFaults
) -> None:
    with bug():
        assert await doubles_of(database, faults, valid_seconds=600) == ["once"]


@pytest.mark.parametrize("faults", [BrokerFaults(fail_after=ALWAYS), BrokerFaults(accept_late=ALWAYS)])
async def test_without_the_bug_the_order_is_there_once(database: Database, faults: BrokerFaults) -> None:
    assert await doubles_of(database, faults) == []


async def test_dead_behind_an_open_request_would_be_a_live_order_called_dead(database: Database) -> None:
    """The database's own guard: without it, a refusal of the repeat ends an order that lives."""
    with database.connect_admin() as admin:
        definition = admin.execute(
            "select pg_get_functiondef('fencepost._orders_open_after'::regproc)"
        ).fetchone()
        assert definition is not None
        wrong = str(definition[0]).replace(
            "when p_fate = 'not_this' and p_order.open_since = p_order.stamped_at", "when p_fate = 'not_this'"
        )
        assert wrong != definition[0]
        admin.execute(wrong.encode())
    statuses: Sequence[str] = await _refused_repeat(database)
    assert "dead" in statuses


async def test_with_the_guard_it_is_found_alive(database: Database) -> None:
    assert await _refused_repeat(database) == ["sent"]


async def _refused_repeat(database: Database) -> Sequence[str]:
    """Accepted with a lost reply, late enough that the question finds nothing; the repeat is refused."""
    faults = BrokerFaults(accept_late=ALWAYS)
    with HostileBroker(Promise.FOREVER, faults=faults, late_seconds=None) as broker:
        async with floor_with(database.url, broker, valid_seconds=None) as floor:
            order_id = await floor.place("repeat")
            await floor.until("tried", lambda found: found["last_error"] is not None, order_id)
            broker.faults = BrokerFaults(change_mind=ALWAYS)
            await floor.until("repeated", lambda found: found["requests"] > 1, order_id)
            broker.quiet()
            found = await floor.until_status(order_id, "sent", "dead")
        assert broker.client_ids() == {"repeat"}
        return [found["status"]]
