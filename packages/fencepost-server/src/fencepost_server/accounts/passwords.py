"""Passwords: argon2id, off the event loop, and equally slow for an unknown name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import cached_property

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from fencepost.errors import InvalidInput

LENGTH_MIN = 10
# Longer ones would let an anonymous client make us hash megabytes.
LENGTH_MAX = 1000
# Each takes 64 MiB and a tenth of a second of one core.
AT_ONCE_MAX = 2


@dataclass(frozen=True, slots=True)
class PasswordVerdict:
    right: bool
    rehashed: str | None = None


class Passwords:
    """Hashes and checks passwords with argon2id, few at once, and as slowly for unknown names."""

    def __init__(self, hasher: PasswordHasher | None = None) -> None:
        self._hasher = hasher or PasswordHasher()
        self._slots = asyncio.Semaphore(AT_ONCE_MAX)

    @cached_property
    def _nobody(self) -> str:
        """A hash that no password matches, so that the answer takes as long for an unknown name."""
        return self._hasher.hash("no account has this name")

    def hashed(self, password: str) -> str:
        """Hash a password; raises InvalidInput for one that is too short."""
        if not LENGTH_MIN <= len(password) <= LENGTH_MAX:
            raise InvalidInput(
                f"A password has {LENGTH_MIN} to {LENGTH_MAX} characters; this one has {len(password)}.",
                field="password",
            )
        return self._hasher.hash(password)

    async def judge(self, password: str, kept: str | None) -> PasswordVerdict:
        """Whether the password matches the hash. Without a hash: no, after the same time."""
        async with self._slots:
            return await asyncio.to_thread(self._judge, password[: LENGTH_MAX + 1], kept)

    def _judge(self, password: str, kept: str | None) -> PasswordVerdict:
        try:
            self._hasher.verify(kept or self._nobody, password)
        except (VerificationError, InvalidHashError):
            return PasswordVerdict(right=False)
        if kept is None:
            return PasswordVerdict(right=False)
        stale = self._hasher.check_needs_rehash(kept)
        return PasswordVerdict(right=True, rehashed=self._hasher.hash(password) if stale else None)
