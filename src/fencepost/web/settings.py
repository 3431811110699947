"""Where the services listen, and whom they let in."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import Port

Token = Annotated[str, Field(min_length=16, max_length=500, pattern=r"^[!-~]+$")]


class WebSettings(LayeredSettings):
    """On loopback, without a token, whoever has an account on this machine may come in; elsewhere nobody."""

    address: Annotated[str, From("HTTP_ADDRESS", "http.address")] = "127.0.0.1"
    port: Annotated[Port, From("HTTP_PORT", "http.port")] = 0
    token: Annotated[Token | None, From("HTTP_TOKEN", "http.token", secret=True)] = None
    body_max_bytes: Annotated[
        int, Field(ge=1024, le=1 << 30), From("HTTP_BODY_MAX_BYTES", "http.body_max_bytes")
    ] = 1 << 20

    @property
    def is_loopback(self) -> bool:
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
        return self
