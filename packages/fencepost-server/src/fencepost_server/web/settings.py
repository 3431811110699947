"""Where the services listen, and which clients they accept."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Self, cast

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import Port
from fencepost_server.web._connections import Limits
from fencepost_server.web._networks import Networks


def _joined(value: object) -> object:
    """A list in the file; comma-separated in the environment."""
    return ",".join(map(str, cast("list[object]", value))) if isinstance(value, list) else value


def _networks(value: str) -> str:
    try:
        Networks.read(value)
    except ValueError:
        raise ValueError(
            "addresses and networks with commas between them: 10.0.0.7, 10.1.0.0/16, ::1"
        ) from None
    return value


ProxyList = Annotated[str, BeforeValidator(_joined), AfterValidator(_networks)]
RoleList = Annotated[str, BeforeValidator(_joined), Field(pattern=r"^[a-z0-9_, -]*$")]
DeadlineSeconds = Annotated[float, Field(ge=0.1, le=3600)]
Token = Annotated[str, Field(min_length=16, max_length=500, pattern=r"^[!-~]+$")]


class WebSettings(LayeredSettings):
    """Without a token every user of this machine has access on loopback; any other address needs a token."""

    address: Annotated[str, From("HTTP_ADDRESS", "http.address")] = "127.0.0.1"
    port: Annotated[Port | None, From("HTTP_PORT", "http.port")] = None
    token: Annotated[Token | None, From("HTTP_TOKEN", "http.token", secret=True)] = None
    body_max_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30), From("HTTP_BODY_MAX_BYTES", "http.body_max_bytes")
    ] = 1 << 20
    proxies: Annotated[ProxyList, From("HTTP_PROXIES", "http.proxies")] = ""
    roles: Annotated[RoleList, From("HTTP_ROLES", "http.roles")] = ""
    """The roles whose work `fencepost serve` executes beside the requests; see `roles.py`."""
    connections_max: Annotated[
        int, Field(ge=1, le=1_000_000), From("HTTP_CONNECTIONS_MAX", "http.connections_max")
    ] = 4096
    connections_per_address: Annotated[
        int, Field(ge=1, le=1_000_000), From("HTTP_CONNECTIONS_PER_ADDRESS", "http.connections_per_address")
    ] = 1024
    header_seconds: Annotated[DeadlineSeconds, From("HTTP_HEADER_SEC", "http.header_sec")] = 10.0
    body_seconds: Annotated[DeadlineSeconds, From("HTTP_BODY_SEC", "http.body_sec")] = 30.0
    send_seconds: Annotated[DeadlineSeconds, From("HTTP_SEND_SEC", "http.send_sec")] = 30.0

    @property
    def proxy_networks(self) -> Networks:
        """The networks whose forwarded headers are believed."""
        return Networks.read(self.proxies)

    def limits(self, *, reserved_descriptors: int) -> Limits:
        """The connection limits. `reserved_descriptors` are kept for pools, files and outgoing
        connections."""
        return Limits(
            total_max=self.connections_max,
            per_address_max=self.connections_per_address,
            header_seconds=self.header_seconds,
            body_seconds=self.body_seconds,
            send_seconds=self.send_seconds,
            reserved_descriptors=reserved_descriptors,
            proxies=self.proxy_networks,
        )

    @property
    def is_loopback(self) -> bool:
        """Whether the address is reachable from this machine alone."""
        bare = self.address.strip("[]")
        if bare == "localhost":
            return True
        try:
            return ip_address(bare).is_loopback
        except ValueError:
            return False

    @model_validator(mode="after")
    def _nobody_unasked(self) -> Self:
        if self.token is None and not self.is_loopback:
            raise ValueError(
                f"HTTP_ADDRESS is {self.address!r}, which others can reach, and there is no HTTP_TOKEN; "
                "allowed: a loopback address, or a token of at least 16 characters for every request"
            )
        if self.token is None and self.proxies:
            raise ValueError(
                f"HTTP_PROXIES is {self.proxies!r}, so that others reach us through a proxy, and there is no "
                "HTTP_TOKEN; allowed: a token of at least 16 characters for every request"
            )
        return self
