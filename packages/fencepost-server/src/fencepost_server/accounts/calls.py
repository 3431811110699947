"""Calls about accounts, implemented by `functions/account*.sql`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic

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
from fencepost_server.accounts.role import Identity, R
from fencepost_server.accounts.secret import digest_of

LABEL_MAX = 100
TOKEN_DAYS_MAX = 999
TOKENS_MAX = 200
"""The most rows that account_tokens() returns."""
DAY_SECONDS = 86_400


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """A login that has begun: the hash to compare with, or how long to wait."""

    password: str | None
    wait_seconds: float | None


@dataclass(frozen=True, slots=True)
class SignedOn:
    """An account that an identity provider has authenticated, or the reason for refusing the login."""

    name: str
    role: str
    refused: str | None


@dataclass(frozen=True, slots=True)
class User:
    """An account with a role in the service."""

    name: str
    role: str
    has_password: bool
    made_at: datetime
    made_by: str
    disabled_at: datetime | None
    seen_at: datetime | None


@dataclass(frozen=True, slots=True)
class Token:
    """The stored data of a token; never the token itself."""

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
    service: str
    actor: str
    role: str
    action: str
    subject: str
    outcome: str
    detail: Json
    address: str


@dataclass(frozen=True, slots=True)
class Accounts(Generic[R]):
    """The accounts as one service sees them: those with a role in it."""

    service: str
    roles: type[R]
    token_prefix: str
    """So that a scanner for leaked secrets knows a token of the service."""

    def key(self) -> Call[bytes]:
        """The key that signs cookies."""
        return Call("select fencepost.account_key()", (), _bytes)

    def has_users(self) -> Call[bool]:
        """Whether the service has any account."""
        return Call("select fencepost.account_has_users(%s::text)", (self.service,), scalar)

    def has_admin(self) -> Call[bool]:
        """Whether the service has an administrator."""
        return Call("select fencepost.account_has_admin(%s::text)", (self.service,), scalar)

    def set_user(
        self, name: str, role: R, password: str | None, actor: str, *, by_service: bool
    ) -> Call[None]:
        """Give an account a role; `password` is a hash, and None keeps the old one.

        `by_service`: an administrator of the service asks, who may not set the password of an account with a
        role in another service.
        """
        return Call(
            "select fencepost.account_set(%s::text, %s::text, %s::text, %s::text, %s::text, %s::boolean)",
            (self.service, text("name", name), role.word, password, text("actor", actor), by_service),
            nothing,
        )

    def set_password(self, name: str, hashed: str, actor: str, *, by_service: bool) -> Call[None]:
        """Store the hash of a new password. Ends the account's sessions."""
        return Call(
            "select fencepost.account_password_set(%s::text, %s::text, %s::text, %s::text, %s::boolean)",
            (self.service, text("name", name), hashed, text("actor", actor), by_service),
            nothing,
        )

    def disable_user(self, name: str, actor: str) -> Call[None]:
        """Disable an account; its sessions and tokens end in the same transaction."""
        return Call(
            "select fencepost.account_disable(%s::text, %s::text, %s::text)",
            (self.service, text("name", name), text("actor", actor)),
            nothing,
        )

    def users(self, after: str | None, limit: int) -> Call[list[User]]:
        """Users in order of name, after `after`."""
        return Call(
            "select name, role, has_password, made_at, made_by, disabled_at, seen_at"
            " from fencepost.account_users(%s::text, %s::text, %s::integer)",
            (self.service, optional_text("after", after), limit),
            each(User),
        )

    def begin_login(self, name: str, address: str, *, window_seconds: float) -> Call[LoginAttempt]:
        """The password's hash, and how long this name and address must wait after failed attempts."""
        return Call(
            "select password, wait_seconds"
            " from fencepost.account_login_begin(%s::text, %s::text, %s::text, %s::interval)",
            (
                self.service,
                text("name", name),
                text("address", address),
                duration("window", window_seconds),
            ),
            one(LoginAttempt),
        )

    def begin_login_known(self, name: str, known: str, *, window_seconds: float) -> Call[LoginAttempt]:
        """Begin a login from a browser that has logged in as this user before; `known` identifies it."""
        return Call(
            "select password, wait_seconds"
            " from fencepost.account_login_begin_known(%s::text, %s::text, %s::text, %s::interval)",
            (self.service, text("name", name), text("known", known), duration("window", window_seconds)),
            one(LoginAttempt),
        )

    def end_login(self, name: str, address: str, *, right: bool, rehashed: str | None) -> Call[None]:
        """Record whether a login was right; a `rehashed` password is stored."""
        return Call(
            "select fencepost.account_login_end(%s::text, %s::text, %s::text, %s::boolean, %s::text)",
            (self.service, text("name", name), text("address", address), right, rehashed),
            nothing,
        )

    def sign_on(self, name: str, role: R, *, issuer: str, subject: str, address: str) -> Call[SignedOn]:
        """Sign an account of an identity provider on; it is made at its first login."""
        return Call(
            "select name, role, refused"
            " from fencepost.account_sign_on(%s::text, %s::text, %s::text, %s::text, %s::text, %s::text)",
            (
                self.service,
                text("name", name),
                role.word,
                text("issuer", issuer),
                text("subject", subject),
                text("address", address),
            ),
            one(SignedOn),
        )

    def begin_session(
        self, secret: str, name: str, *, lifetime_seconds: float, address: str, agent: str
    ) -> Call[None]:
        """Store a session by the digest of its secret."""
        return Call(
            "select fencepost.account_session_begin("
            "%s::bytea, %s::text, %s::text, %s::interval, %s::text, %s::text)",
            (
                digest_of(secret),
                self.service,
                text("name", name),
                duration("lifetime", lifetime_seconds),
                text("address", address),
                text("agent", agent),
            ),
            nothing,
        )

    def use_session(self, secret: str, *, idle_seconds: float) -> Call[Identity[R] | None]:
        """The account of a session that is neither expired nor idle for too long."""
        return Call(
            "select name, role from fencepost.account_session_use(%s::bytea, %s::text, %s::interval)",
            (digest_of(secret), self.service, duration("idle", idle_seconds)),
            self._identity(secret),
        )

    def end_session(self, secret: str) -> Call[None]:
        """End a session."""
        return Call("select fencepost.account_session_end(%s::bytea)", (digest_of(secret),), nothing)

    def make_ticket(self, secret: str, name: str, role: R, *, lifetime_seconds: float) -> Call[None]:
        """A link that logs its bearer in once; a name that is new becomes an account with the role."""
        return Call(
            "select fencepost.account_ticket_make(%s::bytea, %s::text, %s::text, %s::text, %s::interval)",
            (
                digest_of(secret),
                self.service,
                text("name", name),
                role.word,
                duration("lifetime", lifetime_seconds),
            ),
            nothing,
        )

    def use_ticket(self, secret: str, address: str) -> Call[Identity[R] | None]:
        """The account of a one-time ticket, which is used up by this call."""
        return Call(
            "select name, role from fencepost.account_ticket_use(%s::bytea, %s::text, %s::text)",
            (digest_of(secret), self.service, text("address", address)),
            self._identity(),
        )

    def make_token(
        self, secret: str, name: str, label: str, role: R | None, *, lifetime_seconds: float, actor: str
    ) -> Call[int]:
        """A token with at most this role, and at most its user's; None means the role that the user has."""
        return Call(
            "select fencepost.account_token_make("
            "%s::bytea, %s::text, %s::text, %s::text, %s::text, %s::interval, %s::text)",
            (
                digest_of(secret),
                self.service,
                text("name", name),
                text("label", label),
                None if role is None else role.word,
                duration("lifetime", lifetime_seconds),
                text("actor", actor),
            ),
            scalar,
        )

    def use_token(self, secret: str) -> Call[Identity[R] | None]:
        """The account of a token that is neither expired nor revoked."""
        return Call(
            "select name, role from fencepost.account_token_use(%s::bytea, %s::text)",
            (digest_of(secret), self.service),
            self._identity(),
        )

    def tokens(self, name: str) -> Call[list[Token]]:
        """The tokens of an account, without their secrets."""
        return Call(
            "select token_id, label, role, made_at, expires_at, used_at, revoked_at"
            " from fencepost.account_tokens(%s::text, %s::text)",
            (self.service, text("name", name)),
            each(Token),
        )

    def revoke_token(self, token_id: int, actor: str, *, owner: str | None = None) -> Call[None]:
        """Revoke a token; with `owner`, only one of that user."""
        return Call(
            "select fencepost.account_token_revoke(%s::bigint, %s::text, %s::text, %s::text)",
            (token_id, self.service, optional_text("owner", owner), text("actor", actor)),
            nothing,
        )

    def begin_audit_entry(
        self, actor: str, role: str, action: str, subject: str, detail: Mapping[str, Any], address: str
    ) -> Call[int]:
        """Record an action before it is done; answers the entry's id."""
        return Call(
            "select fencepost.account_audit_begin("
            "%s::text, %s::text, %s::text, %s::text, %s::text, %s::jsonb, %s::text)",
            (
                self.service,
                text("actor", actor),
                role,
                text("action", action),
                text("subject", subject),
                document("detail", dict(detail)),
                text("address", address),
            ),
            scalar,
        )

    def _identity(self, session: str = "") -> Callable[[Sequence[Row]], Identity[R] | None]:
        return lambda rows: Identity(rows[0][0], self.roles.named(rows[0][1]), session) if rows else None


def end_audit_entry(audit_id: int, outcome: str) -> Call[None]:
    """Record how the action ended."""
    return Call(
        "select fencepost.account_audit_end(%s::bigint, %s::text)",
        (audit_id, text("outcome", outcome)[:128]),
        nothing,
    )


def audit_entries(*, actor: str | None, before: int | None, limit: int) -> Call[list[AuditEntry]]:
    """Of all services, newest first."""
    return Call(
        "select audit_id, at, service, actor, role, action, subject, outcome, detail::text, address"
        " from fencepost.account_audit_page(%s::text, %s::bigint, %s::integer)",
        (optional_text("actor", actor), before, limit),
        _audit_entries,
    )


def _bytes(rows: Sequence[Row]) -> bytes:
    return bytes(rows[0][0])


def _audit_entries(rows: Sequence[Row]) -> list[AuditEntry]:
    return [AuditEntry(*[*row[:8], parsed(row[8]), row[9]]) for row in rows]
