"""Vault's Transit protocol as a key service.

HashiCorp Vault's own transit engine, and OpenBao's, have no key on secp256k1, the only curve that chains
accept. A mount that speaks the same protocol and has such keys does: a transit plugin with a type like
`ecdsa-secp256k1`, or a managed key of Vault Enterprise in an HSM. What decides is the public key that the
mount publishes. A key on another curve is refused at the start.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Request, failure_name
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces.sending._hosted_keys import WrongKey, point_of, spki_of_pem

_SIGNATURE = re.compile(r"vault:v\d+:([A-Za-z0-9+/=]+)")
_TYPE = re.compile(r"[A-Za-z0-9_-]{1,40}")
_OK, _FORBIDDEN, _NOT_FOUND, _TOO_MANY = 200, 403, 404, 429
_ADVICE = {
    _FORBIDDEN: "The token has expired, or its policy lacks read of keys/NAME and update of sign/NAME.",
    _NOT_FOUND: "There is no such key, or the engine is mounted elsewhere (NONCES_VAULT_MOUNT).",
    _TOO_MANY: "It is asked again.",
}


class VaultTransit:
    """One mount. The token may be in a file, which is read for each request: an agent renews it there."""

    setting = "NONCES_VAULT_KEYS"

    def __init__(
        self,
        url: str,
        *,
        mount: str = "transit",
        token: str | None = None,
        token_file: Path | None = None,
        namespace: str | None = None,
        seconds: float = 10.0,
    ) -> None:
        self._base = f"{url.rstrip('/')}/v1/{quote(mount.strip('/'))}"
        self._token = token
        self._token_file = token_file
        self._namespace = namespace
        self._client = HttpClient(reply_seconds=seconds)

    async def public_keys(self, key: str) -> dict[str, bytes]:
        data = await self._ask("GET", "keys", key, None)
        versions = data.get("keys")
        found: dict[str, bytes] = {}
        if isinstance(versions, dict):
            numbered = cast("dict[str, Any]", versions)
            for version in sorted(filter(str.isdecimal, numbered), key=int):
                pem = numbered[version].get("public_key") if isinstance(numbered[version], dict) else None
                found[version] = _spki(data.get("type"), pem)
        if not found:
            raise WrongKey(_wrong(data.get("type")))
        return found

    async def sign_digest(self, key: str, version: str, digest: bytes) -> bytes:
        """With the version whose address was looked up: a rotated key is another address."""
        data = await self._ask(
            "POST",
            "sign",
            key,
            {
                "input": b64encode(digest).decode(),
                "prehashed": True,
                "hash_algorithm": "sha2-256",
                "marshaling_algorithm": "asn1",
                "key_version": int(version),
            },
        )
        found = _SIGNATURE.fullmatch(str(data.get("signature", "")))
        try:
            return b64decode(found[1], validate=True) if found else b""
        except NotBase64:
            return b""

    async def close(self) -> None:
        await self._client.close()

    def _headers(self) -> dict[str, str]:
        try:
            token = self._token_file.read_text().strip() if self._token_file is not None else self._token
        except OSError as error:
            raise SigningFailed(f"NONCES_VAULT_TOKEN_FILE cannot be read: {error.strerror}.") from None
        headers = {"X-Vault-Token": token or "", "X-Vault-Request": "true"}
        return headers if self._namespace is None else {**headers, "X-Vault-Namespace": self._namespace}

    async def _ask(self, method: str, what: str, key: str, document: Any) -> dict[str, Any]:
        headers, body = self._headers(), None
        if document is not None:
            headers["Content-Type"], body = "application/json", json.dumps(document).encode()
        request = Request(method, f"{self._base}/{what}/{quote(key, safe='')}", headers, body)
        try:
            reply = await self._client.exchange(request)
        except (NotSent, MaybeSent) as error:
            raise SigningFailed(f"Vault does not answer {what}: {failure_name(error)}.") from None
        if reply.status != _OK:
            # Without its messages: they may quote what they refuse.
            advice = _ADVICE.get(reply.status, "Its own log says why; it is asked again.")
            raise SigningFailed(f"Vault refused {what} with HTTP {reply.status}. {advice}")
        answer = reply.json()
        data: Any = cast("dict[str, Any]", answer).get("data") if isinstance(answer, dict) else None
        if not isinstance(data, dict):
            raise SigningFailed(f"Vault's answer to {what} cannot be read.")
        return cast("dict[str, Any]", data)


def _spki(kind: object, pem: object) -> bytes:
    try:
        spki = spki_of_pem(pem) if isinstance(pem, str) else b""
        point_of(spki)
    except WrongKey:
        raise WrongKey(_wrong(kind)) from None
    return spki


def _wrong(kind: object) -> str:
    word = kind if isinstance(kind, str) and _TYPE.fullmatch(kind) else "an unknown type"
    return (
        f"is of type {word}, and a chain accepts only keys on secp256k1. The transit engines of HashiCorp "
        "Vault and of OpenBao have none: use a transit plugin that has, a managed key on that curve, or "
        "another signer."
    )
