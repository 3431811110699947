"""Who may do what in the judge: three roles, each with all that the one before it has."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Self

RoleWord = Literal["contestant", "jury", "admin"]


class JudgeRole(IntEnum):
    """A contestant submits, a jury decides about problems and verdicts, an admin decides about people."""

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
    """Somebody who has shown who he is. The operator of the house is no user: he may do everything.

    `session` is what the forms of a person at a browser are bound to; empty for a program with a token.
    """

    name: str
    role: JudgeRole
    is_user: bool = True
    session: str = ""

    def may(self, needed: JudgeRole) -> bool:
        return self.role >= needed

    def sees(self, author: str) -> bool:
        """Whether he may look at what this author submitted."""
        return self.may(JudgeRole.JURY) or (self.is_user and author == self.name)

    @property
    def is_limited(self) -> bool:
        """Whether his submissions are counted: a jury tests its problems as fast as it likes."""
        return self.is_user and not self.may(JudgeRole.JURY)


OPERATOR = JudgeVisitor("operator", JudgeRole.ADMIN, is_user=False)
