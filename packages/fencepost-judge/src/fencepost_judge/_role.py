"""The three roles of the judge; each has every right of the one before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fencepost_server.accounts.calls import Accounts
from fencepost_server.accounts.role import Identity, ServiceRole

RoleWord = Literal["contestant", "jury", "admin"]


class JudgeRole(ServiceRole):
    """A contestant submits, a jury decides about problems and verdicts, an admin manages users."""

    CONTESTANT = 1
    JURY = 2
    ADMIN = 3


ACCOUNTS = Accounts("judge", JudgeRole, token_prefix="fpj_")  # noqa: S106 - A prefix.


@dataclass(frozen=True, slots=True)
class JudgeVisitor(Identity[JudgeRole]):
    """An authenticated visitor. The operator of the server is not a user, and may do everything."""

    is_user: bool = True

    def sees(self, author: str) -> bool:
        """Whether the visitor may see what this author submitted."""
        return self.may(JudgeRole.JURY) or (self.is_user and author == self.name)

    @property
    def is_limited(self) -> bool:
        """Whether the rate limit applies to its submissions: a jury may test its problems without a limit."""
        return self.is_user and not self.may(JudgeRole.JURY)


OPERATOR = JudgeVisitor("operator", JudgeRole.ADMIN, is_user=False)


def visitor(identity: Identity[JudgeRole] | None) -> JudgeVisitor | None:
    """The user that a session or a token has authenticated."""
    return JudgeVisitor(identity.name, identity.role, identity.session) if identity else None
