"""A signer and its chain: the key of a sequence of nonces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fencepost.errors import InvalidInput
from fencepost_nonces._keccak import keccak256

CHAIN_ID_MAX = 2**63 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")


@dataclass(frozen=True, slots=True, order=True)
class Signer:
    """One sequence of nonces. Addresses are in lower case: two spellings would be two sequences."""

    chain_id: int
    name: str

    @classmethod
    def of(cls, chain_id: int, name: str) -> Signer:
        """Check what a caller gave. An address in mixed case must have the checksum of EIP-55."""
        if not 0 < chain_id <= CHAIN_ID_MAX:
            raise InvalidInput(f"chain_id is {chain_id}; it must be positive.", field="chain_id")
        if name[:2].lower() == "0x":
            return cls(chain_id, address(name, field="signer"))
        if _NAME.fullmatch(name) is None:
            raise InvalidInput(
                "signer must be an address, or a name of at most 128 letters, digits and . _ : -",
                field="signer",
            )
        return cls(chain_id, name)

    @property
    def resource(self) -> str:
        """The name of its lease."""
        return f"signer:{self.chain_id}:{self.name}"


def address(given: str, *, field: str) -> str:
    """An Ethereum address in lower case. Mixed case is a checksum, and a wrong one is a typing error."""
    digits = given[2:]
    if given[:2] != "0x" or re.fullmatch(r"[0-9a-fA-F]{40}", digits) is None:
        raise InvalidInput(f"{field} must be 0x and 40 hexadecimal digits.", field=field)
    if digits not in (digits.lower(), digits.upper()) and given != checksummed(given):
        raise InvalidInput(
            f"{field} has a wrong checksum (EIP-55): one of its digits is wrong. "
            f"Copy it again, or write it in lower case.",
            field=field,
        )
    return given.lower()


def checksummed(given: str) -> str:
    """The address as EIP-55 writes it."""
    digits = given[2:].lower()
    digest = keccak256(digits.encode()).hex()
    mixed = (d.upper() if int(h, 16) > 7 else d for d, h in zip(digits, digest, strict=False))
    return "0x" + "".join(mixed)
