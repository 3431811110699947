"""How long to wait before the next try, and how to read Retry-After. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count

RETRY_AFTER_SECONDS_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class Backoff:
    """Waits that grow by a factor up to a bound, spread by `jitter` so that simultaneous failures are retried
    apart. By default 2, 4, 8 ... 256 seconds, a tenth longer or shorter."""

    first_seconds: float = 2.0
    most_seconds: float = 256.0
    factor: float = 2.0
    jitter: float = 0.1

    def seconds(self, tries: int, chance: float | None = None) -> float:
        """The wait after the nth failed try, n from 1. `chance` lies between 0 and 1."""
        try:
            plain = min(self.most_seconds, self.first_seconds * float(self.factor) ** (max(tries, 1) - 1))
        except OverflowError:
            plain = self.most_seconds
        return self.spread(plain, chance)

    def spread(self, seconds: float, chance: float | None = None) -> float:
        """The time, changed by up to the jitter in either direction."""
        chance = random.random() if chance is None else chance  # noqa: S311 - No security depends on it.
        return float(seconds * (1 + self.jitter * (2 * chance - 1)))

    def waits(self) -> Iterator[float]:
        """The wait after each try, without end."""
        return (self.seconds(tries) for tries in count(1))


def retry_after_seconds(value: str | None, now: datetime | None = None) -> float | None:
    """The header in either form, a number of seconds or a date; None if it cannot be parsed."""
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value), RETRY_AFTER_SECONDS_MAX)
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), RETRY_AFTER_SECONDS_MAX)
