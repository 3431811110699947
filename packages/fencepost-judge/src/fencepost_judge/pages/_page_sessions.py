"""Browser sessions: identifies the visitor, and checks that a form comes from one of our pages.

A session identifies a user. A visitor that needs no authentication (see `_authentication.py`) is the operator
here too.
"""

from __future__ import annotations

from fastapi import Request
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_judge._access import Access
from fencepost_judge._authentication import Authentication
from fencepost_judge._role import ACCOUNTS, JudgeRole, JudgeVisitor, visitor
from fencepost_judge._settings import JudgeSettings
from fencepost_server.accounts.sessions import SessionPolicy, Sessions
from fencepost_server.web.forms import fields_of

COOKIE_PREFIX = "fencepost_judge"
FILES_MAX = 1
FIELDS_MAX = 20


class PageSessions(Sessions[JudgeRole]):
    def __init__(self, fp: Fencepost, auth: Authentication, settings: JudgeSettings) -> None:
        policy = SessionPolicy(
            settings.session_hours, settings.idle_minutes, COOKIE_PREFIX, settings.secure_cookies
        )
        super().__init__(fp, ACCOUNTS, policy)
        self._auth = auth

    async def look_up(self, request: Request) -> None:
        """Identifies the visitor, if there is one."""
        await self.open()
        request.state.visitor = visitor(await self.of_browser(request)) or await self._auth.unasked()

    def admit(self, request: Request, access: Access | None) -> Request:
        """The request, if the visitor may make it; otherwise raises. Without an access the page is open to
        everyone."""
        if access is None:
            return request
        if request.state.visitor is None:
            raise HTTPException(401, "Log in.")
        return self._auth.admit(request, request.state.visitor, access)


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form; of one with a file, only the text fields."""
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        return await fields_of(request)
    form = await request.form(max_files=FILES_MAX, max_fields=FIELDS_MAX)
    return {name: value for name, value in form.items() if isinstance(value, str)}


def session_of(request: Request) -> str:
    """What the forms of the visitor are bound to; empty without a session."""
    found: JudgeVisitor | None = request.state.visitor
    return found.session if found else ""
