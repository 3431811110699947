"""The network port of a change: sends a cancel or a replacement to the broker, and asks what became of it.

The answer to a change proves nothing. It may be lost, and a broker that accepts a cancel may still fill the
order first. What the broker reports of the order afterwards proves it:

    kind      the order          the replacement    what follows
    cancel    cancelled                             done
    cancel    replaced                              goes on with the replacement, if it is ours
    cancel    over otherwise                        refused: too late
    replace   over               there, live        done
    replace   over otherwise     not there          refused: too late
    any       open               not there          sent again if its request was lost, refused if the broker
                                                    refused it, else asked again
    any       no answer          any                asked again

A repeat is safe: a request names the broker's own id of the order, and a broker cancels or replaces an order
at most once. A change that no answer ends is asked about until its order ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from fencepost.backoff import Backoff
from fencepost.crashpoints import crash_point
from fencepost.http_client import MaybeSent, NotSent, Reply
from fencepost_orders._change_source import ChangeOutcome, ChangeSettlement, TakenChange
from fencepost_orders._order_source import BrokerHealth
from fencepost_orders._outcome import health_of, result_of
from fencepost_orders.broker import (
    BrokerAdapter,
    BrokerOrder,
    Code,
    FoundOrder,
    LookupFinding,
    LookupScope,
    OrderChanger,
    kept_answer,
)
from fencepost_orders.http_rules import told_to_wait_seconds

TOO_LATE = "TOO_LATE"
REPLACED = "REPLACED"


@dataclass(frozen=True, slots=True)
class ChangePolicy:
    """How often a change is sent and asked about."""

    retry_max: int = 8
    backoff: Backoff = field(default_factory=lambda: Backoff(1.0, 300.0))
    first_ask_seconds: float = 0.1
    resend_seconds: float = 60.0
    """How long a broker that accepted a change may take before it is sent again."""
    retry_after_max_seconds: float = 300.0


class OrderChangeSender:
    """Sends one change, or asks about it."""

    def __init__(self, adapter: BrokerAdapter, policy: ChangePolicy) -> None:
        self._adapter = adapter
        self._policy = policy

    async def deliver(self, message: TakenChange) -> ChangeSettlement:
        if message.state == "unknown":
            return await self._ask(message)
        crash_point("orders.before_change")
        if message.taken_until <= datetime.now(UTC):
            # The worker stalled, and another may ask about the change by now.
            return _say(message, "asking", fate="not_this", detail="taken too long ago to be sent")
        changer = cast("OrderChanger", self._adapter)
        try:
            if message.kind == "cancel":
                reply = await changer.cancel_order(message.order())
            else:
                reply = await changer.replace_order(message.order(), message.replacement())
        except NotSent as error:
            return not_sent(message, str(error), self._policy)
        except MaybeSent as error:
            return _asked_soon(message, Code.NETWORK_TIMEOUT, str(error), self._policy, health="failed")
        crash_point("orders.after_change")
        return answered(message, reply, self._policy)

    def failed(self, message: TakenChange, error: BaseException) -> ChangeSettlement:
        return _asked_soon(message, Code.UNKNOWN, f"{type(error).__name__}: {error}"[:1000], self._policy)

    async def _ask(self, message: TakenChange) -> ChangeSettlement:
        order = await self._adapter.find_order(message.order())
        replacement = None
        if message.kind == "replace":
            replacement = await self._adapter.find_order(message.replacement())
        crash_point("orders.after_change_question")
        return asked(message, order, replacement, self._adapter.declaration.lookup, self._policy)


def not_sent(change: TakenChange, detail: str, policy: ChangePolicy) -> ChangeSettlement:
    """The request did not leave: send it again, as often as allowed."""
    return _again(change, Code.NETWORK_TIMEOUT, detail, policy, fate="not_this", health="failed")


def answered(change: TakenChange, reply: Reply, policy: ChangePolicy) -> ChangeSettlement:
    """The broker answered the request. It says whether the request can still take effect, and no more."""
    kept = None if 200 <= reply.status < 300 else kept_answer(reply)
    if 200 <= reply.status < 300:
        return _asked_soon(change, None, None, policy, health="ok")
    if reply.status == 429:
        wait_seconds = min(told_to_wait_seconds(reply) or 1.0, policy.retry_after_max_seconds)
        limited = _say(change, "again", fate="not_this", code=Code.RATE_LIMITED, detail=kept)
        return replace(limited, delay_seconds=wait_seconds, health="limited")
    if reply.status in {401, 403}:
        return _again(change, Code.UNAUTHORIZED, kept, policy, fate="not_this", health="failed")
    if 400 <= reply.status < 500 and reply.status not in {408, 425}:
        # Refused: because the order is over, or because it cannot be changed. The order says which.
        refused = _asked_soon(change, Code.BAD_REQUEST, kept, policy, health="ok")
        return replace(refused, fate="not_this")
    return _asked_soon(change, Code.BROKER_5XX, kept, policy, health="failed")


def asked(
    change: TakenChange,
    order: FoundOrder,
    replacement: FoundOrder | None,
    lookup: LookupScope,
    policy: ChangePolicy,
) -> ChangeSettlement:
    """What the reports of the order, and of its replacement, mean for the change."""
    health = health_of(order)
    if replacement is not None and health_of(replacement) != "ok":
        health = health_of(replacement)
    settled = _decided(change, order, replacement, lookup, policy)
    if health in {"ask_limited", "exhausted"}:
        told = max(order.retry_after_seconds or 0.0, (replacement and replacement.retry_after_seconds) or 0.0)
        wait_seconds = max(settled.delay_seconds or 0.0, min(told, policy.retry_after_max_seconds))
        settled = replace(settled, delay_seconds=wait_seconds)
    return replace(settled, health=health)


def _decided(
    change: TakenChange,
    order: FoundOrder,
    replacement: FoundOrder | None,
    lookup: LookupScope,
    policy: ChangePolicy,
) -> ChangeSettlement:
    shown = order.order
    if order.finding is LookupFinding.ABSENT and lookup is LookupScope.OPEN and replacement is None:
        return _say(change, "refused", fate="none", code=TOO_LATE, detail="it is over, and not shown how")
    if shown is None or shown.client_id not in {None, change.order_client_id}:
        return _ask_again(change, order, policy)
    if shown.is_open and shown.live:
        return _while_open(change, replacement, policy)
    if change.kind == "replace":
        return _replaced(change, shown, replacement, policy)
    return _cancelled(change, shown)


def _while_open(
    change: TakenChange, replacement: FoundOrder | None, policy: ChangePolicy
) -> ChangeSettlement:
    new = _ours(change, replacement)
    if new is None:
        return _still_open(change, policy)
    if new.live:
        return _ask_again(change, replacement, policy)
    rejected = f"the replacement was rejected: {new.why or new.status}"
    return _say(change, "refused", fate="not_this", code=Code.BAD_REQUEST, detail=rejected)


def _cancelled(change: TakenChange, shown: BrokerOrder) -> ChangeSettlement:
    if shown.replaced_by is not None:
        replaced = _say(change, "replaced", fate="none", code=REPLACED, result=result_of(shown))
        return replace(replaced, detail=f"replaced by {shown.replaced_by}", delay_seconds=1.0)
    if shown.is_cancelled:
        return _say(change, "done", fate="none", detail=shown.why or shown.status, result=result_of(shown))
    return _too_late(change, shown)


def _replaced(
    change: TakenChange, shown: BrokerOrder, replacement: FoundOrder | None, policy: ChangePolicy
) -> ChangeSettlement:
    assert replacement is not None
    new = _ours(change, replacement)
    if new is not None and (new.live or shown.replaced_by is not None):
        done = _say(change, "done", fate="none", detail=new.status, result=result_of(new))
        return replace(done, replaced=result_of(shown))
    if new is None and replacement.finding is not LookupFinding.ABSENT:
        return _ask_again(change, replacement, policy)
    is_replaced = shown.replaced_by is not None or shown.is_cancelled
    if new is None and is_replaced and _age_seconds(change) < policy.resend_seconds:
        # The broker may show the end of the one before the beginning of the other.
        return _ask_again(change, replacement, policy)
    return _too_late(change, shown)


def _ours(change: TakenChange, found: FoundOrder | None) -> BrokerOrder | None:
    """The replacement, if the broker shows it."""
    order = None if found is None else found.order
    return order if order is not None and order.client_id == change.client_id else None


def _still_open(change: TakenChange, policy: ChangePolicy) -> ChangeSettlement:
    """The change has not taken effect: by its last answer it never will, may still, or was lost."""
    if change.last_error == Code.BAD_REQUEST:
        detail = "the broker refused it, and the order is open"
        if change.open_since is None:
            return _say(change, "refused", fate="none", code=Code.BAD_REQUEST, detail=detail)
        return _ask_again(change, None, policy)
    is_accepted = change.last_error is None and _age_seconds(change) < policy.resend_seconds
    if (change.requests > 0 and is_accepted) or change.requests >= policy.retry_max:
        return _ask_again(change, None, policy)
    return _again(change, change.last_error, "the order is open: the request did not take effect", policy)


def _too_late(change: TakenChange, shown: BrokerOrder) -> ChangeSettlement:
    detail = f"the order is over: {shown.why or shown.status}"
    return _say(change, "refused", fate="none", code=TOO_LATE, detail=detail, result=result_of(shown))


def _asked_soon(
    change: TakenChange,
    code: str | None,
    detail: str | None,
    policy: ChangePolicy,
    health: BrokerHealth | None = None,
) -> ChangeSettlement:
    soon = _say(change, "asking", code=code, detail=detail, health=health)
    return replace(soon, delay_seconds=policy.first_ask_seconds)


def _ask_again(change: TakenChange, found: FoundOrder | None, policy: ChangePolicy) -> ChangeSettlement:
    detail = None if found is None else found.detail
    again = _say(change, "asking", code=change.last_error, detail=detail)
    return replace(again, delay_seconds=policy.backoff.seconds(change.asks))


def _again(
    change: TakenChange, code: str | None, detail: str | None, policy: ChangePolicy, **how: Any
) -> ChangeSettlement:
    outcome: ChangeOutcome = "again" if change.requests < policy.retry_max else "asking"
    again = _say(change, outcome, code=code, detail=detail, **how)
    return replace(again, delay_seconds=policy.backoff.seconds(change.requests))


def _age_seconds(change: TakenChange) -> float:
    return (change.taken_at - change.stamped_at).total_seconds()


def _say(change: TakenChange, outcome: ChangeOutcome, **how: Any) -> ChangeSettlement:
    return ChangeSettlement(change.id, change.take, outcome, **how)
