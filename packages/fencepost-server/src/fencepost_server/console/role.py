"""Authorization: three roles, each with all rights of the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Self


class Role(IntEnum):
    """A viewer reads, an operator decides about work, an admin decides about users."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @classmethod
    def named(cls, name: str) -> Self:
        return cls[name.upper()]

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Visitor:
    """An authenticated user. `session` is empty for a program with a token."""

    name: str
    role: Role
    session: str = ""

    def may(self, needed: Role) -> bool:
        return self.role >= needed

    @property
    def actor(self) -> str:
        """The name that the history of jobs, leases and messages records."""
        return f"{self.name}@console"
