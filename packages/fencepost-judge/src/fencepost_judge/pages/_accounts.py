"""Users of the judge, their passwords and their tokens."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Request, Response
from pydantic import Field

from fencepost.errors import InvalidInput
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._accounts_api import TokenRequest, UserRequest, make_token
from fencepost_judge._authentication import Who
from fencepost_judge._role import ACCOUNTS, JudgeRole
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.accounts.passwords import LENGTH_MAX, LENGTH_MIN, Passwords
from fencepost_server.web.formatting import quoted
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.questions import Confirmation

PAGE_ROWS = 200
HOME = f"{PAGES_ROOT}/users"


class UserForm(UserRequest):
    name: Annotated[str, Field(min_length=1, max_length=64)]
    password: Annotated[str, Field(min_length=LENGTH_MIN, max_length=LENGTH_MAX)] | None = None


def add(router: PageRouter, passwords: Passwords) -> None:
    _add_users(router, passwords)
    _add_tokens(router)


def _add_users(router: PageRouter, passwords: Passwords) -> None:
    fp = router.fp

    @router.router.get(HOME)
    async def users(request: Request, after: str | None = None) -> Response:
        found = await fp.run(ACCOUNTS.users(after, PAGE_ROWS))
        further = found[-1].name if len(found) == PAGE_ROWS else None
        return router.show(request, "users.html", "Users", {"users": found, "further": further})

    @router.router.post(HOME)
    async def set_user(request: Request, who: Who) -> Response:
        """Creates or changes a user together with its password: both or neither."""
        wanted = filled(UserForm, await form_of(request))
        hashed = (
            None if wanted.password is None else await asyncio.to_thread(passwords.hashed, wanted.password)
        )
        role = JudgeRole.named(wanted.role)
        await fp.run(ACCOUNTS.set_user(wanted.name, role, hashed, who.name, by_service=True))
        return router.done(request, f"{HOME}/{quoted(wanted.name)}", f"{wanted.name} is {wanted.role}.")

    @router.router.post(f"{HOME}/{{name}}/lock")
    async def lock(request: Request, who: Who, name: str) -> Response:
        if who.is_user and name == who.name:
            raise InvalidInput("You cannot disable your own account; another admin can.", field="name")
        told = ["Its sessions and tokens end at once. Creating it again enables it."]
        question = Confirmation(f"Disable account {name}?", told, f"Disable {name}", HOME)
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(ACCOUNTS.disable_user(name, who.name))
        return router.done(request, HOME, f"{name} is disabled.")


def _add_tokens(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(f"{HOME}/{{name}}")
    async def one_user(request: Request, name: str) -> Response:
        facts = {"name": name, "tokens": await fp.run(ACCOUNTS.tokens(name))}
        return router.show(request, "user.html", f"Tokens of {name}", facts)

    @router.router.post(f"{HOME}/{{name}}/tokens")
    async def new_token(request: Request, who: Who, name: str) -> Response:
        made = await make_token(fp, name, filled(TokenRequest, await form_of(request)), who.name)
        facts = {
            "message": f"A token for {name}.",
            "secret": made.token,
            "back": f"{HOME}/{quoted(name)}",
        }
        return router.show(request, "secret.html", "Keep this", facts)

    @router.router.post(f"{PAGES_ROOT}/tokens/{{token_id}}/revoke")
    async def revoke(request: Request, who: Who, token_id: Id) -> Response:
        told = ["Programs that use it are refused at once."]
        question = Confirmation(f"Revoke token {token_id}?", told, f"Revoke token {token_id}", HOME)
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(ACCOUNTS.revoke_token(token_id, who.name))
        return router.done(request, HOME, f"Token {token_id} is revoked.")
