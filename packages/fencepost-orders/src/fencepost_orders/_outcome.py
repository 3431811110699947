"""What an answer means for its order: from a classified answer to a settlement. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from fencepost.backoff import Backoff
from fencepost.http_client import Reply
from fencepost.kernel.call import Json
from fencepost_orders._order_source import (
    BrokerHealth,
    Fate,
    OrderSettlement,
    Outcome,
    TakenOrder,
    Unauthorized,
)
from fencepost_orders._resend import (
    EXPIRED,
    MARGIN_SECONDS,
    Decision,
    Facts,
    Next,
    decide,
    keep_asking,
    may_repeat,
    when_expired,
    when_parked,
    when_used_up,
)
from fencepost_orders.broker import (
    AnswerVerdict,
    BrokerOrder,
    Code,
    Declaration,
    FoundOrder,
    LookupFinding,
    LookupScope,
    Meaning,
    OutgoingOrder,
    kept_answer,
)
from fencepost_orders.request import canonical_of_plain, digest_of_canonical, plain

DETAIL_CHARACTERS_MAX = 1000
# Nesting of a broker's answer about an order: far more than any needs, and cheap enough to store.
DEPTH_MAX = 100
TOO_DEEP = "(nested too deeply to be stored)"
ZEROS_MAX = 1000
RESULT_CHARACTERS_MAX = 16_000


@dataclass(frozen=True, slots=True)
class Policy:
    """How often, how long, and how much clocks may differ."""

    retry_max: int = 8
    backoff: Backoff = field(default_factory=Backoff)
    margin_seconds: float = MARGIN_SECONDS
    ask_seconds: float = 60.0
    """How long an order is queried before it is parked."""
    parked_seconds: float = 300.0
    """How often a parked order is queried."""
    retry_after_max_seconds: float = 300.0
    """The longest time for which a broker's Retry-After is obeyed."""
    unauthorized: Unauthorized = "dead"
    """What becomes of an order that is refused for the credentials; the broker is halted in any case."""


def outgoing(taken: TakenOrder) -> OutgoingOrder:
    return OutgoingOrder(
        taken.idempotency_key, taken.request, taken.stamped_at, taken.account, taken.open_since
    )


def hold_back(
    declared: Declaration, taken: TakenOrder, policy: Policy, now: datetime
) -> OrderSettlement | None:
    """The settlement of an order that must not be sent; None when it may be. Either it has expired,
    because the worker that took it stalled; or it must be queried first: an earlier request is open, and the
    broker would take this one for another order, or would by now."""
    if taken.expires_at is not None and taken.expires_at <= now:
        return _say(taken, "dead", fate="not_this", code=EXPIRED, detail="it expired before it could be sent")
    open_since = taken.open_since or taken.stamped_at
    open_age_seconds = (taken.stamped_at - open_since).total_seconds()
    if open_since == taken.stamped_at or may_repeat(
        declared, open_age_seconds, margin_seconds=policy.margin_seconds
    ):
        return None
    return _say(
        taken,
        "unknown",
        fate="not_this",
        code=Code.UNKNOWN,
        detail="an earlier request is open: query the broker first",
    )


def not_left(taken: TakenOrder) -> OrderSettlement:
    """The worker stood still until the lease of its take had ended: the order waits for the next take."""
    return _say(taken, "queued", fate="not_this", detail="the worker stood still before it could be sent")


def not_sent(taken: TakenOrder, detail: str, policy: Policy) -> OrderSettlement:
    """The request did not leave: try again, as often as allowed."""
    return _again(taken, Code.NETWORK_TIMEOUT, detail, policy)


def maybe_sent(taken: TakenOrder, code: Code, detail: str) -> OrderSettlement:
    """The request left, and its outcome is not known: query at once."""
    return _say(taken, "unknown", code=code, detail=_short(detail), health="failed")


def with_answer(verdict: AnswerVerdict, reply: Reply) -> AnswerVerdict:
    """The verdict with the broker's answer: the body of an answer that is not a success is always kept."""
    if verdict.detail is not None or 200 <= reply.status < 300:
        return verdict
    return replace(verdict, detail=kept_answer(reply))


def answered(
    taken: TakenOrder, verdict: AnswerVerdict, declared: Declaration, policy: Policy
) -> OrderSettlement:
    """The broker answered a new order."""
    match verdict.meaning:
        case Meaning.ACCEPTED if verdict.order is not None:
            return _with_pause(_accepted(taken, verdict.order, None, verdict.detail), verdict, policy)
        case Meaning.DUPLICATE:
            return _duplicate(taken, verdict, declared, policy)
        case Meaning.REFUSED:
            return _refused(taken, verdict, policy)
        case Meaning.STALE:
            return _again(taken, Code.NETWORK_TIMEOUT, verdict.detail or "too late", policy)
        case Meaning.LIMITED:
            return _say(
                taken,
                "queued",
                fate="not_this",
                code=Code.RATE_LIMITED,
                detail=_short(verdict.detail),
                delay_seconds=_bounded(verdict.retry_after_seconds, policy, policy.backoff.seconds(1)),
                health="limited",
            )
        case _:
            return maybe_sent(
                taken, verdict.code or Code.UNKNOWN, verdict.detail or "the answer cannot be read"
            )


def found(
    taken: TakenOrder, answer: FoundOrder, declared: Declaration, policy: Policy, asked_at: datetime
) -> OrderSettlement:
    """The broker answered a query about an order, which was made at `asked_at` of the database's clock."""
    if answer.order is not None and not _shows(taken, answer.order):
        answer = FoundOrder(
            LookupFinding.NO_ANSWER, code=Code.UNKNOWN, detail="the answer is about another order"
        )
    facts = Facts(
        finding=answer.finding,
        live=answer.order is not None and answer.order.live,
        stamp_age_seconds=_seconds(asked_at - taken.stamped_at),
        open_age_seconds=_seconds(asked_at - (taken.open_since or taken.stamped_at)),
    )
    step = decide(declared, facts, margin_seconds=policy.margin_seconds)
    if taken.expires_at is not None and taken.expires_at <= asked_at:
        step = when_expired(step)
    if taken.retry_count >= policy.retry_max:
        step = when_used_up(step)
    if taken.state == "parked":
        return _carry_out(taken, answer, when_parked(step), policy)
    step = keep_asking(
        declared,
        step,
        _seconds(asked_at - (taken.unknown_since or taken.stamped_at)),
        ask_seconds=policy.ask_seconds,
        first_seconds=policy.backoff.first_seconds,
    )
    return _carry_out(taken, answer, step, policy)


def result_of(order: BrokerOrder) -> dict[str, Json]:
    """What is stored of the broker's answer, with its digest: unchanged, except for what cannot be stored.
    One answer that PostgreSQL refuses would fail the whole batch in which it is settled."""
    kept: dict[str, Json] = {
        "broker_order_id": _storable(order.broker_order_id),
        "status": _storable(order.status),
        "accepted_at": None if order.accepted_at is None else order.accepted_at.isoformat(),
        "fills": [_storable(fill) for fill in order.fills],
        "body": _storable(order.body),
    }
    text = canonical_of_plain(kept)
    digest = digest_of_canonical(text)
    if len(text) > RESULT_CHARACTERS_MAX:
        kept |= {"fills": [], "body": {"omitted": "it was too large to be stored"}}
        kept |= {
            name: str(kept[name])[:256] for name in ("broker_order_id", "status") if kept[name] is not None
        }
    return {**kept, "digest": digest, "open": order.is_open and order.live}


def _carry_out(taken: TakenOrder, answer: FoundOrder, step: Next, policy: Policy) -> OrderSettlement:
    # Why it became unknown says more than that the broker has not settled it yet.
    code = answer.code or taken.last_error or Code.UNKNOWN
    match step.decision:
        case Decision.SENT if answer.order is not None:
            # A broker that answered only "already known" is believed here, once it has shown the order.
            repeated = Code.CONFLICT_PROCESSED if taken.last_error == Code.CONFLICT_PROCESSED else None
            ended = _say(
                taken, "sent", code=repeated, detail="found at the broker", result=result_of(answer.order)
            )
        case Decision.DEAD:
            ended = _dead(taken, answer, step)
        case Decision.RESEND | Decision.RESEND_PROVED:
            ended = _resend(taken, step, policy)
        case Decision.PARK:
            ended = _say(
                taken,
                "parked",
                # An order that was parked before keeps its reason: each query would change it.
                code=(taken.last_error or code) if taken.state == "parked" else code,
                detail=_short(_why(step, answer)),
                delay_seconds=policy.backoff.spread(policy.parked_seconds),
            )
        case _:
            ended = _say(
                taken,
                "unknown",
                code=code,
                detail=_short(_why(step, answer)),
                delay_seconds=_wait_seconds(taken, answer, step, policy),
            )
    health = health_of(answer)
    if health == "exhausted":
        wait_seconds = _bounded(answer.retry_after_seconds, policy, 0.0)
        ended = replace(ended, delay_seconds=max(ended.delay_seconds or 0.0, wait_seconds))
    return replace(ended, health=health)


def _say(taken: TakenOrder, outcome: Outcome, **how: Any) -> OrderSettlement:
    return OrderSettlement(taken.id, taken.take, outcome, **how)


def _why(step: Next, answer: FoundOrder) -> str:
    """The reason with the answer. When the broker did not answer, the way it failed is the reason."""
    if answer.detail is None or answer.finding is LookupFinding.NO_ANSWER:
        return answer.detail or step.why
    return f"{step.why} ({answer.detail})"


def _dead(taken: TakenOrder, answer: FoundOrder, step: Next) -> OrderSettlement:
    if answer.order is None:
        code = step.code or taken.last_error
        return _say(taken, "dead", fate="none", code=code, detail=_short(_why(step, answer)))
    result = result_of(answer.order)
    why = step.why if answer.order.why is None else f"{step.why} ({answer.order.why})"
    return _say(taken, "dead", fate="none", code=Code.BAD_REQUEST, detail=_short(why), result=result)


def _resend(taken: TakenOrder, step: Next, policy: Policy) -> OrderSettlement:
    """Send again, after a wait."""
    fate: Fate = "none" if step.decision is Decision.RESEND_PROVED else "unproved"
    wait_seconds = policy.backoff.seconds(taken.retry_count + 1)
    return _say(
        taken, "failed", fate=fate, code=taken.last_error, detail=step.why, delay_seconds=wait_seconds
    )


def _wait_seconds(taken: TakenOrder, answer: FoundOrder, step: Next, policy: Policy) -> float:
    own_seconds = policy.backoff.seconds(taken.asks) if step.wait_seconds is None else step.wait_seconds
    return _bounded(answer.retry_after_seconds, policy, own_seconds)


def _bounded(told_seconds: float | None, policy: Policy, own_seconds: float) -> float:
    """The delay that the broker asks for, up to the bound; without one, our own delay."""
    return own_seconds if told_seconds is None else min(told_seconds, policy.retry_after_max_seconds)


def health_of(answer: FoundOrder) -> BrokerHealth | None:
    """What the answer to a query says about the health of the broker."""
    if answer.finding is LookupFinding.LIMITED:
        return "ask_limited"
    if answer.finding is LookupFinding.NO_ANSWER:
        return "failed" if answer.code is not None else None
    return "ok" if answer.retry_after_seconds is None else "exhausted"


def _refused(taken: TakenOrder, verdict: AnswerVerdict, policy: Policy) -> OrderSettlement:
    """This request placed nothing. Refused credentials are not the order's fault: it ends, or waits, and the
    database halts the broker with it, so that no other order is refused for them."""
    is_unauthorized = verdict.code is Code.UNAUTHORIZED
    return _say(
        taken,
        "queued" if is_unauthorized and policy.unauthorized == "hold" else "dead",
        fate="not_this",
        code=verdict.code or Code.BAD_REQUEST,
        detail=_short(verdict.detail),
        health="unauthorized" if is_unauthorized else "ok",
    )


def _accepted(
    taken: TakenOrder, order: BrokerOrder, code: Code | None, detail: str | None
) -> OrderSettlement:
    if not _shows(taken, order):
        why = "the answer echoes another key" if order.client_id else "the answer names no order"
        return maybe_sent(taken, Code.UNKNOWN, why if detail is None else f"{why}: {detail}")
    if not order.live:
        return _say(
            taken,
            "dead",
            fate="not_this",
            code=Code.BAD_REQUEST,
            detail=_short(detail or order.why or order.status),
            result=result_of(order),
            health="ok",
        )
    result = result_of(order)
    return OrderSettlement(taken.id, taken.take, "sent", "unproved", code, _short(detail), None, result, "ok")


def _with_pause(accepted: OrderSettlement, verdict: AnswerVerdict, policy: Policy) -> OrderSettlement:
    """The same, and the broker pauses if it said that it takes nothing more for now."""
    if accepted.outcome != "sent" or verdict.retry_after_seconds is None:
        return accepted
    wait_seconds = _bounded(verdict.retry_after_seconds, policy, 0.0)
    return replace(accepted, delay_seconds=wait_seconds, health="exhausted")


def _duplicate(
    taken: TakenOrder, verdict: AnswerVerdict, declared: Declaration, policy: Policy
) -> OrderSettlement:
    """The broker says that it has an order with our client id. It shows the order, or we query it. Where it
    cannot be queried, its answer counts only about a request that was lost before: the first answer to an
    order is no proof, because brokers use the same status for "market closed"."""
    shown = verdict.order
    # An error that repeats our key shows no order: that needs the broker's own id.
    if shown is not None and shown.client_id == taken.idempotency_key and shown.broker_order_id:
        return _accepted(taken, shown, Code.CONFLICT_PROCESSED, verdict.detail)
    if declared.lookup is LookupScope.NONE and _repeats_what_was_lost(taken, declared, policy):
        known = BrokerOrder(taken.idempotency_key, None, "duplicate")
        return _accepted(taken, known, Code.CONFLICT_PROCESSED, verdict.detail)
    return _say(taken, "unknown", code=Code.CONFLICT_PROCESSED, detail=_short(verdict.detail), health="ok")


def _repeats_what_was_lost(taken: TakenOrder, declared: Declaration, policy: Policy) -> bool:
    """Whether an earlier request is open, for another reason than this same answer, and the broker guarantees
    to refuse its repeat."""
    open_since = taken.open_since or taken.stamped_at
    is_repeat = open_since < taken.stamped_at and taken.last_error != Code.CONFLICT_PROCESSED
    return is_repeat and may_repeat(
        declared, _seconds(taken.stamped_at - open_since), margin_seconds=policy.margin_seconds
    )


def _again(taken: TakenOrder, code: Code, detail: str, policy: Policy) -> OrderSettlement:
    if taken.retry_count >= policy.retry_max:
        return _say(taken, "dead", fate="not_this", code=code, detail=_short(detail), health="failed")
    return _say(
        taken,
        "failed",
        fate="not_this",
        code=code,
        detail=_short(detail),
        delay_seconds=policy.backoff.seconds(taken.retry_count + 1),
        health="failed",
    )


def _shows(taken: TakenOrder, order: BrokerOrder) -> bool:
    """Whether this is our order: it has our key, or an id of the broker's and no other key."""
    if order.client_id:
        return order.client_id == taken.idempotency_key
    return bool(order.broker_order_id)


def _seconds(age: timedelta) -> float:
    return max(0.0, age.total_seconds())


def _short(detail: str | None) -> str | None:
    return None if detail is None else _clean(detail[:DETAIL_CHARACTERS_MAX])


def _storable(value: Json, depth: int = 0) -> Json:
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, dict | list) and depth == DEPTH_MAX:
        return TOO_DEEP
    if isinstance(value, dict):
        items = cast("dict[str, Json]", value).items()
        return {_clean(name): _storable(item, depth + 1) for name, item in items}
    if isinstance(value, list):
        return [_storable(item, depth + 1) for item in cast("Sequence[Json]", value)]
    return _number(value) if isinstance(value, Decimal) else value


def _number(value: Decimal) -> str:
    """Written out; but 1E999999999 would be a gigabyte of zeros, and stays in its own notation."""
    return plain(value) if abs(value.adjusted()) <= ZEROS_MAX else str(value)


def _clean(text: str) -> str:
    """Remove what PostgreSQL cannot store: NUL characters and unpaired surrogates."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()
