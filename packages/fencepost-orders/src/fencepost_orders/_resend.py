"""When an order may be sent again: a pure function of what the broker declares and what is known.

The only question is whether a second request can become a second order. It cannot when the broker refuses it
(its client ids are unique for long enough), or when no earlier request has arrived or can still arrive (the
broker does not have the order, was queried after the last request's validity had ended, and can see all
orders).

    promise      search sees     answer                              decision
    any          any             found, live                         sent
    any          any             found, rejected                     dead
    any          all             not there, validity over            send again: proved
    forever      any             not there, or no answer             send again
    window       any             not there, or no answer, inside it  send again, if requests have a validity
    any          all             not there, validity not over        wait for its end, and ask again
    any          all             no answer                           ask again
    otherwise                                                        parked for a person

"Parked" is not a failure: it is what remains when a second order and a lost one cannot be told apart. A
query places nothing. So an order is queried for a while before it is parked, and for as long as it is parked:
the broker may show it late. A parked order is never resent automatically, because an operator may have acted
on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from fencepost_orders.broker import Declaration, LookupFinding, LookupScope, Promise

# The clocks of two machines differ, and a broker may check its rule slightly late.
MARGIN_SECONDS = 1.0
EXPIRED = "EXPIRED"


class Decision(StrEnum):
    SENT = "sent"
    DEAD = "dead"
    RESEND = "resend"
    """Safe because the broker refuses a second order."""
    RESEND_PROVED = "resend_proved"
    """Safe because no earlier request took effect."""
    ASK = "ask"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an order whose outcome is unknown. Times are seconds, counted back from the query: it
    was made `stamp_age` after the last request was stamped, `open_age` after the first open one."""

    finding: LookupFinding
    live: bool
    stamp_age_seconds: float
    open_age_seconds: float


@dataclass(frozen=True, slots=True)
class Next:
    decision: Decision
    wait_seconds: float | None = None
    why: str = ""
    code: str | None = None


def decide(declared: Declaration, facts: Facts, *, margin_seconds: float = MARGIN_SECONDS) -> Next:
    """What to do about an order whose outcome is unknown, after the broker was queried."""
    if facts.finding is LookupFinding.FOUND:
        if facts.live:
            return Next(Decision.SENT)
        return Next(Decision.DEAD, why="the broker has it, and rejected it")
    if facts.finding is LookupFinding.LIMITED:
        return Next(Decision.ASK, why="the broker limits queries")
    by_absence = _by_absence(declared, facts, margin_seconds)
    if by_absence.decision is not Decision.RESEND_PROVED and may_repeat(
        declared, facts.open_age_seconds, margin_seconds=margin_seconds
    ):
        return Next(Decision.RESEND, why="the broker refuses a second order with this client id")
    return by_absence


def may_repeat(
    declared: Declaration, open_age_seconds: float, *, margin_seconds: float = MARGIN_SECONDS
) -> bool:
    """Whether a request may leave now although an earlier one, of the given age, may have arrived.

    Within a window a repeat is refused if it arrives while the broker still remembers the earlier one; and no
    earlier one, delayed in a stalled worker, may arrive after the broker has forgotten. Both need a bound on
    the
    validity of a request. Checked again when the order is really sent: it may have waited meanwhile.
    """
    match declared.promise:
        case Promise.FOREVER:
            return True
        case Promise.WINDOW if declared.request_valid_seconds is not None:
            latest_arrival = open_age_seconds + declared.request_valid_seconds + margin_seconds
            return latest_arrival < declared.window_seconds
        case _:
            return False


def _by_absence(declared: Declaration, facts: Facts, margin_seconds: float) -> Next:
    if declared.lookup is not LookupScope.ALL:
        return Next(Decision.PARK, why="the broker cannot say that it does not have the order")
    if declared.request_valid_seconds is None:
        if facts.finding is LookupFinding.NO_ANSWER:
            return Next(Decision.ASK, why="the broker did not answer the query")
        return Next(Decision.PARK, why="not found, but the request may still arrive: it has no expiry")
    left_seconds = declared.request_valid_seconds + margin_seconds - facts.stamp_age_seconds
    if left_seconds > 0:
        return Next(Decision.ASK, wait_seconds=left_seconds, why="the request may still arrive")
    if facts.finding is LookupFinding.NO_ANSWER:
        return Next(Decision.ASK, why="the broker did not answer the query")
    return Next(Decision.RESEND_PROVED, why="not found, and the request can no longer arrive")


def when_expired(step: Next) -> Next:
    """An order that has expired is not sent again: with the proof it is dead, without it an operator
    decides."""
    match step.decision:
        case Decision.RESEND_PROVED:
            return Next(Decision.DEAD, why="expired, and it never arrived", code=EXPIRED)
        case Decision.RESEND:
            return Next(Decision.PARK, why="expired, and an earlier request may have arrived")
        case _:
            return step


def when_used_up(step: Next) -> Next:
    """After the last retry nothing is sent again: with the proof it is dead, without it an operator
    decides."""
    match step.decision:
        case Decision.RESEND_PROVED:
            return Next(Decision.DEAD, why="no retries are left")
        case Decision.RESEND:
            return Next(Decision.PARK, why="no retries are left")
        case _:
            return step


def keep_asking(
    declared: Declaration, step: Next, asking_seconds: float, *, ask_seconds: float, first_seconds: float
) -> Next:
    """Query again instead of parking, until `ask_seconds` have passed since the outcome became unknown; each
    wait is as long as all before it. A broker that cannot be queried is not queried."""
    left_seconds = ask_seconds - asking_seconds
    if step.decision is not Decision.PARK or declared.lookup is LookupScope.NONE or left_seconds <= 0:
        return step
    wait_seconds = max(first_seconds, min(asking_seconds, left_seconds))
    return Next(Decision.ASK, wait_seconds=wait_seconds, why=step.why)


def when_parked(step: Next) -> Next:
    """What an answer does to a parked order: it ends the order, or leaves it to the operator. It never
    resends it."""
    match step.decision:
        case Decision.SENT | Decision.DEAD | Decision.PARK:
            return step
        case _:
            return Next(Decision.PARK, why=step.why)
