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
    kms_keys: Annotated[str, From("NONCES_KMS_KEYS", "nonces.kms_keys")] = ""
    kms_region: Annotated[str | None, From("NONCES_KMS_REGION", "nonces.kms_region")] = None
    kms_url: Annotated[str | None, From("NONCES_KMS_URL", "nonces.kms_url")] = None
    kms_access_key_id: Annotated[
        str | None, From("NONCES_KMS_ACCESS_KEY_ID", "nonces.kms_access_key_id", secret=True)
    ] = None
    kms_secret_access_key: Annotated[
        str | None, From("NONCES_KMS_SECRET_ACCESS_KEY", "nonces.kms_secret_access_key", secret=True)
    ] = None
    kms_session_token: Annotated[
        str | None, From("NONCES_KMS_SESSION_TOKEN", "nonces.kms_session_token", secret=True)
    ] = None
    vault_url: Annotated[str | None, From("NONCES_VAULT_URL", "nonces.vault_url")] = None
    vault_keys: Annotated[str, From("NONCES_VAULT_KEYS", "nonces.vault_keys")] = ""
    vault_mount: Annotated[str, From("NONCES_VAULT_MOUNT", "nonces.vault_mount")] = "transit"
    vault_namespace: Annotated[str | None, From("NONCES_VAULT_NAMESPACE", "nonces.vault_namespace")] = None
    vault_token: Annotated[str | None, From("NONCES_VAULT_TOKEN", "nonces.vault_token", secret=True)] = None
    vault_token_file: Annotated[Path | None, From("NONCES_VAULT_TOKEN_FILE", "nonces.vault_token_file")] = (
        None
    )
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
    gas_margin_percent: Annotated[
        int, Field(ge=0, le=1000), From("NONCES_GAS_MARGIN_PERCENT", "nonces.gas_margin_percent")
    ] = 20
    balance_min: Annotated[str, From("NONCES_BALANCE_MIN", "nonces.balance_min")] = ""
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

    @property
    def least_balances(self) -> Mapping[int, float]:
        """The balance below which a signer needs funds, in ether, by chain."""
        return _balances(self.balance_min)

    @model_validator(mode="after")
    def _chains_can_be_read(self) -> Self:
        _endpoints(self.chains)
        _balances(self.balance_min)
        return self

    @model_validator(mode="after")
    def _one_key_store_is_named(self) -> Self:
        named = [
            name
            for name, is_set in (
                ("NONCES_REMOTE_SIGNER", self.remote_signer),
                ("NONCES_KMS_KEYS", self.kms_keys.strip()),
                ("NONCES_VAULT_KEYS", self.vault_keys.strip()),
            )
            if is_set
        ]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} are set; allowed: one of them signs")
        missing = [
            name
            for keys, name, value in (
                (self.kms_keys, "NONCES_KMS_REGION", self.kms_region),
                (self.kms_keys, "NONCES_KMS_ACCESS_KEY_ID", self.kms_access_key_id),
                (self.kms_keys, "NONCES_KMS_SECRET_ACCESS_KEY", self.kms_secret_access_key),
                (self.vault_keys, "NONCES_VAULT_URL", self.vault_url),
                (
                    self.vault_keys,
                    "NONCES_VAULT_TOKEN or NONCES_VAULT_TOKEN_FILE",
                    self.vault_token or self.vault_token_file,
                ),
            )
            if keys.strip() and not value
        ]
        if missing:
            raise ValueError(f"{named[0]} is set and {missing[0]} is not; allowed: both, or neither")
        for name, url in (("NONCES_KMS_URL", self.kms_url), ("NONCES_VAULT_URL", self.vault_url)):
            if url is not None and not is_http_url(url):
                raise ValueError(f"{name} is not a URL; allowed: an http:// or https:// URL")
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


def _balances(given: str) -> Mapping[int, float]:
    """`1=0.5; 137=20` by chain."""
    found: dict[int, float] = {}
    for chain, ether in pairs_of(given):
        try:
            least = float(ether)
        except ValueError:
            least = -1.0
        if not chain.isdecimal() or int(chain) in found or not 0 <= least < float("inf"):
            raise ValueError(
                "NONCES_BALANCE_MIN cannot be read; allowed: a chain id, =, and an amount of its coin, for "
                "example 0.5; several chains with ; between them"
            )
        found[int(chain)] = least
    return found
