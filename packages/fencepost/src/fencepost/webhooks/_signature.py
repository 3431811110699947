"""The signature of a webhook's request: `t=UNIX_SECONDS,v1=HEX[,v1=HEX]` over the time and the body.

Each `v1` is HMAC-SHA256 of `TIME.BODY` under one secret. While secrets are rotated there is one for each, so
a receiver that has either accepts the request. The time bounds how long a recorded request can be repeated.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence

from fencepost.errors import FencepostError

HEADER = "Fencepost-Signature"
TOLERANCE_SECONDS = 300.0
SIGNATURES_MAX = 16


class InvalidSignature(FencepostError):
    """The request is not from the sender, was changed, or is too old. Answer 401 and do nothing."""


def sign(body: bytes, secrets: Sequence[str], *, at: float | None = None) -> str:
    """The header's value for a body, with a signature for each secret."""
    seconds = str(int(time.time() if at is None else at))
    return ",".join([f"t={seconds}", *(f"v1={_digest(secret, seconds, body)}" for secret in secrets)])


def verify(
    body: bytes,
    signature: str | None,
    secrets: str | Sequence[str],
    *,
    tolerance_seconds: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> None:
    """Raise InvalidSignature unless `signature`, the header `Fencepost-Signature`, fits the raw body.

    `secrets` is one secret or several, of which any may have signed. A request is accepted for
    `tolerance_seconds` before and after its time. Signatures are compared in constant time.
    """
    known = [secrets] if isinstance(secrets, str) else list(secrets)
    if not any(known):
        # An empty secret would accept a signature that every sender can make.
        raise ValueError("verify needs a secret that is not empty.")
    seconds, given = _parsed(signature)
    expected = [_digest(secret, seconds, body) for secret in known if secret]
    # Every pair is compared: the time taken says nothing about which one fits.
    fits = [hmac.compare_digest(mine, one) for mine in expected for one in given]
    if not any(fits):
        raise InvalidSignature(
            "The signature does not fit the body. Check the secret, and pass the raw body."
        )
    if not abs((time.time() if now is None else now) - int(seconds)) <= tolerance_seconds:
        raise InvalidSignature(
            f"The request is more than {tolerance_seconds:g} s old, or from the future. Check both clocks."
        )


def _parsed(signature: str | None) -> tuple[str, list[str]]:
    """The time and the signatures; other schemes than v1 are ignored."""
    pairs = [part.strip().partition("=") for part in (signature or "").split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    given = [value for name, _, value in pairs if name == "v1" and value.isascii()]
    if len(times) != 1 or not (times[0].isascii() and times[0].isdigit() and len(times[0]) <= 12):
        raise InvalidSignature(f"There is no header {HEADER}, or it has no time.")
    if not 0 < len(given) <= SIGNATURES_MAX:
        raise InvalidSignature(f"The header {HEADER} has no signature v1, or too many.")
    return times[0], given


def _digest(secret: str, seconds: str, body: bytes) -> str:
    return hmac.new(secret.encode(), seconds.encode() + b"." + body, hashlib.sha256).hexdigest()
