"""Identifies the callers of the services' APIs: users of the console, and programs of one service."""

from __future__ import annotations

from fencepost.client import Fencepost
from fencepost_server.accounts import programs
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.web.authorization import Caller, Right

_OF_ROLE = {
    Role.VIEWER: Right.READ,
    Role.OPERATOR: Right.READ | Right.DECIDE,
    Role.ADMIN: Right.READ | Right.DECIDE,
}
OF_PROGRAM = Right.READ | Right.SUBMIT


class Callers:
    """The roles of the console bind every service; a program has rights in its own service only."""

    def __init__(self, fp: Fencepost) -> None:
        self._fp = fp

    async def authenticate(self, token: str, service: str) -> Caller | None:
        if not token.isascii():
            return None
        if token.startswith(ACCOUNTS.token_prefix):
            user = await self._fp.run(ACCOUNTS.use_token(token))
            return Caller(f"{user.name}@console", _OF_ROLE[user.role]) if user else None
        program = await self._fp.run(programs.programs_of(service).use_token(token))
        return Caller(f"{program.name}@{service}", OF_PROGRAM) if program else None
