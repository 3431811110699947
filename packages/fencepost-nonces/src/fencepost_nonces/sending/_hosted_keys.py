"""Keys that never leave a key service: it publishes a public key and signs digests.

The transaction is encoded here, its digest is signed there, and the signature is checked here before it is
used: it must be of the address that was asked for. `_kms.py` and `_vault.py` have the protocols.
"""

from __future__ import annotations

import asyncio
import time
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from coincurve import PublicKey

from fencepost.errors import InvalidInput, SettingsError
from fencepost.logs import get_logger
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces._keccak import keccak256
from fencepost_nonces.sending._ethereum import Fields, encoded, signing_digest
from fencepost_nonces.sending._keys import Signed
from fencepost_nonces.signer import address as checked_address
from fencepost_nonces.signer import checksummed

_log = get_logger(__name__)
# How long after a key could not be read, while others could, it is asked for again.
AGAIN_SECONDS = 30.0
# The order of the curve secp256k1. Chains take only the lower of the two valid values of s (EIP-2).
ORDER = 2**256 - 0x14551231950B75FC4402DA1732FC9BEBF
# What stands before the point in the SubjectPublicKeyInfo of an uncompressed secp256k1 key (RFC 5480).
_SPKI_HEAD = bytes.fromhex("3056301006072a8648ce3d020106052b8104000a034200")
_POINT_BYTES = 65
_SEQUENCE, _INTEGER = 0x30, 0x02


class WrongKey(Exception):
    """The service has the key, and it is no key of Ethereum."""


class DigestSigner(Protocol):
    """A key service. Each method raises SigningFailed when the service does not answer, or refuses."""

    setting: str
    """The setting that names the keys."""

    async def public_keys(self, key: str) -> dict[str, bytes]:
        """The SubjectPublicKeyInfo of each version of the key, the newest last. Raises WrongKey."""
        ...

    async def sign_digest(self, key: str, version: str, digest: bytes) -> bytes:
        """The signature in DER."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A key as the settings name it, with the address that it must have, if they say so."""

    key: str
    address: str | None = None


class HostedKeys:
    """Keys of a key service, found by their addresses."""

    def __init__(self, service: DigestSigner, named: Sequence[NamedKey]) -> None:
        self._service = service
        self._named = named
        self._found: dict[str, tuple[str, str]] = {}
        self._read: set[NamedKey] = set()
        self._again_at = 0.0

    def __repr__(self) -> str:
        return f"HostedKeys({sorted(self._found)})"

    async def addresses(self) -> frozenset[str]:
        """The address of each key, asked for once. While the service does not answer, those that are known:
        signed transactions are sent and followed anyway. SettingsError for a key of another kind."""
        if self._found and time.monotonic() < self._again_at:
            return frozenset(self._found)
        for named in self._named:
            if named not in self._read:
                try:
                    await self._look_up(named)
                except SigningFailed as error:
                    if not self._found:
                        raise
                    # Not at every turn: each question may take as long as the service may.
                    self._again_at = time.monotonic() + AGAIN_SECONDS
                    _log.warning("key_not_read", key=named.key, error=str(error))
        return frozenset(self._found)

    async def sign(self, address: str, fields: Fields) -> Signed:
        if address not in self._found:
            raise SigningFailed(f"There is no key for {address}.")
        key, version = self._found[address]
        digest = await asyncio.to_thread(signing_digest, fields)
        signature = await self._service.sign_digest(key, version, digest)
        parity, r, s = recoverable(signature, digest, address)
        raw = await asyncio.to_thread(encoded, fields, parity, r, s)
        return Signed("0x" + keccak256(raw).hex(), raw)

    async def close(self) -> None:
        await self._service.close()

    async def _look_up(self, named: NamedKey) -> None:
        try:
            versions = await self._service.public_keys(named.key)
            found = {address_of(point_of(spki)): version for version, spki in versions.items()}
        except WrongKey as error:
            raise SettingsError(f"{self._service.setting}: {named.key} {error}") from None
        if not found:
            raise SettingsError(f"{self._service.setting}: {named.key} has no public key.")
        address = named.address or list(found)[-1]
        if address not in found:
            raise SettingsError(
                f"{self._service.setting}: {named.key} signs for "
                f"{', '.join(map(checksummed, found))}, and not for {checksummed(address)}."
            )
        self._found[address] = (named.key, found[address])
        self._read.add(named)


def named_keys(setting: str, given: str) -> list[NamedKey]:
    """`alias/a; 0x5aAe…=alias/b`: keys, each with its address if one is given."""
    found: list[NamedKey] = []
    for part in filter(None, map(str.strip, given.split(";"))):
        name, equals, key = part.partition("=")
        try:
            found.append(
                NamedKey(key.strip(), checked_address(name.strip(), field=setting))
                if equals
                else NamedKey(part)
            )
        except InvalidInput as error:
            raise SettingsError(f"{setting}: {error}") from None
    return found


def spki_of_pem(pem: str) -> bytes:
    """The bytes between the lines of a PEM."""
    lines = [line.strip() for line in pem.strip().splitlines()]
    if len(lines) < 3 or lines[0] != "-----BEGIN PUBLIC KEY-----" or lines[-1] != "-----END PUBLIC KEY-----":
        raise WrongKey("has no public key in PEM.")
    try:
        return b64decode("".join(lines[1:-1]), validate=True)
    except NotBase64:
        raise WrongKey("has no public key in PEM.") from None


def point_of(spki: bytes) -> bytes:
    """The point of a public key on secp256k1; WrongKey for any other kind of key."""
    head, point = spki[: len(_SPKI_HEAD)], spki[len(_SPKI_HEAD) :]
    if head != _SPKI_HEAD or len(point) != _POINT_BYTES:
        raise WrongKey("is no key on the curve secp256k1, and a chain accepts no other.")
    return point


def address_of(point: bytes) -> str:
    return "0x" + keccak256(point[1:])[-20:].hex()


def recoverable(signature: bytes, digest: bytes, address: str) -> tuple[int, int, int]:
    """Parity, r and s of a signature in DER, with the lower s. Which parity is right is tried: only one
    recovers the address."""
    r, s = read_der(signature)
    s = min(s, ORDER - s)
    for parity in (0, 1):
        compact = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes([parity])
        try:
            found = PublicKey.from_signature_and_message(compact, digest, hasher=None)
        except Exception:  # noqa: S112 - Not every r is the x of a point; the library raises its own.
            continue
        if address_of(found.format(compressed=False)) == address:
            return parity, r, s
    raise SigningFailed("The key service signed with another key, or something else.")


def read_der(signature: bytes) -> tuple[int, int]:
    """The two integers of a signature (RFC 3279). Strict: what is read is what was written."""
    r_end = 4 + signature[3] if len(signature) >= 8 else 0
    is_shaped = (
        8 <= len(signature) <= 72
        and signature[0] == _SEQUENCE
        and signature[1] == len(signature) - 2
        and signature[2] == _INTEGER
        and r_end + 2 < len(signature)
        and signature[r_end] == _INTEGER
        and r_end + 2 + signature[r_end + 1] == len(signature)
    )
    if is_shaped:
        r, s = signature[4:r_end], signature[r_end + 2 :]
        numbers = int.from_bytes(r, "big"), int.from_bytes(s, "big")
        is_minimal = all(n and not n[0] & 0x80 and (n[0] or n[1:2] > b"\x7f") for n in (r, s))
        if is_minimal and all(0 < number < ORDER for number in numbers):
            return numbers
    raise SigningFailed("The key service's answer is no signature in DER.")
