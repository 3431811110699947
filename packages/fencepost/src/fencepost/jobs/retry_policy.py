"""Decisions of the job runtime, as pure functions on values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from fencepost._durations import Duration, positive_seconds_of, seconds_of
from fencepost.backoff import Backoff
from fencepost.errors import InvalidInput
from fencepost.kernel.rate import Limit

ACKNOWLEDGED = frozenset({"stale_attempt", "already_finished", "cancelled", "not_found", "not_running"})
"""Refusals after which an entry is no longer needed. A lost lease is not among them: the entry stays pending,
so that the job's next owner finds it. not_running is: the job waits in PostgreSQL and gets an entry of its
own."""

PRIORITY_SHARES = (8, 4, 2, 1)
"""How capacity is shared when every priority has work. Capacity that one priority does not need goes to the
others, so an empty one costs nothing and a full one starves none."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after a delay."""

    delay_seconds: float


@dataclass(frozen=True, slots=True)
class Bury:
    """The job cannot succeed: it is dead at once."""


Verdict = Retry | Bury
RetryPolicy = Callable[[int, Exception], Verdict]
"""Called with the tries so far and the exception. The database decides whether tries are left."""


class PermanentError(Exception):
    """Raised by a handler when a retry cannot succeed."""


class Snooze(Exception):
    """Raised by a handler to put its job back for this long. The try is not charged."""

    def __init__(self, duration: Duration) -> None:
        self.seconds = seconds_of("snooze", duration)
        super().__init__(f"again after {self.seconds:g} s")


class Cancel(Exception):
    """Raised by a handler to end its job as cancelled, with the reason."""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """The policy that `exponential` makes. A value: it can travel with a single job."""

    first_seconds: float = 1
    factor: float = 2
    most_seconds: float = 3600
    jitter: float = 0.1

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value >= 0:
                raise InvalidInput(
                    f"{name} of a retry policy is {value!r}; it must be 0 or more.", field="retry"
                )

    def __call__(self, tries: int, error: Exception) -> Verdict:
        if isinstance(error, PermanentError):
            return Bury()
        return Retry(Backoff(self.first_seconds, self.most_seconds, self.factor, self.jitter).seconds(tries))


SERVER_WAITS = Backoff(1.0, 60.0)
SERVER_WAITS_MAX = 10


def server_wait(attempt: int, tries: int) -> float | None:
    """How long a job waits, uncharged, that could not reach a server; None when its try is charged.

    `attempt - tries` is how often it was given back without a charge, for whatever reason. It bounds a
    handler that never reaches its server: the waits grow, and from the eleventh on each is a failed try.
    """
    spared = attempt - tries
    return SERVER_WAITS.seconds(spared + 1) if spared < SERVER_WAITS_MAX else None


def exponential(
    *, first_seconds: float = 1, factor: float = 2, most_seconds: float = 3600, jitter: float = 0.1
) -> Exponential:
    """Doubles the delay with each try, up to a bound, spread by `jitter` so that many jobs do not return at
    once."""
    return Exponential(first_seconds=first_seconds, factor=factor, most_seconds=most_seconds, jitter=jitter)


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast jobs of a handler may start: `limit` in the time `per`, at most `burst` at once.

    With a `key`, made from a job's arguments, each key has its own bucket: `key="user:{user_id}"`. All
    workers share the buckets.
    """

    limit: float
    per: Duration = 1
    burst: float | None = None
    key: str | Callable[..., object] | None = None

    def __post_init__(self) -> None:
        positive_seconds_of("per", self.per)

    @property
    def bucket(self) -> Limit:
        """The limit as tokens a second and a burst."""
        per_second = self.limit / positive_seconds_of("per", self.per)
        return Limit(per_second, max(1.0, self.limit) if self.burst is None else self.burst)


MISSING_FIELD = "missing_field"
INVALID_FIELD = "invalid_field"
PAYLOAD_INVALID = "payload_missing_or_invalid"
POISON = frozenset({MISSING_FIELD, INVALID_FIELD, PAYLOAD_INVALID})
"""Why a delivered entry cannot be processed, as labels of `fencepost_jobs_claims_total{status="poison"}`: an
entry lacks a field, its `job_id` is not an id, or the handler cannot be called with the payload."""

RECLAIM_DECISIONS: Mapping[str, str] = {
    "already_finished": "done_or_stale",
    "stale_attempt": "done_or_stale",
    "cancelled": "done_or_stale",
    "not_running": "done_or_stale",
    "not_found": "not_found",
    "not_owner": "lease_still_valid",
    "in_flight": "lease_still_valid",
    "lease_expired": "lease_still_valid",
}
"""What a refused claim of an idle entry means for the entry: remove it, or leave it to the job's owner."""
