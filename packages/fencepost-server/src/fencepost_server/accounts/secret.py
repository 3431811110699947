"""Secrets that a browser or a program carries, and what the database stores instead."""

from __future__ import annotations

import hashlib
import secrets


def new_secret() -> str:
    """256 random bits, encoded for a cookie, a header or a link."""
    return secrets.token_urlsafe(32)


def digest_of(secret: str) -> bytes:
    """What the database stores instead of the secret. The secret is random, so one round is enough."""
    return hashlib.sha256(secret.encode()).digest()
