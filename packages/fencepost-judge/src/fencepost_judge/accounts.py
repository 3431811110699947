"""Calls about users, their tokens and their rate limit, implemented by `functions/judge_accounts.sql`."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.kernel.call import Call, Row, duration, each, nothing, optional_text, scalar, text
from fencepost_judge.role import JudgeRole, JudgeVisitor

TOKEN_PREFIX = "fpj_"  # noqa: S105 - So that a scanner for leaked secrets knows one.


@dataclass(frozen=True, slots=True)
class JudgeUser:
    name: str
    role: str
    made_at: datetime
    made_by: str
    disabled_at: datetime | None


@dataclass(frozen=True, slots=True)
class JudgeToken:
    """The stored data of a token; never the token itself."""

    token_id: int
    name: str
    label: str
    made_at: datetime
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


def new_token() -> str:
    """256 random bits, encoded for use in a header."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def digest_of(token: str) -> bytes:
    """The digest that the database stores in place of the token. The token is random, so one hash round is
    enough."""
    return hashlib.sha256(token.encode()).digest()


def has_users() -> Call[bool]:
    return Call("select fencepost.judge_has_users()", (), scalar)


def set_user(name: str, role: JudgeRole, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_user_set(%s::text, %s::text, %s::text)",
        (text("name", name), role.word, text("actor", actor)),
        nothing,
    )


def disable_user(name: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_user_disable(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def users(after: str | None, limit: int) -> Call[list[JudgeUser]]:
    return Call(
        "select name, role, made_at, made_by, disabled_at from fencepost.judge_users(%s::text, %s::integer)",
        (optional_text("after", after), limit),
        each(JudgeUser),
    )


def make_token(digest: bytes, name: str, label: str, lifetime_seconds: float, actor: str) -> Call[int]:
    return Call(
        "select fencepost.judge_token_make(%s::bytea, %s::text, %s::text, %s::interval, %s::text)",
        (
            digest,
            text("name", name),
            text("label", label),
            duration("lifetime", lifetime_seconds),
            text("actor", actor),
        ),
        scalar,
    )


def revoke_token(token_id: int, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_token_revoke(%s::bigint, %s::text)", (token_id, text("actor", actor)), nothing
    )


def tokens(name: str) -> Call[list[JudgeToken]]:
    return Call(
        "select token_id, name, label, made_at, expires_at, used_at, revoked_at"
        " from fencepost.judge_tokens(%s::text)",
        (text("name", name),),
        each(JudgeToken),
    )


def use_token(digest: bytes) -> Call[JudgeVisitor | None]:
    """The visitor to whom the token belongs, or None."""
    return Call("select name, role from fencepost.judge_token_use(%s::bytea)", (digest,), _visitor)


def admit(name: str, per_minute: float, burst: int) -> Call[None]:
    """Count one submission. Raises Backpressure when the user exceeds the rate limit."""
    return Call(
        "select fencepost.judge_admit(%s::text, %s::double precision, %s::integer)",
        (text("name", name), per_minute, burst),
        nothing,
    )


def _visitor(rows: Sequence[Row]) -> JudgeVisitor | None:
    return JudgeVisitor(rows[0][0], JudgeRole.named(rows[0][1])) if rows else None
