"""Key stores: an encrypted keystore, or a remote signer. A key is in no log, error or repr.

Keys of AWS KMS and Vault are in `_hosted_keys.py`; `_key_store.py` chooses.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from hexbytes import HexBytes

from fencepost.errors import SettingsError
from fencepost.http_client import HttpClient, MaybeSent, NotSent, Request, failure_name
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces._keccak import keccak256
from fencepost_nonces.sending._decoding import fields_of
from fencepost_nonces.sending._ethereum import Fields
from fencepost_nonces.sending._ethereum import accounts as eth_accounts

if TYPE_CHECKING:
    from eth_account.signers.local import LocalAccount


@dataclass(frozen=True, slots=True)
class Signed:
    tx_hash: str
    raw: bytes


class Keys(Protocol):
    """Signs for the addresses that it has."""

    async def addresses(self) -> frozenset[str]: ...

    async def sign(self, address: str, fields: Fields) -> Signed: ...

    async def close(self) -> None: ...


class NoKeys:
    """Nothing was configured: nonces are served, and no transaction is accepted."""

    async def addresses(self) -> frozenset[str]:
        return frozenset()

    async def sign(self, address: str, fields: Fields) -> Signed:
        raise SigningFailed(f"There is no key for {address}.")

    async def close(self) -> None:
        """Nothing is open."""


class LateKeys:
    """Keys that are read when the service starts, and not when it is composed."""

    def __init__(self, keys: Keys | None = None) -> None:
        self.missing = keys is None
        self._keys: Keys = keys or NoKeys()

    def use(self, keys: Keys) -> None:
        self._keys, self.missing = keys, False

    async def addresses(self) -> frozenset[str]:
        return await self._keys.addresses()

    async def sign(self, address: str, fields: Fields) -> Signed:
        return await self._keys.sign(address, fields)

    async def close(self) -> None:
        await self._keys.close()


class Keystore:
    """Keys from a directory of encrypted files (Web3 Secret Storage), decrypted once, in memory only."""

    def __init__(self, accounts: Mapping[str, LocalAccount]) -> None:
        self._accounts = dict(accounts)

    def __repr__(self) -> str:
        return f"Keystore({sorted(self._accounts)})"

    @classmethod
    def read(cls, directory: Path, password: str) -> Keystore:
        eth = eth_accounts()
        accounts: dict[str, LocalAccount] = {}
        for file in sorted(directory.iterdir()):
            if file.name.startswith(".") or not file.is_file():
                continue
            try:
                account = eth.from_key(eth.decrypt(json.loads(file.read_text()), password))
            except OSError as error:
                raise SettingsError(
                    f"NONCES_KEYSTORE: {file.name} cannot be read: {error.strerror}."
                ) from None
            except Exception:
                # Catches whatever the decoder raises for a file that is no keystore. The error's own text is
                # left out: it may quote what it could not read.
                raise SettingsError(
                    f"NONCES_KEYSTORE: {file.name} is no keystore file, or NONCES_KEYSTORE_PASSWORD is wrong."
                ) from None
            accounts[account.address.lower()] = account
        return cls(accounts)

    async def addresses(self) -> frozenset[str]:
        return frozenset(self._accounts)

    async def sign(self, address: str, fields: Fields) -> Signed:
        account = self._accounts.get(address)
        if account is None:
            raise SigningFailed(f"There is no key for {address}.")
        signed = account.sign_transaction(dict(fields))
        return Signed("0x" + signed.hash.hex().removeprefix("0x"), bytes(signed.raw_transaction))

    async def close(self) -> None:
        """Nothing is open."""


class RemoteSigner:
    """A remote signer with eth_signTransaction (Web3Signer, Clef). Its answer is verified, not trusted."""

    def __init__(self, url: str, *, seconds: float = 10.0) -> None:
        self._url = url
        self._client = HttpClient(reply_seconds=seconds)
        self._known: frozenset[str] = frozenset()

    async def addresses(self) -> frozenset[str]:
        """The last known ones while it does not answer: signed transactions are sent and followed anyway."""
        try:
            named = await self._ask("eth_accounts")
        except SigningFailed:
            if not self._known:
                raise
        else:
            self._known = addresses_of(named)
        return self._known

    async def sign(self, address: str, fields: Fields) -> Signed:
        wire = {name: hex(value) if isinstance(value, int) else value for name, value in fields.items()}
        answer = await self._ask("eth_signTransaction", {"from": address, **wire})
        return await asyncio.to_thread(verified, address, fields, bytes_of(answer))

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, method: str, *params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}
        try:
            reply = await self._client.exchange(Request.post_json(self._url, body))
        except (NotSent, MaybeSent) as error:
            raise SigningFailed(f"The remote signer does not answer: {failure_name(error)}.") from None
        return result_of(reply.body)


def result_of(text: bytes) -> Any:
    """What the remote signer answered."""
    try:
        read: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SigningFailed(f"The remote signer does not answer: {type(error).__name__}.") from None
    reply = cast("dict[str, Any]", read) if isinstance(read, dict) else {}
    if reply.get("result") is None:
        # Without its message: that may quote a secret.
        raise SigningFailed("The remote signer refused; its own log says why.")
    return reply["result"]


def addresses_of(named: object) -> frozenset[str]:
    """The addresses that the remote signer says it signs for."""
    if not isinstance(named, list):
        raise SigningFailed("The remote signer does not name the addresses that it signs for.")
    return frozenset(str(address).lower() for address in cast("list[object]", named))


def verified(address: str, fields: Fields, raw: bytes) -> Signed:
    """Verify that this address signed the bytes, and that they match the request: a signer may be wrong."""
    try:
        decoded = fields_of(raw)
        signer = eth_accounts().recover_transaction(raw).lower()
    except Exception:
        # Whatever the decoder raises for untrusted bytes, they are not what was requested.
        raise SigningFailed("The remote signer's answer is not a signed transaction.") from None
    wrong = [
        name
        for name, value in fields.items()
        if name != "type" and _plain(decoded.get(name)) != _plain(value)
    ]
    if signer != address or wrong:
        raise SigningFailed(
            f"The remote signer signed something else: {', '.join(wrong) or 'as another sender'}."
        )
    return Signed("0x" + keccak256(raw).hex(), raw)


def bytes_of(answer: Any) -> bytes:
    """The bytes of a remote signer's answer; an unreadable answer is no signed transaction."""
    raw: Any = cast("dict[str, Any]", answer).get("raw") if isinstance(answer, dict) else answer
    try:
        return bytes(HexBytes(raw)) if isinstance(raw, str) else b""
    except ValueError:
        return b""


def _plain(value: Any) -> Any:
    """Normalises addresses and data to one spelling."""
    if isinstance(value, bytes):
        return "0x" + value.hex()
    return value.lower() if isinstance(value, str) else value
