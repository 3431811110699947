"""Idempotency keys: a request takes effect once. `functions/idempotency.sql` defines each outcome.

A key is kept for 24 hours by default (`IDEMPOTENCY_KEEP_SEC`): a repeat after that is a new request. A
response of up to 64 KiB is kept with it, byte by byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.errors import REFUSALS, Refusal
from fencepost.kernel.call import (
    Call,
    Json,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_text,
    parsed,
    scalar,
    text,
)


@dataclass(frozen=True, slots=True)
class Claim:
    """The outcome of a claim: claimed, replay, duplicate, mismatch, in_flight or too_old."""

    outcome: str
    response: Json
    claimed_at: datetime | None
    body: str | None = None
    """The response as the stored text: a repeat returns the same bytes as the first request."""

    @property
    def claimed(self) -> bool:
        """This transaction has claimed the key: go on."""
        return self.outcome == "claimed"

    @property
    def replayed(self) -> bool:
        """The request committed before; `response` is what it returned then."""
        return self.outcome == "replay"

    def refusal(self, scope: str, key: str) -> Refusal | None:
        """The refusal for an outcome that is neither a claim nor a replay."""
        kind = REFUSALS.get(self.outcome)
        if kind is None:
            return None
        return kind(
            f"request {scope}/{key}: {self.outcome}. {kind.__doc__}", noun="request", subject=f"{scope}/{key}"
        )


@dataclass(frozen=True, slots=True)
class KeyClaim:
    key: str
    claim: Claim


def digest(method: str, body: Json) -> str:
    """A digest of a request: the same for the same method and body, regardless of the order of keys."""
    canonical = json.dumps(
        [method, body], allow_nan=False, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    return "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


def claim(scope: str, key: str, *, digest: str | None = None, response: Json = None) -> Call[Claim]:
    """The first statement of a mutation's transaction."""
    return Call(
        "select outcome, response::text, claimed_at"
        " from fencepost.claim(%s::text, %s::text, %s::text, %s::text)",
        (
            text("scope", scope),
            text("key", key),
            optional_text("digest", digest),
            optional_document("response", response),
        ),
        one(_claim),
    )


def claim_ordered(scope: str, key: str, *, digest: str | None = None, response: Json = None) -> Call[Claim]:
    """`claim` for keys that contain their time (UUIDv7, ULID): outside the window they are too_old."""
    return Call(
        "select outcome, response::text, claimed_at"
        " from fencepost.claim_ordered(%s::text, %s::text, %s::text, %s::text)",
        (
            text("scope", scope),
            text("key", key),
            optional_text("digest", digest),
            optional_document("response", response),
        ),
        one(_claim),
    )


def claim_many(
    scope: str,
    keys: Sequence[str],
    *,
    digests: Sequence[str] | None = None,
    responses: Sequence[Json] | None = None,
) -> Call[list[KeyClaim]]:
    """Claim many keys of one scope in one statement; answers for each key and raises for none."""
    return Call(
        "select key, outcome, response::text, claimed_at"
        " from fencepost.claim_many(%s::text, %s::text[], %s::text[], %s::text[])",
        (
            text("scope", scope),
            [text("key", key) for key in keys],
            None if digests is None else [text("digest", d) for d in digests],
            None if responses is None else [document("response", r) for r in responses],
        ),
        each(_key_claim),
    )


def remember(scope: str, key: str, response: Json) -> Call[None]:
    """Store the response with a claim of this same transaction."""
    return Call(
        "select fencepost.remember(%s::text, %s::text, %s::text)",
        (text("scope", scope), text("key", key), document("response", response)),
        nothing,
    )


def remember_ordered(scope: str, key: str, response: Json) -> Call[None]:
    """Store the response of a claimed key in a scope with time-ordered keys."""
    return Call(
        "select fencepost.remember_ordered(%s::text, %s::text, %s::text)",
        (text("scope", scope), text("key", key), document("response", response)),
        nothing,
    )


def clean(keep_seconds: float, limit: int) -> Call[int]:
    """Delete keys older than the retention; returns how many."""
    return Call(
        "select fencepost.idempotency_clean(%s::interval, %s::integer)",
        (duration("keep", keep_seconds), limit),
        scalar,
    )


def lag(keep_seconds: float) -> Call[float]:
    """By how many seconds the oldest key has outlived its retention."""
    return Call("select fencepost.idempotency_lag(%s::interval)", (duration("keep", keep_seconds),), scalar)


def clean_ring() -> Call[int]:
    """Empty the slots of the ring that have left the window; returns how many."""
    return Call("select fencepost.idempotency_ring_clean()", (), scalar)


def _claim(outcome: str, response: str | None, claimed_at: datetime | None) -> Claim:
    return Claim(outcome, parsed(response), claimed_at, response)


def _key_claim(key: str, outcome: str, response: str | None, claimed_at: datetime | None) -> KeyClaim:
    return KeyClaim(key, _claim(outcome, response, claimed_at))
