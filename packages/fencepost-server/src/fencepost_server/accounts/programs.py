"""Programs: accounts that call the API of one service with a token.

A program of `orders` places orders and reads them, and may do nothing else anywhere. What operators decide
needs a user of the console. A service that has programs inserts the role into `account_service_role`.
"""

from __future__ import annotations

from fencepost_server.accounts.calls import Accounts
from fencepost_server.accounts.role import ServiceRole

TOKEN_PREFIX = "fpp_"  # noqa: S105 - A prefix.


class ProgramRole(ServiceRole):
    """The one role that a program has in its service."""

    PROGRAM = 1


def programs_of(service: str) -> Accounts[ProgramRole]:
    """The accounts of programs, with tokens for this one service."""
    return Accounts(service, ProgramRole, token_prefix=TOKEN_PREFIX)
