"""Sessions of browsers and tokens of programs, for one service; and that a form comes from one of its pages.

A form is bound to the session; without one, as at the login, to a cookie that the page has set.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_server.accounts._cookies import Cookies
from fencepost_server.accounts.calls import Accounts
from fencepost_server.accounts.role import Identity, R
from fencepost_server.accounts.secret import new_secret
from fencepost_server.web.forms import FORM_FIELD, FORM_HEADER, SAFE_METHODS, address_of, fields_of, readable

ReadFields = Callable[[Request], Awaitable[dict[str, str]]]
"""Reads the fields of a form."""


@dataclass(frozen=True, slots=True)
class SessionPolicy:
    """How long sessions last, and the cookies that carry them."""

    session_hours: float
    idle_minutes: float
    cookie_prefix: str
    secure_cookies: bool

    @property
    def lifetime_seconds(self) -> float:
        """The longest life of a session."""
        return self.session_hours * 3600


class Sessions(Generic[R]):
    """Identifies the account of a request. It has its signing key once it has been opened."""

    def __init__(self, fp: Fencepost, accounts: Accounts[R], policy: SessionPolicy) -> None:
        self.fp = fp
        self.accounts = accounts
        self._policy = policy
        self._cookies: Cookies | None = None

    async def open(self) -> None:
        """Read the key of the cookies from the database."""
        if self._cookies is None:
            key = await self.fp.run(self.accounts.key())
            self._cookies = Cookies(key, self._policy.cookie_prefix, self._policy.secure_cookies)

    @property
    def cookies(self) -> Cookies:
        """The cookies of an opened set of sessions."""
        assert self._cookies is not None, "sessions are opened before they are used"
        return self._cookies

    async def of_browser(self, request: Request) -> Identity[R] | None:
        """The account of the request's session cookie, or None."""
        session = self._session_of(request)
        if session is None:
            return None
        idle_seconds = self._policy.idle_minutes * 60
        return await self.fp.run(self.accounts.use_session(session, idle_seconds=idle_seconds))

    async def of_token(self, given: str) -> Identity[R] | None:
        """The account of a token, or None."""
        if not given.startswith(self.accounts.token_prefix) or not given.isascii():
            return None
        return await self.fp.run(self.accounts.use_token(given))

    async def begin(self, request: Request, response: Response, name: str) -> None:
        """Begin a session and set its cookie."""
        session = new_secret()
        await self.fp.run(
            self.accounts.begin_session(
                session,
                name,
                lifetime_seconds=self._policy.lifetime_seconds,
                address=address_of(request),
                agent=readable(request.headers.get("user-agent", "")),
            )
        )
        self.cookies.keep(request, response, "session", session, self._policy.lifetime_seconds)
        self.cookies.remember(request, response, name)

    async def end(self, request: Request, response: Response) -> None:
        """End the request's session and delete its cookie."""
        session = self._session_of(request)
        if session is not None:
            await self.fp.run(self.accounts.end_session(session))
        self.cookies.delete(request, response, "session")

    def form_token(self, request: Request, session: str) -> str:
        """The token for the forms of a page; `session` is empty without one. See `leave_visit`."""
        return self.cookies.form_token(session or self._visit(request))

    def leave_visit(self, request: Request, response: Response) -> None:
        """Set the cookie that the forms of this page are bound to without a session."""
        if self._visit_of(request) is None:
            visit = self._visit(request)
            self.cookies.keep(request, response, "visit", visit, self._policy.lifetime_seconds)

    async def check_form(self, request: Request, session: str, *, read: ReadFields = fields_of) -> None:
        """Refuse a form that is not from our own page: any site can make a browser send its cookies."""
        if request.method in SAFE_METHODS:
            return
        given = request.headers.get(FORM_HEADER)
        if given is None:
            given = (await read(request)).get(FORM_FIELD, "")
        if not self.cookies.is_form_token(given, session or self._visit(request)):
            raise HTTPException(
                403, "The form is older than the session, or comes from another site. Reload the page."
            )

    def _session_of(self, request: Request) -> str | None:
        return self.cookies.kept(request, "session", self._policy.lifetime_seconds)

    def _visit_of(self, request: Request) -> str | None:
        return self.cookies.kept(request, "visit", self._policy.lifetime_seconds)

    def _visit(self, request: Request) -> str:
        """The secret of the browser's cookie; without one, a new one for as long as the request lasts."""
        known = self._visit_of(request)
        if known is not None:
            return known
        if not hasattr(request.state, "visit"):
            request.state.visit = new_secret()
        visit: str = request.state.visit
        return visit
