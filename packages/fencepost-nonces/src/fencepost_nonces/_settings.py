"""Settings of a node: how it keeps its signers, how long a caller may wait, and which chains it knows.

Each variable, its place in config.yaml, its default and what is allowed: docs/reference/nonces.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from fencepost.layered_settings import From, LayeredSettings
from fencepost.settings import is_http_url, pairs_of

Mode = Literal["basic", "queue"]
Routing = Literal["answer", "forward"]


class NoncesSettings(LayeredSettings):
    """The settings of one node. The mode affects speed, never correctness."""

    mode: Annotated[Mode, From("NONCES_MODE", "nonces.mode")] = "basic"
    routing: Annotated[Routing, From("NONCES_ROUTING", "nonces.routing")] = "answer"
    node_address: Annotated[str | None, From("NONCES_NODE_ADDRESS", "nonces.node_address")] = None
    lease_seconds: Annotated[float, Field(ge=1, le=300), From("NONCES_LEASE_SEC", "nonces.lease_sec")] = 15.0
    idle_seconds: Annotated[float, Field(ge=0.01, le=300), From("NONCES_IDLE_SEC", "nonces.idle_sec")] = 1.0
    turn_seconds: Annotated[float, Field(ge=0.001, le=60), From("NONCES_TURN_SEC", "nonces.turn_sec")] = 0.05
    wait_seconds: Annotated[float, Field(ge=0.01, le=300), From("NONCES_WAIT_SEC", "nonces.wait_sec")] = 5.0
    hold_seconds: Annotated[float, Field(ge=1, le=2_592_000), From("NONCES_HOLD_SEC", "nonces.hold_sec")] = (
        60.0
    )
    queue_max: Annotated[int, Field(ge=1, le=1_000_000), From("NONCES_QUEUE_MAX", "nonces.queue_max")] = (
        10_000
    )
    batch_max: Annotated[int, Field(ge=1, le=10_000), From("NONCES_BATCH_MAX", "nonces.batch_max")] = 500
    chains: Annotated[str, From("NONCES_CHAINS", "nonces.chains", secret=True)] = ""
    keystore: Annotated[Path | None, From("NONCES_KEYSTORE", "nonces.keystore")] = None
    keystore_password: Annotated[
        str | None, From("NONCES_KEYSTORE_PASSWORD", "nonces.keystore_password", secret=True)
    ] = None
    remote_signer: Annotated[
        str | None, From("NONCES_REMOTE_SIGNER", "nonces.remote_signer", secret=True)
    ] = None
    confirmations: Annotated[
        int, Field(ge=0, le=10_000), From("NONCES_CONFIRMATIONS", "nonces.confirmations")
    ] = 12
    stuck_seconds: Annotated[
        float, Field(ge=0.1, le=86_400), From("NONCES_STUCK_SEC", "nonces.stuck_sec")
    ] = 60.0
    max_fee_gwei: Annotated[
        float, Field(gt=0, le=1_000_000), From("NONCES_MAX_FEE_GWEI", "nonces.max_fee_gwei")
    ] = 500.0
    gas_max: Annotated[int, Field(ge=21_000, le=10**9), From("NONCES_GAS_MAX", "nonces.gas_max")] = 15_000_000
    open_max: Annotated[int, Field(ge=1, le=10_000), From("NONCES_OPEN_MAX", "nonces.open_max")] = 64
    poll_seconds: Annotated[float, Field(ge=0.01, le=60), From("NONCES_POLL_SEC", "nonces.poll_sec")] = 1.0

    keep_days: Annotated[float, Field(gt=0, le=36_500), From("NONCES_KEEP_DAYS", "nonces.keep_days")] = 365

    @property
    def renew_seconds(self) -> float:
        return self.lease_seconds / 3

    @property
    def endpoints(self) -> Mapping[int, tuple[str, ...]]:
        """The RPC endpoints of each chain, in order of preference."""
        return _endpoints(self.chains)

    @model_validator(mode="after")
    def _chains_can_be_read(self) -> Self:
        _endpoints(self.chains)
        return self

    @model_validator(mode="after")
    def _forwarding_needs_an_address(self) -> Self:
        if self.routing == "forward" and self.node_address is None:
            raise ValueError(
                "NONCES_ROUTING is forward and NONCES_NODE_ADDRESS is not set; "
                "allowed: the URL at which other nodes reach this one"
            )
        if self.routing == "forward" and self.mode == "basic":
            raise ValueError(
                "NONCES_ROUTING is forward and NONCES_MODE is basic, where every node serves every signer; "
                "allowed: NONCES_MODE=queue, or NONCES_ROUTING=answer"
            )
        return self

    @model_validator(mode="after")
    def _address_can_be_asked(self) -> Self:
        if self.node_address is not None and not is_http_url(self.node_address):
            raise ValueError(
                "NONCES_NODE_ADDRESS is not a URL; allowed: an http:// or https:// URL at which "
                "other nodes reach this one"
            )
        return self


def _endpoints(given: str) -> Mapping[int, tuple[str, ...]]:
    """`31337=http://a|http://b; 1=https://c` by chain."""
    found: dict[int, tuple[str, ...]] = {}
    for chain, urls in pairs_of(given):
        addresses = tuple(url.strip() for url in urls.split("|"))
        known = chain.isdecimal() and int(chain) > 0 and int(chain) not in found
        if not known or not all(map(is_http_url, addresses)):
            raise ValueError(
                "NONCES_CHAINS cannot be read; allowed: a chain id, =, and the URLs of its endpoints "
                "with | between them; several chains with ; between them"
            )
        found[int(chain)] = addresses
    return found
