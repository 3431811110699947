"""Login with a password or a token, logout, and the visitor's own account."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.responses import RedirectResponse

from fencepost.errors import InvalidInput
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge._settings import JudgeSettings
from fencepost_judge.pages._page_router import LOGIN, PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.accounts._oidc_settings import OidcSettings, oidc_of
from fencepost_server.accounts.login import LoginRefused, PasswordLogin, Proof
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.accounts.sign_on import SignOn, SignOnRefused
from fencepost_server.web.formatting import link
from fencepost_server.web.forms import local_path
from fencepost_server.web.templating import HEADERS

SIGN_ON, BACK = f"{LOGIN}/sso", f"{LOGIN}/sso/back"


def add(router: PageRouter, passwords: Passwords) -> None:
    @router.router.get(f"{PAGES_ROOT}/static/{{name}}")
    async def static(request: Request, name: str) -> Response:
        return router.file(request, name)

    @router.router.post(f"{PAGES_ROOT}/logout")
    async def logout(request: Request) -> Response:
        response = RedirectResponse(LOGIN, 303, headers=dict(HEADERS))
        await router.page_sessions.end(request, response)
        return response

    logins = PasswordLogin(router.page_sessions, passwords, with_tokens=True)
    _add_login(router, logins)
    _add_sign_on(router)
    _add_account(router, logins, passwords)


def _add_login(router: PageRouter, logins: PasswordLogin[JudgeRole]) -> None:
    def form(request: Request, wanted: str, user_error: str | None = None, status: int = 200) -> Response:
        has_provider = router.judging.settings.oidc_issuer is not None
        facts = {
            "next": wanted,
            "error_message": user_error,
            "sign_on": link(SIGN_ON, next=wanted) if has_provider else None,
        }
        return router.show(request, "login.html", "Log in", facts, status=status)

    @router.router.get(LOGIN)
    async def login_form(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        return form(request, local_path(next, PAGES_ROOT))

    @router.router.post(LOGIN)
    async def login(request: Request) -> Response:
        fields = await form_of(request)
        wanted = local_path(fields.get("next"), PAGES_ROOT)
        try:
            name = await logins.check(request, fields.get("name", ""), fields.get("password", ""))
        except LoginRefused as refused:
            return form(request, wanted, refused.reason, refused.status)
        response = RedirectResponse(wanted, 303, headers=dict(HEADERS))
        await router.page_sessions.begin(request, response, name)
        return response


def _add_sign_on(router: PageRouter) -> None:
    settings = router.judging.settings
    sign_on: SignOn[JudgeRole] | None = None
    if settings.oidc_issuer is not None:
        sign_on = SignOn(router.fp, ACCOUNTS, router.page_sessions, _provider_of(settings))

    @router.router.get(SIGN_ON)
    async def leave(request: Request, next: Annotated[str | None, Query()] = None) -> Response:  # noqa: A002
        if sign_on is None:
            return router.refuse(request, 404, "This judge has no single sign-on.")
        try:
            return await sign_on.leave(request, local_path(next, PAGES_ROOT))
        except SignOnRefused as refused:
            return router.refuse(request, 403, str(refused))

    @router.router.get(BACK)
    async def come_back(
        request: Request,
        code: Annotated[str, Query(max_length=4000)] = "",
        state: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        if sign_on is None:
            return router.refuse(request, 404, "This judge has no single sign-on.")
        try:
            return await sign_on.come_back(request, code, state)
        except SignOnRefused as refused:
            return router.refuse(request, 403, str(refused))


def _provider_of(settings: JudgeSettings) -> OidcSettings[JudgeRole]:
    word = settings.oidc_else_role
    roles = {group: JudgeRole[role.upper()] for group, role in settings.oidc_roles.items()}
    return oidc_of(settings, BACK, roles, None if word is None else JudgeRole[word.upper()])


def _add_account(router: PageRouter, logins: PasswordLogin[JudgeRole], passwords: Passwords) -> None:
    @router.router.get(f"{PAGES_ROOT}/account")
    async def account(request: Request) -> Response:
        return router.show(request, "account.html", "Your account", {})

    @router.router.post(f"{PAGES_ROOT}/account/password")
    async def change_password(request: Request, who: Who) -> Response:
        """Requires the old password, so that an unattended browser is not enough to take over the account."""
        if not who.is_user:
            raise InvalidInput(
                "The operator of the server has no account, and no password.", field="password"
            )
        fields = await form_of(request)
        try:
            proof = await logins.check_again(request, who.name, who.session, fields.get("old", ""))
        except LoginRefused as refused:
            raise InvalidInput(f"{refused.reason} Nothing was changed.", field="old") from None
        hashed = await asyncio.to_thread(passwords.hashed, fields.get("password", ""))
        # A token opens the judge only; a password, every service in which the account has a role.
        by_service = proof is Proof.TOKEN
        await router.fp.run(ACCOUNTS.set_password(who.name, hashed, who.name, by_service=by_service))
        response = router.done(
            request, f"{PAGES_ROOT}/account", "Your password was changed. Your other sessions have ended."
        )
        await router.page_sessions.begin(request, response, who.name)
        return response
