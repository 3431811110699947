"""Assigns signers to nodes by rendezvous hashing. No state, so every node decides the same from one list."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b


def home_of(resource: str, addresses: Iterable[str]) -> str | None:
    """The address with the highest weight for this signer; a node that leaves moves only its own signers."""
    return max(addresses, key=lambda address: (_weight(address, resource), address), default=None)


def _weight(address: str, resource: str) -> bytes:
    return blake2b(f"{address}\0{resource}".encode(), digest_size=8).digest()
