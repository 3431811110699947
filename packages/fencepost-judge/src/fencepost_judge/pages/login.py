"""Login with a password or a token, logout, and the visitor's own account."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from fencepost.errors import InvalidInput
from fencepost_judge import accounts, sessions
from fencepost_judge.access import PAGES_ROOT
from fencepost_judge.authentication import Who
from fencepost_judge.pages.page_router import LOGIN, PageRouter
from fencepost_judge.pages.page_sessions import KNOWN_COOKIE, form_of
from fencepost_server.web.formatting import duration
from fencepost_server.web.forms import address_of, local_path, readable
from fencepost_server.web.passwords import Passwords
from fencepost_server.web.signing import digest_of
from fencepost_server.web.templating import HEADERS

WINDOW_SECONDS = 900.0
NAME_MAX = 64
WRONG = "Name, password or token is wrong."


def add(desk: PageRouter, passwords: Passwords) -> None:
    @desk.router.get(f"{PAGES_ROOT}/static/{{name}}")
    async def static(request: Request, name: str) -> Response:
        return desk.file(request, name)

    @desk.router.post(f"{PAGES_ROOT}/logout")
    async def logout(request: Request) -> Response:
        response = RedirectResponse(LOGIN, 303, headers=dict(HEADERS))
        await desk.page_sessions.end_session(request, response)
        return response

    _add_login(desk, passwords)
    _add_account(desk, passwords)


def _add_login(desk: PageRouter, passwords: Passwords) -> None:
    def form(request: Request, wanted: str, user_error: str | None = None, status: int = 200) -> Response:
        return desk.show(
            request, "login.html", "Log in", {"next": wanted, "complaint": user_error}, status=status
        )

    @desk.router.get(LOGIN)
    async def login_form(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        return form(request, local_path(next, PAGES_ROOT))

    @desk.router.post(LOGIN)
    async def login(request: Request) -> Response:
        fields = await form_of(request)
        name, wanted = readable(fields.get("name", ""))[:NAME_MAX], local_path(fields.get("next"), PAGES_ROOT)
        if not name:
            return form(request, wanted, "Enter a name and a password, or a token.", 400)
        # A client that guesses at a name locks out other unknown clients, but not a browser that its owner
        # has used.
        known = desk.page_sessions.cookies.known(request, KNOWN_COOKIE, name)
        if known is None:
            begin = sessions.begin_login(name, address_of(request), window_seconds=WINDOW_SECONDS)
        else:
            begin = sessions.begin_login_known(name, known, window_seconds=WINDOW_SECONDS)
        attempt = await desk.fp.run(begin)
        if attempt.wait_seconds is not None:
            wait = duration(ceil(attempt.wait_seconds))
            return form(request, wanted, f"Too many attempts. Wait {wait}.", 429)
        if not await _is_right(desk, passwords, name, fields.get("password", ""), attempt.password):
            return form(request, wanted, WRONG, 403)
        response = RedirectResponse(wanted, 303, headers=dict(HEADERS))
        await desk.page_sessions.begin_session(request, response, name)
        return response


async def _is_right(desk: PageRouter, passwords: Passwords, name: str, given: str, kept: str | None) -> bool:
    """A token is accepted as a password: its owner could make submissions with it anyway."""
    if given.startswith(accounts.TOKEN_PREFIX) and given.isascii():
        owner = await desk.fp.run(accounts.use_token(accounts.digest_of(given)))
        right, rehashed = owner is not None and owner.name == name, None
    else:
        verdict = await passwords.judge(given, kept)
        right, rehashed = verdict.right, verdict.rehashed
    if right:
        await desk.fp.run(sessions.end_login(name, rehashed=rehashed))
    return right


def _add_account(desk: PageRouter, passwords: Passwords) -> None:
    @desk.router.get(f"{PAGES_ROOT}/account")
    async def account(request: Request) -> Response:
        return desk.show(request, "account.html", "Your account", {})

    @desk.router.post(f"{PAGES_ROOT}/account/password")
    async def change_password(request: Request, who: Who) -> Response:
        """Requires the old password, so that an unattended browser is not enough to take over the account."""
        if not who.is_user:
            raise InvalidInput("The operator has no password: he is known by where he is.", field="password")
        fields = await form_of(request)
        known = digest_of(who.session).hex()
        begin = sessions.begin_login_known(who.name, known, window_seconds=WINDOW_SECONDS)
        attempt = await desk.fp.run(begin)
        if attempt.wait_seconds is not None:
            wait = duration(ceil(attempt.wait_seconds))
            raise InvalidInput(f"Too many attempts. Wait {wait}. Nothing was changed.", field="old")
        if not await _is_right(desk, passwords, who.name, fields.get("old", ""), attempt.password):
            raise InvalidInput("The old password or token is wrong. Nothing was changed.", field="old")
        hashed = await asyncio.to_thread(passwords.hashed, fields.get("password", ""))
        await desk.fp.run(sessions.set_password(who.name, hashed, who.name))
        response = desk.done(
            request, f"{PAGES_ROOT}/account", "Your password is changed. Other sessions have ended."
        )
        await desk.page_sessions.begin_session(request, response, who.name)
        return response
