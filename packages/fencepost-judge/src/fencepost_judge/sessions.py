"""Calls about passwords and sessions, implemented by `functions/judge_login.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.kernel.call import Call, Row, duration, nothing, one, text
from fencepost_judge.role import JudgeRole, JudgeVisitor


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A login in progress: the hash to compare with, or how long to wait."""

    password: str | None
    wait_seconds: float | None


def key() -> Call[bytes]:
    return Call("select fencepost.judge_key()", (), _bytes)


def set_password(name: str, hashed: str, actor: str) -> Call[None]:
    """Store the hash of a new password. Ends the user's sessions."""
    return Call(
        "select fencepost.judge_password_set(%s::text, %s::text, %s::text)",
        (text("name", name), hashed, text("actor", actor)),
        nothing,
    )


def begin_login(name: str, address: str, *, window_seconds: float) -> Call[LoginAttempt]:
    return Call(
        "select password, wait_seconds from fencepost.judge_login_begin(%s::text, %s::text, %s::interval)",
        (text("name", name), text("address", address), duration("window", window_seconds)),
        one(LoginAttempt),
    )


def begin_login_known(name: str, known: str, *, window_seconds: float) -> Call[LoginAttempt]:
    """Begin a login from a browser that is or was logged in as this user; `known` identifies the browser."""
    return Call(
        "select password, wait_seconds"
        " from fencepost.judge_login_begin_known(%s::text, %s::text, %s::interval)",
        (text("name", name), text("known", known), duration("window", window_seconds)),
        one(LoginAttempt),
    )


def end_login(name: str, *, rehashed: str | None) -> Call[None]:
    """Record that the password was right."""
    return Call(
        "select fencepost.judge_login_end(%s::text, %s::text)", (text("name", name), rehashed), nothing
    )


def begin(digest: bytes, name: str, *, lifetime_seconds: float) -> Call[None]:
    return Call(
        "select fencepost.judge_session_begin(%s::bytea, %s::text, %s::interval)",
        (digest, text("name", name), duration("lifetime", lifetime_seconds)),
        nothing,
    )


def use(session: str, digest: bytes, *, idle_seconds: float) -> Call[JudgeVisitor | None]:
    """The visitor to whom the session belongs, or None."""

    def visitor(rows: Sequence[Row]) -> JudgeVisitor | None:
        return JudgeVisitor(rows[0][0], JudgeRole.named(rows[0][1]), session=session) if rows else None

    return Call(
        "select name, role from fencepost.judge_session_use(%s::bytea, %s::interval)",
        (digest, duration("idle", idle_seconds)),
        visitor,
    )


def end(digest: bytes) -> Call[None]:
    return Call("select fencepost.judge_session_end(%s::bytea)", (digest,), nothing)


def _bytes(rows: Sequence[Row]) -> bytes:
    return bytes(rows[0][0])
