"""Users, their tokens, and the audit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from fencepost.errors import InvalidInput
from fencepost_server.accounts.calls import (
    DAY_SECONDS,
    LABEL_MAX,
    TOKEN_DAYS_MAX,
    TOKENS_MAX,
    AuditEntry,
    User,
    audit_entries,
)
from fencepost_server.accounts.passwords import LENGTH_MAX, LENGTH_MIN, Passwords
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.console.bulk_actions import BulkActions, Choice, Number, add_bulk_actions
from fencepost_server.console.context import ConsoleContext, Limit, Name, Paged, wanted
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.questions import Confirmation
from fencepost_server.web.words import say

_USERS = Listing(
    table="users",
    key=("name",),
    positions=("after",),
    is_descending=False,
    columns={
        "name": "text",
        "role": "text",
        "has_password": "boolean",
        "made_at": "timestamptz",
        "seen_at": "timestamptz",
        "disabled_at": "timestamptz",
    },
    searched=("name", "role", "made_by"),
)
_ENTRIES = Listing(
    table="entries",
    key=("audit_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "audit_id": "bigint",
        "at": "timestamptz",
        "service": "text",
        "actor": "text",
        "role": "text",
        "action": "text",
        "subject": "text",
        "outcome": "text",
        "address": "text",
    },
    searched=("actor", "action", "subject", "outcome", "address"),
)
USERS_MAX = 10_000
RoleWord = Literal["viewer", "operator", "admin"]
UserName = Annotated[str, Path(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]
Password = Annotated[str, Field(min_length=LENGTH_MIN, max_length=LENGTH_MAX)]


class SetUser(BaseModel):
    model_config = {"extra": "forbid"}

    role: RoleWord
    password: Password | None = None


class NewUser(SetUser):
    name: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$")]


class NewToken(BaseModel):
    model_config = {"extra": "forbid"}

    label: Annotated[str, Field(min_length=1, max_length=LABEL_MAX, pattern=r"^[^\x00-\x1f]+$")]
    role: RoleWord = "viewer"
    days: Annotated[float, Field(gt=0, le=TOKEN_DAYS_MAX)] = 90


class UsersQuery(ListQuery):
    after: Name | None = None
    limit: Limit = 50


class AuditQuery(Paged):
    actor: Name | None = None


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/users", "users.html", "Users", needs=Role.ADMIN)
    async def users(request: Request, query: Annotated[UsersQuery, Query()]) -> PageData:
        """All users, in order of name."""

        async def read(after: str | None, limit: int) -> Sequence[User]:
            return await context.fp.run(ACCOUNTS.users(wanted(after), limit))

        page = await context.lists.gather(_USERS, query, query.limit, read)
        facts = {
            "users": page.rows,
            **page.next,
            "filters": {
                "part": query.part or None,
                "limit": query.limit if query.limit != 50 else None,
            },
        }
        return PageData(facts, "users", lists={"users": page.state})

    @context.router.page("/account", "account.html", "Your account")
    async def account(request: Request) -> PageData:
        """Your role and your tokens."""
        visitor = visitor_of(request)
        tokens = await context.fp.run(ACCOUNTS.tokens(visitor.name))
        roles = [role.word for role in Role if visitor.may(role)]
        facts = {"name": visitor.name, "role": visitor.role.word, "roles": roles}
        return PageData({**facts, "tokens": tokens, "tokens_most": TOKENS_MAX}, rows="tokens")

    @context.router.page("/audit", "audit.html", "Audit", needs=Role.ADMIN)
    async def audit(request: Request, query: Annotated[AuditQuery, Query()]) -> PageData:
        """The audit, newest first."""

        async def read(before: int | None, limit: int) -> Sequence[AuditEntry]:
            return await context.fp.run(audit_entries(actor=wanted(query.actor), before=before, limit=limit))

        page = await context.lists.gather(_ENTRIES, query, query.limit, read)
        facts = {"entries": page.rows, **page.next, "filters": query.filters()}
        return PageData(facts, "entries", lists={"entries": page.state})


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(request: Request, names: Sequence[str]) -> Mapping[str, str]:
        rows = await context.fp.run(ACCOUNTS.users(None, USERS_MAX))
        own = visitor_of(request).name
        return {
            one.name: "your own" if one.name == own else "disabled" if one.disabled_at else "open"
            for one in rows
            if one.name in names
        }

    async def disable_one(name: str, request: Request, _: str) -> None:
        await context.fp.run(ACCOUNTS.disable_user(name, visitor_of(request).name))

    disabling = Choice(
        verb="Disable",
        done="disabled",
        consequence="Their sessions, links and tokens end at once. Creating an account again enables it.",
        act=disable_one,
        fits=("open",),
    )
    add_bulk_actions(
        context,
        BulkActions(
            table="users",
            action="user.settle",
            one="account",
            many="accounts",
            back="/console/users",
            choices={"disable": disabling},
            states=states,
            needs=Role.ADMIN,
        ),
    )

    async def token_states(request: Request, ids: Sequence[int]) -> Mapping[int, str]:
        rows = await context.fp.run(ACCOUNTS.tokens(visitor_of(request).name))
        return {one.token_id: "revoked" if one.revoked_at else "open" for one in rows if one.token_id in ids}

    async def revoke_one(token_id: int, request: Request, _: str) -> None:
        name = visitor_of(request).name
        await context.fp.run(ACCOUNTS.revoke_token(token_id, name, owner=name))

    revoking = Choice(
        verb="Revoke",
        done="revoked",
        consequence="Programs that use them are refused at once.",
        act=revoke_one,
        fits=("open",),
    )
    add_bulk_actions(
        context,
        BulkActions(
            table="tokens",
            action="token.settle",
            one="token",
            many="tokens",
            back="/console/account",
            choices={"revoke": revoking},
            states=token_states,
            key=Number,
            needs=Role.VIEWER,
        ),
    )


def add_actions(context: ConsoleContext) -> None:
    passwords = Passwords()

    async def before_disable(request: Request, name: str) -> Confirmation | None:
        if visitor_of(request).name == name:
            return None
        told = "Its sessions, links and tokens end at once. Creating it again enables it."
        return Confirmation(
            say("Disable account {name}?", name=name),
            [told],
            say("Disable {name}", name=name),
            "/console/users",
        )

    async def before_revoke(request: Request, token_id: int) -> Confirmation | None:
        tokens = await context.fp.run(ACCOUNTS.tokens(visitor_of(request).name))
        found = [one for one in tokens if one.token_id == token_id]
        if not found:
            return None
        told = say("Programs that use it are refused at once. It was made for {label}.", label=found[0].label)
        return Confirmation(
            say("Revoke token {token_id}?", token_id=token_id),
            [told],
            say("Revoke token {token_id}", token_id=token_id),
            "/console/account",
        )

    async def keep(name: str, wanted_user: SetUser, actor: str) -> None:
        hashed = None
        if wanted_user.password is not None:
            hashed = await asyncio.to_thread(passwords.hashed, wanted_user.password)
        await context.fp.run(
            ACCOUNTS.set_user(name, Role.named(wanted_user.role), hashed, actor, by_service=True)
        )

    _add_bulk_actions(context)

    @context.router.action("/users", "user.make", needs=Role.ADMIN)
    async def make_user(request: Request, body: NewUser) -> ActionDone:
        """Create a user, or enable a disabled one again."""
        await keep(body.name, body, visitor_of(request).name)
        return ActionDone(say("{name} is {role}.", name=body.name, role=body.role), "/console/users")

    @context.router.action("/users/{name}", "user.set", needs=Role.ADMIN)
    async def set_user(request: Request, name: UserName, body: SetUser) -> ActionDone:
        """Change the role or the password. It ends the user's sessions."""
        await keep(name, body, visitor_of(request).name)
        return ActionDone(say("{name} is {role}.", name=name, role=body.role), "/console/users")

    @context.router.action("/users/{name}/disable", "user.disable", needs=Role.ADMIN, asks=before_disable)
    async def disable(request: Request, name: UserName) -> ActionDone:
        """Disable the account: it can no longer log in."""
        visitor = visitor_of(request)
        if visitor.name == name:
            raise InvalidInput("You cannot disable your own account; another admin can.", field="name")
        await context.fp.run(ACCOUNTS.disable_user(name, visitor.name))
        return ActionDone(say("{name} is disabled.", name=name), "/console/users")

    @context.router.action("/account/tokens", "token.make", needs=Role.VIEWER)
    async def make_token(request: Request, body: NewToken) -> ActionDone:
        """Create a token for a program, with at most your own role. Its secret is shown once."""
        visitor, secret = visitor_of(request), ACCOUNTS.token_prefix + new_secret()
        if not visitor.session:
            # Otherwise a stolen token could make new ones that outlive it.
            raise HTTPException(403, "A token cannot create tokens: log in.")
        role = min(Role.named(body.role), visitor.role)
        lifetime_seconds = body.days * DAY_SECONDS
        token_id = await context.fp.run(
            ACCOUNTS.make_token(
                secret,
                visitor.name,
                body.label,
                role,
                lifetime_seconds=lifetime_seconds,
                actor=visitor.name,
            )
        )
        return ActionDone(
            say("Token {token_id} ({word}) is made.", token_id=token_id, word=role.word),
            "/console/account",
            {"token_id": token_id},
            secret,
        )

    @context.router.action(
        "/account/tokens/{token_id}/revoke", "token.revoke", needs=Role.VIEWER, asks=before_revoke
    )
    async def revoke(
        request: Request, token_id: Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
    ) -> ActionDone:
        """Revoke the token at once."""
        visitor = visitor_of(request)
        await context.fp.run(ACCOUNTS.revoke_token(token_id, visitor.name, owner=visitor.name))
        return ActionDone(say("Token {token_id} is revoked.", token_id=token_id), "/console/account")
