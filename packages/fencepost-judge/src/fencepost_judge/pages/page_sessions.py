"""Browser sessions: identifies the visitor, and checks that a form comes from one of our pages.

A session identifies a user. A visitor that needs no authentication (see `authentication.py`) is the operator
here too. A form is bound to the session; without one, as at the login, to a cookie that the page has set.
"""

from __future__ import annotations

from fastapi import Request, Response
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_judge import sessions
from fencepost_judge.access import Access
from fencepost_judge.authentication import Authentication
from fencepost_judge.role import JudgeVisitor
from fencepost_judge.settings import JudgeSettings
from fencepost_server.web.cookies import Cookies
from fencepost_server.web.forms import FORM_FIELD, FORM_HEADER, SAFE_METHODS, fields_of
from fencepost_server.web.signing import Signer, digest_of, new_secret

SESSION_COOKIE = "fencepost_judge_session"
VISIT_COOKIE = "fencepost_judge_visit"
NOTICE_COOKIE = "fencepost_judge_notice"
KNOWN_COOKIE = "fencepost_judge_known"
FILES_MAX = 1
FIELDS_MAX = 20


class Sessions:
    def __init__(self, fp: Fencepost, doors: Authentication, settings: JudgeSettings) -> None:
        self._fp = fp
        self._doors = doors
        self._settings = settings
        self._cookies: Cookies | None = None

    @property
    def cookies(self) -> Cookies:
        assert self._cookies is not None, "nobody is shown a page before he was received"
        return self._cookies

    async def look_up(self, request: Request) -> None:
        """Identifies the visitor, if there is one."""
        if self._cookies is None:
            key = await self._fp.run(sessions.key())
            self._cookies = Cookies(Signer(key), NOTICE_COOKIE, self._settings.secure_cookies)
        known = self._cookies.signer.opened(request.cookies.get(VISIT_COOKIE, ""), purpose="visit")
        request.state.visit = known or new_secret()
        request.state.is_new = known is None
        request.state.visitor = await self._visitor(request)

    def admit(self, request: Request, access: Access | None) -> Request:
        """The request, if the visitor may make it; otherwise raises. Without an access the page is open to
        everyone."""
        visitor: JudgeVisitor | None = request.state.visitor
        if access is None:
            return request
        if visitor is None:
            raise HTTPException(401, "Log in.")
        return self._doors.admit(request, visitor, access)

    async def check_form(self, request: Request) -> None:
        """Checks the form's token: browsers send cookies with requests from any page, but only our pages
        know the token."""
        if request.method in SAFE_METHODS:
            return
        given = request.headers.get(FORM_HEADER) or (await form_of(request)).get(FORM_FIELD, "")
        if not self.cookies.signer.is_form_token(given, _bond(request)):
            raise HTTPException(403, "The form is older than the session, or of another site. Load it again.")

    def form_token(self, request: Request) -> str:
        return self.cookies.signer.form_token(_bond(request))

    def leave_visit(self, request: Request, response: Response) -> None:
        """Sets the cookie that the next form is bound to if there is no session."""
        if request.state.is_new:
            signed = self.cookies.signer.signed(request.state.visit, purpose="visit")
            self.cookies.set(request, response, VISIT_COOKIE, signed, self._lifetime_seconds)

    async def begin_session(self, request: Request, response: Response, name: str) -> None:
        session = new_secret()
        await self._fp.run(sessions.begin(digest_of(session), name, lifetime_seconds=self._lifetime_seconds))
        signed = self.cookies.signer.signed(session, purpose="session")
        self.cookies.set(request, response, SESSION_COOKIE, signed, self._lifetime_seconds)
        self.cookies.remember(request, response, KNOWN_COOKIE, name)

    async def end_session(self, request: Request, response: Response) -> None:
        session = self._session_of(request)
        if session is not None:
            await self._fp.run(sessions.end(digest_of(session)))
        response.delete_cookie(SESSION_COOKIE, path="/")

    @property
    def _lifetime_seconds(self) -> float:
        return self._settings.session_hours * 3600

    async def _visitor(self, request: Request) -> JudgeVisitor | None:
        session = self._session_of(request)
        if session is not None:
            idle_seconds = self._settings.idle_minutes * 60
            known = await self._fp.run(sessions.use(session, digest_of(session), idle_seconds=idle_seconds))
            if known is not None:
                return known
        return await self._doors.unasked()

    def _session_of(self, request: Request) -> str | None:
        return self.cookies.signer.opened(request.cookies.get(SESSION_COOKIE, ""), purpose="session")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; of one with a file, only the text fields."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await fields_of(request)
    form = await request.form(max_files=FILES_MAX, max_fields=FIELDS_MAX)
    return {name: value for name, value in form.items() if isinstance(value, str)}


def _bond(request: Request) -> str:
    visitor: JudgeVisitor | None = request.state.visitor
    visit: str = request.state.visit
    return visitor.session if visitor is not None and visitor.session else visit
