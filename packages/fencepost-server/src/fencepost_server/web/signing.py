"""Cookies that cannot be forged: a value and its signature.

A session's cookie carries a random secret. The database has its digest; the signature keeps invented secrets
from
reaching the database. The token that protects forms against requests from other sites is derived from it too.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signer:
    key: bytes

    def signed(self, value: str, *, purpose: str) -> str:
        return f"{value}.{self._mark(value, purpose)}"

    def opened(self, cookie: str, *, purpose: str) -> str | None:
        """The value, or None when the signature is not ours."""
        value, dot, mark = cookie.rpartition(".")
        if not dot or not hmac.compare_digest(mark.encode(), self._mark(value, purpose).encode()):
            return None
        return value

    def form_token(self, session: str) -> str:
        """The token in every form of this session; another site can neither read nor compute it."""
        return self._mark(session, "form")

    def is_form_token(self, given: str, session: str) -> bool:
        return hmac.compare_digest(given.encode(), self.form_token(session).encode())

    def _mark(self, value: str, purpose: str) -> str:
        digest = hmac.new(self.key, f"{purpose}\0{value}".encode(), hashlib.sha256).digest()
        return urlsafe_b64encode(digest).decode().rstrip("=")


def new_secret() -> str:
    """256 random bits, encoded for a cookie, a header or a link."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """What the database stores instead of the secret. The secret is random, so one round is enough."""
    return hashlib.sha256(secret.encode()).digest()
