"""What the roles of services, and their authenticated visitors, have in common."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, Self, TypeVar


class ServiceRole(IntEnum):
    """The roles of one service; each has every right of those with a lower number.

    The rows of `account_service_role` are the same roles: the service's schema inserts them.
    """

    @classmethod
    def named(cls, name: str) -> Self:
        """The role with this word. Raises KeyError if there is none."""
        return cls[name.upper()]

    @property
    def word(self) -> str:
        """The role's name in lower case."""
        return self.name.lower()


R = TypeVar("R", bound=ServiceRole)


@dataclass(frozen=True, slots=True)
class Identity(Generic[R]):
    """An account that a session, a link or a token has authenticated, with its role in the service.

    `session` is what the forms of a browser session are bound to; empty for a program with a token.
    """

    name: str
    role: R
    session: str = ""

    def may(self, needed: R) -> bool:
        """Whether the role is at least the needed one."""
        return self.role >= needed
