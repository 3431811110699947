"""Calls about users, sessions, links, tokens and the audit, implemented by `functions/console_*.sql`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    document,
    duration,
    each,
    nothing,
    one,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_server.console.role import Role

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ConsoleLoginAttempt:
    """A login that has begun: the hash to compare with, or how long to wait."""

    password: str | None
    role: str | None
    wait_seconds: float | None


@dataclass(frozen=True, slots=True)
class Known:
    """The user to whom a session, a link or a token belongs."""

    name: str
    role: str


@dataclass(frozen=True, slots=True)
class SignedOn:
    """A user whom an identity provider has authenticated, or the reason for refusing the login."""

    name: str
    role: str
    refused: str | None


@dataclass(frozen=True, slots=True)
class User:
    name: str
    role: str
    has_password: bool
    made_at: datetime
    made_by: str
    disabled_at: datetime | None
    seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class Token:
    token_id: int
    label: str
    role: str
    made_at: datetime
    expires_at: datetime
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry of the audit."""

    audit_id: int
    at: datetime
    actor: str
    role: str
    action: str
    subject: str
    outcome: str
    detail: Json
    address: str


def key() -> Call[bytes]:
    return Call("select fencepost.console_key()", (), _bytes)


def has_admin() -> Call[bool]:
    return Call("select fencepost.console_has_admin()", (), scalar)


def has_users() -> Call[bool]:
    return Call("select fencepost.console_has_users()", (), scalar)


def set_user(name: str, role: Role, password: str | None, actor: str) -> Call[None]:
    """Create or change a user; a password of None keeps the old one. `password` is a hash."""
    return Call(
        "select fencepost.console_user_set(%s::text, %s::text, %s::text, %s::text)",
        (text("name", name), role.word, password, text("actor", actor)),
        nothing,
    )


def disable_user(name: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.console_user_disable(%s::text, %s::text)",
        (text("name", name), text("actor", actor)),
        nothing,
    )


def users(after: str | None, limit: int) -> Call[list[User]]:
    """Users in order of name, after `after`."""
    return Call(
        "select name, role, has_password, made_at, made_by, disabled_at, seen_at"
        " from fencepost.console_users(%s::text, %s::integer)",
        (optional_text("after", after), limit),
        each(User),
    )


def begin_login(name: str, address: str, *, window_seconds: float) -> Call[ConsoleLoginAttempt]:
    return Call(
        "select password, role, wait_seconds"
        " from fencepost.console_login_begin(%s::text, %s::text, %s::interval)",
        (text("name", name), text("address", address), duration("window", window_seconds)),
        one(ConsoleLoginAttempt),
    )


def begin_login_known(name: str, known: str, *, window_seconds: float) -> Call[ConsoleLoginAttempt]:
    """Begin a login from a browser that has logged in as this user before; `known` identifies the browser."""
    return Call(
        "select password, role, wait_seconds"
        " from fencepost.console_login_begin_known(%s::text, %s::text, %s::interval)",
        (text("name", name), text("known", known), duration("window", window_seconds)),
        one(ConsoleLoginAttempt),
    )


def end_login(name: str, address: str, *, right: bool, rehashed: str | None) -> Call[None]:
    return Call(
        "select fencepost.console_login_end(%s::text, %s::text, %s::boolean, %s::text)",
        (text("name", name), text("address", address), right, rehashed),
        nothing,
    )


def sign_on(name: str, role: Role, *, issuer: str, subject: str, address: str) -> Call[SignedOn]:
    return Call(
        "select name, role, refused"
        " from fencepost.console_sign_on(%s::text, %s::text, %s::text, %s::text, %s::text)",
        (
            text("name", name),
            role.word,
            text("issuer", issuer),
            text("subject", subject),
            text("address", address),
        ),
        one(SignedOn),
    )


def begin_session(
    digest: bytes, name: str, *, lifetime_seconds: float, address: str, agent: str
) -> Call[None]:
    return Call(
        "select fencepost.console_session_begin(%s::bytea, %s::text, %s::interval, %s::text, %s::text)",
        (
            digest,
            text("name", name),
            duration("lifetime", lifetime_seconds),
            text("address", address),
            text("agent", agent),
        ),
        nothing,
    )


def use_session(digest: bytes, *, idle_seconds: float) -> Call[Known | None]:
    return Call(
        "select name, role from fencepost.console_session_use(%s::bytea, %s::interval)",
        (digest, duration("idle", idle_seconds)),
        _perhaps(Known),
    )


def end_session(digest: bytes) -> Call[None]:
    return Call("select fencepost.console_session_end(%s::bytea)", (digest,), nothing)


def make_ticket(digest: bytes, name: str, role: Role, *, lifetime_seconds: float) -> Call[None]:
    return Call(
        "select fencepost.console_ticket_make(%s::bytea, %s::text, %s::text, %s::interval)",
        (digest, text("name", name), role.word, duration("lifetime", lifetime_seconds)),
        nothing,
    )


def use_ticket(digest: bytes, address: str) -> Call[Known | None]:
    return Call(
        "select name, role from fencepost.console_ticket_use(%s::bytea, %s::text)",
        (digest, text("address", address)),
        _perhaps(Known),
    )


def make_token(digest: bytes, name: str, label: str, role: Role, *, lifetime_seconds: float) -> Call[int]:
    return Call(
        "select fencepost.console_token_make(%s::bytea, %s::text, %s::text, %s::text, %s::interval)",
        (
            digest,
            text("name", name),
            text("label", label),
            role.word,
            duration("lifetime", lifetime_seconds),
        ),
        scalar,
    )


def use_token(digest: bytes) -> Call[Known | None]:
    return Call("select name, role from fencepost.console_token_use(%s::bytea)", (digest,), _perhaps(Known))


def tokens(name: str) -> Call[list[Token]]:
    return Call(
        "select token_id, label, role, made_at, expires_at, used_at, revoked_at"
        " from fencepost.console_tokens(%s::text)",
        (text("name", name),),
        each(Token),
    )


def revoke_token(token_id: int, name: str) -> Call[None]:
    return Call(
        "select fencepost.console_token_revoke(%s::bigint, %s::text)", (token_id, text("name", name)), nothing
    )


def begin_audit_entry(
    actor: str, role: str, action: str, subject: str, detail: Mapping[str, Any], address: str
) -> Call[int]:
    return Call(
        "select fencepost.console_audit_begin(%s::text, %s::text, %s::text, %s::text, %s::jsonb, %s::text)",
        (
            text("actor", actor),
            role,
            text("action", action),
            text("subject", subject),
            document("detail", dict(detail)),
            text("address", address),
        ),
        scalar,
    )


def end_audit_entry(audit_id: int, outcome: str) -> Call[None]:
    return Call(
        "select fencepost.console_audit_end(%s::bigint, %s::text)",
        (audit_id, text("outcome", outcome)[:128]),
        nothing,
    )


def audit_entries(*, actor: str | None, before: int | None, limit: int) -> Call[list[AuditEntry]]:
    return Call(
        "select audit_id, at, actor, role, action, subject, outcome, detail::text, address"
        " from fencepost.console_audit_page(%s::text, %s::bigint, %s::integer)",
        (optional_text("actor", actor), before, limit),
        _audit_entries,
    )


def roll(missing: int) -> Call[int]:
    """Count the last minutes for the charts; answers how many of the day are still missing."""
    return Call("select fencepost.console_roll(%s::integer)", (missing,), scalar)


def _perhaps(make: Callable[..., T]) -> Callable[[Sequence[Row]], T | None]:
    return lambda rows: make(*rows[0]) if rows else None


def _bytes(rows: Sequence[Row]) -> bytes:
    return bytes(rows[0][0])


def _audit_entries(rows: Sequence[Row]) -> list[AuditEntry]:
    return [AuditEntry(*[*row[:7], parsed(row[7]), row[8]]) for row in rows]
