"""Users and tokens of the judge over HTTP."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field

from fencepost.client import Fencepost
from fencepost_judge._authentication import Who
from fencepost_judge._role import ACCOUNTS, JudgeRole, RoleWord
from fencepost_judge._service import Judging
from fencepost_server.accounts.calls import DAY_SECONDS, LABEL_MAX, TOKEN_DAYS_MAX
from fencepost_server.accounts.secret import new_secret
from fencepost_server.web.forms import Id


class UserRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    role: RoleWord


class TokenRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    label: Annotated[str, Field(min_length=1, max_length=LABEL_MAX, pattern=r"^[^\x00-\x1f]+$")]
    days: Annotated[int, Field(ge=1, le=TOKEN_DAYS_MAX)] = 90


class NewToken(BaseModel):
    """A new token. It is shown only once."""

    token_id: int
    token: str


def add(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.get("/judge/api/me")
    async def me(who: Who) -> dict[str, Any]:
        """The current visitor, as the judge knows it."""
        return {"name": who.name, "role": who.role.word, "is_user": who.is_user}

    @router.get("/judge/api/users")
    async def users(
        after: str | None = None, limit: Annotated[int, Query(ge=1, le=1000)] = 200
    ) -> list[dict[str, Any]]:
        return [asdict(one) for one in await fp.run(ACCOUNTS.users(after, limit))]

    @router.put("/judge/api/users/{name}", status_code=204)
    async def set_user(name: str, request: UserRequest, who: Who) -> None:
        """Create a user, or change the role of one. Once the first user exists, every request needs a
        token."""
        await fp.run(ACCOUNTS.set_user(name, JudgeRole.named(request.role), None, who.name, by_service=True))

    @router.delete("/judge/api/users/{name}", status_code=204)
    async def disable_user(name: str, who: Who) -> None:
        """Disable a user. Its submissions are kept."""
        await fp.run(ACCOUNTS.disable_user(name, who.name))

    @router.get("/judge/api/users/{name}/tokens")
    async def tokens(name: str) -> list[dict[str, Any]]:
        return [asdict(one) for one in await fp.run(ACCOUNTS.tokens(name))]

    @router.post("/judge/api/users/{name}/tokens", status_code=201)
    async def new_token(name: str, request: TokenRequest, who: Who) -> NewToken:
        return await make_token(fp, name, request, who.name)

    @router.delete("/judge/api/tokens/{token_id}", status_code=204)
    async def revoke_token(token_id: Id, who: Who) -> None:
        await fp.run(ACCOUNTS.revoke_token(token_id, who.name))


async def make_token(fp: Fencepost, name: str, wanted: TokenRequest, actor: str) -> NewToken:
    token = ACCOUNTS.token_prefix + new_secret()
    lifetime_seconds = wanted.days * DAY_SECONDS
    made = ACCOUNTS.make_token(
        token, name, wanted.label, None, lifetime_seconds=lifetime_seconds, actor=actor
    )
    return NewToken(token_id=await fp.run(made), token=token)
