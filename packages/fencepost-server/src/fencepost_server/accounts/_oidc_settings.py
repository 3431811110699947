"""Settings of single sign-on. Apart from `_oidc.py`, so that reading settings loads no HTTP client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Protocol

from pydantic import AfterValidator

from fencepost_server.accounts.role import R


@dataclass(frozen=True, slots=True)
class OidcSettings(Generic[R]):
    """The provider, what it knows us as, and what its claims mean in a service."""

    issuer: str
    client_id: str
    client_secret: str | None
    redirect_uri: str
    name_claim: str
    role_claim: str
    roles: Mapping[str, R]
    else_role: R | None


class SignOnFields(Protocol):
    """The settings of single sign-on that every service has, under its own names."""

    @property
    def public_url(self) -> str | None: ...
    @property
    def oidc_issuer(self) -> str | None: ...
    @property
    def oidc_client_id(self) -> str | None: ...
    @property
    def oidc_client_secret(self) -> str | None: ...
    @property
    def oidc_name_claim(self) -> str: ...
    @property
    def oidc_role_claim(self) -> str: ...
    @property
    def oidc_roles(self) -> Mapping[str, object]: ...
    @property
    def oidc_else_role(self) -> object: ...


def _address(value: str) -> str:
    """An address to which secrets are sent: plain HTTP only on this machine."""
    local = ("http://127.0.0.1", "http://localhost", "http://[::1]")
    if not value.startswith(("https://", *local)) or "@" in value or re.search(r"\s", value):
        raise ValueError("must begin with https://, and hold no password")
    return value.rstrip("/")


WebAddress = Annotated[str, AfterValidator(_address)]


def role_pairs(value: object) -> object:
    """`staff=jury,students=contestant` in the environment; a mapping in the file."""
    if not isinstance(value, str):
        return value
    pairs = [one.partition("=") for one in value.split(",") if one.strip()]
    return {name.strip(): role.strip() for name, _, role in pairs}


def check_whole(settings: SignOnFields, prefix: str) -> None:
    """Raises ValueError when single sign-on lacks a setting. `prefix` begins the names of the service's
    variables."""
    if settings.oidc_issuer is None:
        return
    if settings.oidc_client_id is None or settings.public_url is None:
        raise ValueError(
            f"{prefix}_OIDC_ISSUER needs {prefix}_OIDC_CLIENT_ID, and {prefix}_PUBLIC_URL, to which the"
            " provider redirects."
        )
    if not settings.oidc_roles and settings.oidc_else_role is None:
        raise ValueError(
            f"{prefix}_OIDC_ISSUER admits no user without {prefix}_OIDC_ROLES (group=role,...) or"
            f" {prefix}_OIDC_ELSE_ROLE."
        )


def oidc_of(
    settings: SignOnFields, back: str, roles: Mapping[str, R], else_role: R | None
) -> OidcSettings[R]:
    """What single sign-on needs; the provider sends browsers back to the path `back`."""
    assert settings.oidc_issuer is not None, "a service without single sign-on has no provider"
    assert settings.oidc_client_id is not None, "checked when the settings were read"
    return OidcSettings(
        issuer=settings.oidc_issuer,
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        redirect_uri=f"{settings.public_url}{back}",
        name_claim=settings.oidc_name_claim,
        role_claim=settings.oidc_role_claim,
        roles=roles,
        else_role=else_role,
    )
