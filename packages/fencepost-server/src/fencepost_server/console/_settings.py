"""Settings of the console: session lifetimes, how much a page reads, and how many streams may be open."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import PostgresUrl
from fencepost_server.accounts._oidc_settings import (
    OidcSettings,
    WebAddress,
    check_whole,
    oidc_of,
    role_pairs,
)
from fencepost_server.console._role import Role


def _role(value: object) -> object:
    try:
        return Role.named(value) if isinstance(value, str) else value
    except KeyError:
        raise ValueError(f"must be one of {', '.join(role.word for role in Role)}") from None


def _trace_address(value: str) -> str:
    """A page of a tracing system: a link and nothing that a browser could run."""
    if not value.startswith(("https://", "http://")) or "{trace_id}" not in value:
        raise ValueError("must begin with https:// or http:// and contain {trace_id}")
    return value


TraceAddress = Annotated[str, AfterValidator(_trace_address)]
RoleName = Annotated[Role, BeforeValidator(_role)]


class ConsoleSettings(LayeredSettings):
    """docs/reference/console.md explains each setting."""

    read_database_url: Annotated[
        PostgresUrl | None, From("CONSOLE_READ_DATABASE_URL", "console.read_database_url", secret=True)
    ] = None
    read_pool_max: Annotated[
        int, Field(ge=1, le=100), From("CONSOLE_READ_POOL_MAX", "console.read_pool_max")
    ] = 5
    statement_seconds: Annotated[
        float, Field(ge=0.1, le=60), From("CONSOLE_STATEMENT_SEC", "console.statement_sec")
    ] = 5.0
    session_hours: Annotated[
        float, Field(ge=0.1, le=720), From("CONSOLE_SESSION_HOURS", "console.session_hours")
    ] = 12.0
    idle_minutes: Annotated[
        float, Field(ge=1, le=43_200), From("CONSOLE_IDLE_MINUTES", "console.idle_minutes")
    ] = 120.0
    secure_cookies: Annotated[bool, From("CONSOLE_SECURE_COOKIES", "console.secure_cookies")] = False
    look_seconds: Annotated[float, Field(ge=0.2, le=60), From("CONSOLE_LOOK_SEC", "console.look_sec")] = 2.0
    streams_max: Annotated[
        int, Field(ge=1, le=100_000), From("CONSOLE_STREAMS_MAX", "console.streams_max")
    ] = 2000
    scan_max: Annotated[int, Field(ge=100, le=1_000_000), From("CONSOLE_SCAN_MAX", "console.scan_max")] = (
        10_000
    )
    language: Annotated[
        str, Field(pattern=r"^[a-zA-Z-]{2,12}$"), From("CONSOLE_LANGUAGE", "console.language")
    ] = "auto"
    words: Annotated[Path | None, From("CONSOLE_WORDS", "console.words")] = None
    trace_url: Annotated[TraceAddress | None, From("CONSOLE_TRACE_URL", "console.trace_url")] = None
    public_url: Annotated[WebAddress | None, From("CONSOLE_PUBLIC_URL", "console.public_url")] = None
    oidc_issuer: Annotated[WebAddress | None, From("CONSOLE_OIDC_ISSUER", "console.oidc.issuer")] = None
    oidc_client_id: Annotated[str | None, From("CONSOLE_OIDC_CLIENT_ID", "console.oidc.client_id")] = None
    oidc_client_secret: Annotated[
        str | None, From("CONSOLE_OIDC_CLIENT_SECRET", "console.oidc.client_secret", secret=True)
    ] = None
    oidc_name_claim: Annotated[
        str, Field(min_length=1), From("CONSOLE_OIDC_NAME_CLAIM", "console.oidc.name_claim")
    ] = "email"
    oidc_role_claim: Annotated[
        str, Field(min_length=1), From("CONSOLE_OIDC_ROLE_CLAIM", "console.oidc.role_claim")
    ] = "groups"
    oidc_roles: Annotated[
        dict[str, RoleName], BeforeValidator(role_pairs), From("CONSOLE_OIDC_ROLES", "console.oidc.roles")
    ] = Field(default_factory=dict)
    oidc_else_role: Annotated[RoleName | None, From("CONSOLE_OIDC_ELSE_ROLE", "console.oidc.else_role")] = (
        None
    )

    @model_validator(mode="after")
    def _single_sign_on_is_whole(self) -> Self:
        check_whole(self, "CONSOLE")
        return self

    def oidc(self, back: str) -> OidcSettings[Role]:
        """What single sign-on needs; the provider sends browsers back to the path `back`."""
        return oidc_of(self, back, self.oidc_roles, self.oidc_else_role)
