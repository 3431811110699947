"""Login: password, single sign-on, one-time links, logout."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from fencepost.errors import InvalidInput
from fencepost_server.accounts.login import LoginRefused, PasswordLogin
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.accounts.sign_on import SignOn, SignOnRefused
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.router import PAGES
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import address_of, fields_of, local_path
from fencepost_server.web.templating import HEADERS, THEME_COOKIE, THEMES

SIGN_ON, BACK = f"{PAGES}/login/sso", f"{PAGES}/login/sso/back"
OPEN_PATHS = (f"{PAGES}/login", SIGN_ON, BACK, f"{PAGES}/enter", f"{PAGES}/static/{{name}}", "/")
"""The paths that need no authentication. A test checks that every other one requires a role."""
LOGOUT = ("POST", f"{PAGES}/logout")
THEME = ("POST", f"{PAGES}/theme")
THEME_SECONDS = 366 * 86_400


def add_pages(context: ConsoleContext) -> None:
    pages, router = context.router.pages, context.router

    @pages.get("/")
    async def front() -> Response:
        return RedirectResponse(PAGES, 303, headers=dict(HEADERS))

    @pages.get(f"{PAGES}/static/{{name}}")
    async def static(request: Request, name: str) -> Response:
        return router.templates.file(name) or router.refuse(request, 404, "There is no such file.")

    @pages.get(f"{PAGES}/login")
    async def login_form(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        return router.show(request, "login.html", _form(context, local_path(next, PAGES)))

    _add_login(context, PasswordLogin(router.auth, Passwords()))
    if context.settings.oidc_issuer is not None:
        sign_on = SignOn(context.fp, ACCOUNTS, router.auth, context.settings.oidc(BACK))
        _add_sign_on(context, sign_on)

    @pages.get(f"{PAGES}/enter")
    async def enter(request: Request, ticket: Annotated[str, Query(max_length=200)] = "") -> Response:
        """Log in with a one-time link: its first use invalidates it."""
        known = await context.fp.run(ACCOUNTS.use_ticket(ticket, address_of(request)))
        if known is None:
            return router.refuse(
                request, 403, "This link was used already, or is too old. `fencepost console link` makes one."
            )
        response = RedirectResponse(PAGES, 303, headers=dict(HEADERS))
        await router.auth.begin(request, response, known.name)
        return response

    @pages.post(THEME[1], dependencies=[Depends(router.auth.needs(Role.VIEWER))])
    async def theme(request: Request) -> Response:
        """Keep the theme that a visitor chose, in a cookie for a year, and return to the page."""
        fields = await fields_of(request)
        response = RedirectResponse(local_path(fields.get("back"), PAGES), 303, headers=dict(HEADERS))
        chosen = fields.get("theme", "")
        if chosen not in THEMES:
            raise InvalidInput(f"theme must be one of {', '.join(THEMES)}.", field="theme")
        response.set_cookie(
            THEME_COOKIE,
            chosen,
            max_age=THEME_SECONDS,
            path=PAGES,
            httponly=True,
            samesite="lax",
            secure=context.settings.secure_cookies or request.url.scheme == "https",
        )
        return response

    @pages.post(LOGOUT[1], dependencies=[Depends(router.auth.needs(Role.VIEWER))])
    async def logout(request: Request) -> Response:
        response = RedirectResponse(f"{PAGES}/login", 303, headers=dict(HEADERS))
        await router.auth.end(request, response)
        return response


def _add_login(context: ConsoleContext, passwords: PasswordLogin[Role]) -> None:
    router = context.router

    @router.pages.post(f"{PAGES}/login")
    async def login(request: Request) -> Response:
        await router.auth.check_form(request, "")
        fields = await fields_of(request)
        wanted = local_path(fields.get("next"), PAGES)
        try:
            name = await passwords.check(request, fields.get("name", ""), fields.get("password", ""))
        except LoginRefused as refused:
            form = _form(context, wanted, refused.reason)
            return router.show(request, "login.html", form, status=refused.status)
        response = RedirectResponse(wanted, 303, headers=dict(HEADERS))
        await router.auth.begin(request, response, name)
        return response


def _add_sign_on(context: ConsoleContext, sign_on: SignOn[Role]) -> None:
    router = context.router

    @router.pages.get(SIGN_ON)
    async def leave(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        try:
            return await sign_on.leave(request, local_path(next, PAGES))
        except SignOnRefused as refused:
            return router.refuse(request, 403, str(refused))

    @router.pages.get(BACK)
    async def come_back(
        request: Request,
        code: Annotated[str, Query(max_length=4000)] = "",
        state: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        try:
            return await sign_on.come_back(request, code, state)
        except SignOnRefused as refused:
            return router.refuse(request, 403, str(refused))


def _form(context: ConsoleContext, wanted: str, user_error: str | None = None) -> dict[str, Any]:
    sign_on = None if context.settings.oidc_issuer is None else link(SIGN_ON, next=wanted)
    return {"title": "Log in", "next": wanted, "error_message": user_error, "sign_on": sign_on}
