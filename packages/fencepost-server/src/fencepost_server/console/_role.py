"""Authorization: three roles, each with all rights of the one before it."""

from __future__ import annotations

from dataclasses import dataclass

from fencepost_server.accounts.calls import Accounts
from fencepost_server.accounts.role import Identity, ServiceRole


class Role(ServiceRole):
    """A viewer reads, an operator decides about work, an admin decides about users."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


ACCOUNTS = Accounts("console", Role, token_prefix="fpc_")  # noqa: S106 - A prefix.


@dataclass(frozen=True, slots=True)
class Visitor(Identity[Role]):
    """An authenticated user. `session` is empty for a program with a token."""

    @property
    def actor(self) -> str:
        """The name that the history of jobs, leases and messages records."""
        return f"{self.name}@console"
