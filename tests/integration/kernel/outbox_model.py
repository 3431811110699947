"""What the outbox promises, in Python: messages by their ids, and how each step moves them."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

NOW = timedelta(0)


@dataclass
class Message:
    """One line of the view."""

    channel: str
    key: str | None
    ready: bool
    created_at: datetime
    not_before: datetime | None
    state: str = "queued"
    attempts: int = 0
    take: int = 0
    owner: str | None = None
    taken_until: datetime | None = None
    settled_at: datetime | None = None
    result: Any = None
    last_error: str | None = None


@dataclass
class Outbox:
    """All messages, those that are settled too."""

    now: datetime
    messages: dict[int, Message] = field(default_factory=dict[int, Message])

    def open(self, channel: str) -> dict[int, Message]:
        return {
            number: one
            for number, one in sorted(self.messages.items())
            if one.channel == channel and one.settled_at is None
        }

    def put(self, channel: str, key: str | None, not_before: datetime | None) -> int:
        behind = key is not None and any(one.key == key for one in self.open(channel).values())
        number = max(self.messages, default=0) + 1
        self.messages[number] = Message(
            channel, key, not behind, self.now, max(not_before or self.now, self.now)
        )
        return number

    def due(self, channel: str, states: tuple[str, ...], limit: int) -> list[int]:
        found = [
            (one.not_before, number)
            for number, one in self.open(channel).items()
            if one.ready and one.state in states and one.not_before is not None and one.not_before <= self.now
            if one.state != "unknown" or one.taken_until is None or one.taken_until <= self.now
        ]
        return [number for _, number in sorted(found)][:limit]

    def take(self, channel: str, owner: str, lease: timedelta, limit: int, *, unknown: bool) -> list[int]:
        taken = sorted(self.due(channel, ("unknown",) if unknown else ("queued", "failed"), limit))
        for number in taken:
            one = self.messages[number]
            one.take, one.owner, one.taken_until = one.take + 1, owner, self.now + lease
            if not unknown:
                one.state, one.attempts = "sending", one.attempts + 1
        return taken

    def verdict(self, number: int, take: int, owner: str | None) -> str | None:
        one = self.messages.get(number)
        if one is None or one.settled_at is not None:
            return "not_found" if one is None else "already_finished"
        if one.take != take:
            return "stale_attempt"
        free = one.ready and one.state in ("queued", "failed")
        return "not_owner" if one.owner != owner or (owner is None and not free) else None

    def renew(self, number: int, take: int, owner: str, lease: timedelta) -> str | None:
        refusal = self.verdict(number, take, owner)
        if refusal is None:
            self.messages[number].taken_until = self.now + lease
        return "not_found" if refusal == "already_finished" else refusal

    def settle(
        self,
        number: int,
        take: int,
        owner: str | None,
        outcome: str,
        error: str | None,
        delay: timedelta | None,
        result: Any,
    ) -> str | None:
        refusal = self.verdict(number, take, owner)
        if refusal is None:
            self._apply(number, outcome, error, delay, result)
        return refusal

    def _apply(
        self, number: int, outcome: str, error: str | None, delay: timedelta | None, result: Any
    ) -> None:
        one = self.messages[number]
        one.attempts += one.state in ("queued", "failed")
        one.last_error, one.state, one.taken_until = error, outcome, None
        if outcome in ("sent", "dead"):
            one.settled_at, one.result, one.ready, one.not_before = self.now, result, False, None
            follower = next(
                (o for o in self.open(one.channel).values() if o.key == one.key is not None), None
            )
            if follower is not None:
                follower.ready = True
        else:
            one.owner, one.not_before = None, self.now + (delay or NOW)
            one.attempts = max(0, one.attempts - (outcome == "queued"))

    def expire(self, channel: str, outcome: str, grace: timedelta) -> list[int]:
        silent = [
            (one.taken_until, number)
            for number, one in self.open(channel).items()
            if one.state == "sending" and one.taken_until is not None and one.taken_until <= self.now - grace
        ]
        for _, number in silent:
            one = self.messages[number]
            one.state, one.take, one.owner, one.taken_until = outcome, one.take + 1, None, None
            one.not_before, one.last_error = self.now, "the taker went silent"
        return sorted(number for _, number in silent)

    def resolve(self, number: int, expected: str, outcome: str, note: str, result: Any) -> str | None:
        one = self.messages.get(number)
        if one is None or one.settled_at is not None:
            return "not_found" if one is None else "already_finished"
        if one.state != expected:
            return "mismatch"
        one.take += 1
        self._apply(number, outcome, note, None, result)
        return None
