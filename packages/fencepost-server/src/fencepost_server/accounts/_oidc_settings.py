"""Settings of single sign-on. Apart from `_oidc.py`, so that reading settings loads no HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic

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
