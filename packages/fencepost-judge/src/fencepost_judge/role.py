"""The three roles of the judge; each has every right of the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Self

RoleWord = Literal["contestant", "jury", "admin"]


class JudgeRole(IntEnum):
    """A contestant submits, a jury decides about problems and verdicts, an admin manages users."""

    CONTESTANT = 1
    JURY = 2
    ADMIN = 3

    @classmethod
    def named(cls, name: str) -> Self:
        return cls[name.upper()]

    @property
    def word(self) -> str:
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class JudgeVisitor:
    """An authenticated visitor. The operator of the server is not a user, and may do everything.

    `session` is what the forms of a browser session are bound to; empty for a program with a token.
    """

    name: str
    role: JudgeRole
    is_user: bool = True
    session: str = ""

    def may(self, needed: JudgeRole) -> bool:
        return self.role >= needed

    def sees(self, author: str) -> bool:
        """Whether the visitor may see what this author submitted."""
        return self.may(JudgeRole.JURY) or (self.is_user and author == self.name)

    @property
    def is_limited(self) -> bool:
        """Whether the rate limit applies to its submissions: a jury may test its problems without a limit."""
        return self.is_user and not self.may(JudgeRole.JURY)


OPERATOR = JudgeVisitor("operator", JudgeRole.ADMIN, is_user=False)
