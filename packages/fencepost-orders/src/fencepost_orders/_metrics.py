"""The metrics of orders."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from fencepost.metrics import MetricSet, counter, gauge, histogram
from fencepost_orders.broker import Code

if TYPE_CHECKING:
    from fencepost_orders._fill_source import FollowCount
    from fencepost_orders._order_calls import Count
    from fencepost_orders._order_source import OrderSettlement, Settled

LAG_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
RETRIES = (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 16.0)
STATES = ("queued", "sending", "failed", "unknown", "parked")


class OrderMetrics(MetricSet):
    """Labels have few values only: the audit identifies the single order."""

    accepts = counter("fencepost_orders_accepts", "Orders accepted, or not.", labels=("outcome",))
    dequeues = counter("fencepost_orders_takes", "Takes, by result.", labels=("result",))
    sends = counter("fencepost_orders_sends", "Requests and queries, by outcome.", labels=("outcome",))
    settlements_refused = counter(
        "fencepost_orders_settlements_refused", "Settlements that the database refused.", labels=("reason",)
    )
    inflight = gauge("fencepost_orders_in_flight", "Orders in the state sending.")
    lag_seconds = histogram(
        "fencepost_orders_lag_seconds", "Time from acceptance to the broker's answer.", buckets=LAG_SECONDS
    )
    retry_count = histogram("fencepost_orders_retries", "Retries of ended orders.", buckets=RETRIES)
    orders = gauge("fencepost_orders", "Live orders.", labels=("channel", "state"))
    oldest_seconds = gauge(
        "fencepost_orders_oldest_seconds", "Age of the oldest live order.", labels=("channel", "state")
    )
    rate = gauge("fencepost_orders_throttle_rate", "Allowed requests per second.", labels=("channel",))
    breaker_open = gauge("fencepost_orders_breaker_open", "1 while nothing is sent.", labels=("channel",))
    halted = gauge("fencepost_orders_halted", "1 while the kill switch is on.", labels=("channel",))
    unauthorized = gauge(
        "fencepost_orders_unauthorized", "1 while halted by refused credentials.", labels=("channel",)
    )
    paused = gauge("fencepost_orders_paused", "1 while a Retry-After pauses sending.", labels=("channel",))
    follow_ups = counter(
        "fencepost_orders_follow_ups", "Queries about orders that a broker has.", labels=("outcome",)
    )
    followed = gauge(
        "fencepost_orders_followed", "Orders that a broker has not finished.", labels=("channel",)
    )
    follow_late_seconds = gauge(
        "fencepost_orders_follow_late_seconds", "Delay of the most overdue query.", labels=("channel",)
    )
    changes = counter(
        "fencepost_orders_changes", "Cancels and replacements at brokers.", labels=("kind", "outcome")
    )
    loop_errors = counter(
        "fencepost_orders_loop_errors", "Ticks of the loops of orders that failed.", labels=("loop",)
    )

    def settled(
        self,
        settlements: Sequence[OrderSettlement],
        answers: Sequence[Settled],
        unchanged: Set[int] = frozenset(),
    ) -> None:
        pairs = zip(settlements, answers, strict=True)
        both = [(one, answer) for one, answer in pairs if answer.id not in unchanged]
        refused = Tally(answer.refusal for answer in answers if answer.refusal is not None)
        ended = Tally(outcome_name(one, answer) for one, answer in both if answer.refusal is None)
        for reason, times in refused.items():
            self.settlements_refused.labels(reason=reason).inc(times)
        for outcome, times in ended.items():
            self.sends.labels(outcome=outcome).inc(times)

    def ended(self, lag_seconds: float, retries: int) -> None:
        self.lag_seconds.observe(lag_seconds)
        self.retry_count.observe(retries)

    def count(self, counts: Sequence[Count], brokers: Sequence[str]) -> None:
        """Set the gauges. States without orders are shown as 0: a series that vanishes resolves no alert."""
        found = {(count.broker, count.status): count for count in counts}
        for broker in {*brokers, *(count.broker for count in counts)}:
            for state in STATES:
                count = found.get((broker, state))
                self.orders.labels(broker, state).set(count.orders if count else 0)
                self.oldest_seconds.labels(broker, state).set(count.oldest_seconds if count else 0)
        self.inflight.set(sum(count.orders for count in counts if count.status == "sending"))

    def followed_up(self, answers: Sequence[Settled]) -> None:
        for answer in answers:
            self.follow_ups.labels(outcome=answer.refusal or str(answer.state)).inc()

    def count_followed(self, counts: Sequence[FollowCount], brokers: Sequence[str]) -> None:
        found = {count.broker: count for count in counts}
        for broker in {*brokers, *found}:
            count = found.get(broker)
            self.followed.labels(broker).set(count.orders if count else 0)
            self.follow_late_seconds.labels(broker).set(count.late_seconds if count else 0)

    def show(self, broker: Mapping[str, Any]) -> None:
        """Set the gauges of one broker's throttle, breaker and kill switch."""
        name = broker["broker"]
        self.rate.labels(name).set(broker["rate"])
        self.breaker_open.labels(name).set(broker["breaker"] == "open")
        self.halted.labels(name).set(broker["halted_at"] is not None)
        self.unauthorized.labels(name).set(broker["halted_code"] is not None)
        self.paused.labels(name).set(broker["paused_until"] is not None)


def outcome_name(settlement: OrderSettlement, answer: Settled) -> str:
    """success, conflict_processed, retry, rate_limited, held, dead, unknown or parked."""
    match answer.state:
        case "sent":
            return "conflict_processed" if settlement.code == Code.CONFLICT_PROCESSED else "success"
        case "failed":
            return "retry"
        case "queued":
            return _QUEUED_AGAIN.get(str(settlement.code), "retry")
        case state:
            return str(state)


_QUEUED_AGAIN = {Code.RATE_LIMITED.value: "rate_limited", Code.UNAUTHORIZED.value: "held"}
