"""Authentication and authorization of requests to the console."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_server.console import account_calls
from fencepost_server.console.role import Role, Visitor
from fencepost_server.console.settings import ConsoleSettings
from fencepost_server.web.cookies import Cookies
from fencepost_server.web.forms import FORM_FIELD, FORM_HEADER, SAFE_METHODS, address_of, fields_of, readable
from fencepost_server.web.signing import Signer, digest_of, new_secret

SESSION_COOKIE = "fencepost_session"
NOTICE_COOKIE = "fencepost_notice"
ERRAND_COOKIE = "fencepost_errand"
KNOWN_COOKIE = "fencepost_known"
ERRAND_SECONDS = 600.0
TOKEN_PREFIX = "fpc_"  # noqa: S105 - So that a scanner for leaked secrets knows one.


class ConsoleAuth:
    """Sessions for people, tokens for programs. It has its signing key once the console has been opened."""

    def __init__(self, fp: Fencepost, settings: ConsoleSettings) -> None:
        self._fp = fp
        self._settings = settings
        self._cookies: Cookies | None = None

    async def open(self) -> None:
        signer = Signer(await self._fp.run(account_calls.key()))
        self._cookies = Cookies(signer, NOTICE_COOKIE, self._settings.secure_cookies)

    @property
    def cookies(self) -> Cookies:
        assert self._cookies is not None, "the console is opened before it is asked"
        return self._cookies

    @property
    def signer(self) -> Signer:
        return self.cookies.signer

    def needs(self, role: Role) -> Callable[[Request], Awaitable[None]]:
        """A dependency: the visitor is authenticated and has the role, or the request is refused."""

        async def check(request: Request) -> None:
            visitor = await self.visitor(request)
            if visitor is None:
                raise HTTPException(401, "Log in, or send a token: `Authorization: Bearer fpc_…`.")
            request.state.visitor = visitor
            if not visitor.may(role):
                raise HTTPException(403, f"This needs the role {role.word}; you are {visitor.role.word}.")
            if request.method not in SAFE_METHODS and visitor.session:
                await self._check_form(request, visitor)

        return check

    async def visitor(self, request: Request) -> Visitor | None:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._of_token(given.strip())
        session = self._session_of(request)
        if session is None:
            return None
        known = await self._fp.run(
            account_calls.use_session(digest_of(session), idle_seconds=self._settings.idle_minutes * 60)
        )
        return Visitor(known.name, Role.named(known.role), session) if known else None

    def form_token(self, visitor: Visitor | None) -> str:
        return self.signer.form_token(visitor.session) if visitor and visitor.session else ""

    async def begin_session(self, request: Request, response: Response, name: str) -> None:
        session = new_secret()
        lifetime_seconds = self._settings.session_hours * 3600
        await self._fp.run(
            account_calls.begin_session(
                digest_of(session),
                name,
                lifetime_seconds=lifetime_seconds,
                address=address_of(request),
                agent=readable(request.headers.get("user-agent", "")),
            )
        )
        signed = self.signer.signed(session, purpose="session")
        self.cookies.set(request, response, SESSION_COOKIE, signed, lifetime_seconds)
        self.cookies.remember(request, response, KNOWN_COOKIE, name)

    async def end_session(self, request: Request, response: Response) -> None:
        session = self._session_of(request)
        if session is not None:
            await self._fp.run(account_calls.end_session(digest_of(session)))
        response.delete_cookie(SESSION_COOKIE, path="/")

    def leave_errand(self, request: Request, response: Response, text: str) -> None:
        """Store the login state that a browser carries to the provider and back. It is signed, and kept for
        minutes."""
        self.cookies.keep(request, response, ERRAND_COOKIE, text, ERRAND_SECONDS)

    def errand(self, request: Request) -> str | None:
        return self.cookies.kept(request, ERRAND_COOKIE)

    def _session_of(self, request: Request) -> str | None:
        return self.signer.opened(request.cookies.get(SESSION_COOKIE, ""), purpose="session")

    async def _of_token(self, given: str) -> Visitor | None:
        if not given.startswith(TOKEN_PREFIX) or not given.isascii():
            return None
        known = await self._fp.run(account_calls.use_token(digest_of(given)))
        return Visitor(known.name, Role.named(known.role)) if known else None

    async def _check_form(self, request: Request, visitor: Visitor) -> None:
        """Any site can make a browser send its cookie; only our own pages know the form's token."""
        given = request.headers.get(FORM_HEADER)
        if given is None:
            given = (await fields_of(request)).get(FORM_FIELD, "")
        if not self.signer.is_form_token(given, visitor.session):
            raise HTTPException(403, "The form is older than the session, or of another site. Load it again.")
