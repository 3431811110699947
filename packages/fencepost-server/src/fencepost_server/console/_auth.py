"""Authentication and authorization of requests to the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_server.accounts.sessions import SessionPolicy, Sessions
from fencepost_server.console._role import ACCOUNTS, Role, Visitor
from fencepost_server.console._settings import ConsoleSettings

COOKIE_PREFIX = "fencepost"


class ConsoleAuth(Sessions[Role]):
    """Sessions for people, tokens for programs; and which role a route needs."""

    def __init__(self, fp: Fencepost, settings: ConsoleSettings) -> None:
        policy = SessionPolicy(
            settings.session_hours, settings.idle_minutes, COOKIE_PREFIX, settings.secure_cookies
        )
        super().__init__(fp, ACCOUNTS, policy)

    def needs(self, role: Role) -> Callable[[Request], Awaitable[None]]:
        """A dependency: the visitor is authenticated and has the role, or the request is refused."""

        async def check(request: Request) -> None:
            visitor = await self.visitor(request)
            if visitor is None:
                raise HTTPException(401, "Log in, or send a token: `Authorization: Bearer fpc_…`.")
            request.state.visitor = visitor
            if not visitor.may(role):
                raise HTTPException(403, f"This needs the role {role.word}; you are {visitor.role.word}.")
            if visitor.session:
                await self.check_form(request, visitor.session)

        return check

    async def visitor(self, request: Request) -> Visitor | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            known = await self.of_token(given.strip())
        else:
            known = await self.of_browser(request)
        return Visitor(known.name, known.role, known.session) if known else None
