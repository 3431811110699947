"""Doubles of AWS KMS and of a Vault mount with a secp256k1 key: they speak the real protocols over HTTP.

The double of KMS checks Signature Version 4 by itself, from the specification and not with our code; the one
of Vault checks the token. Both sign with `s` in its higher form, which a chain refuses, whenever they may.
"""

import hashlib
import hmac
import json
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from coincurve import PrivateKey

ORDER = 2**256 - 0x14551231950B75FC4402DA1732FC9BEBF
SPKI_HEAD = "3056301006072a8648ce3d020106052b8104000a034200"
P256_HEAD = "3059301306072a8648ce3d020106082a8648ce3d030107034200"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = "AKIDTEST", "secret-of-kms/7Q+x", "session-of-kms"
VAULT_TOKEN = "hvs.token-of-vault"

Answer = Callable[[], web.Response]


def spki(key: PrivateKey, head: str = SPKI_HEAD) -> bytes:
    return bytes.fromhex(head) + key.public_key.format(compressed=False)


def pem(key: PrivateKey, head: str = SPKI_HEAD) -> str:
    text = b64encode(spki(key, head)).decode()
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    return "\n".join(("-----BEGIN PUBLIC KEY-----", *lines, "-----END PUBLIC KEY-----", ""))


def signature(key: PrivateKey, digest: bytes) -> bytes:
    """In DER, with the higher s."""
    compact = key.sign_recoverable(digest, hasher=None)  # pyright: ignore[reportUnknownMemberType]
    r, s = int.from_bytes(compact[:32], "big"), int.from_bytes(compact[32:64], "big")
    return der(r, max(s, ORDER - s))


def der(r: int, s: int) -> bytes:
    parts = b""
    for number in (r, s):
        text = number.to_bytes((number.bit_length() + 8) // 8, "big")
        parts += bytes([2, len(text)]) + text
    return bytes([0x30, len(parts)]) + parts


@dataclass
class KmsDouble:
    """One key under several names. `instead` answers in its place, once for each element."""

    key: PrivateKey
    names: frozenset[str] = frozenset({"alias/payments"})
    spec: str = "ECC_SECG_P256K1"
    region: str = "eu-central-1"
    session_token: str | None = SESSION_TOKEN
    instead: list[Answer] = field(default_factory=list[Answer])
    signs_with: PrivateKey | None = None
    asked: list[str] = field(default_factory=list[str])

    async def serve(self, request: web.Request) -> web.Response:
        body = await request.read()
        operation = request.headers["X-Amz-Target"].removeprefix("TrentService.")
        self.asked.append(operation)
        if self.instead:
            return self.instead.pop(0)()
        if not self._is_signed(request, body):
            return refusal(400, "com.amazonaws.kms#InvalidSignatureException", f"do not tell {SECRET_KEY}")
        document = json.loads(body)
        if document["KeyId"] not in self.names:
            return refusal(400, "NotFoundException", "Invalid keyId")
        if operation == "GetPublicKey":
            return amz(
                {
                    "KeyId": "arn:aws:kms:...",
                    "KeySpec": self.spec,
                    "KeyUsage": "SIGN_VERIFY",
                    "PublicKey": b64encode(spki(self.key)).decode(),
                    "SigningAlgorithms": ["ECDSA_SHA_256"],
                }
            )
        assert (operation, document["MessageType"], document["SigningAlgorithm"]) == (
            "Sign",
            "DIGEST",
            "ECDSA_SHA_256",
        )
        digest = b64decode(document["Message"], validate=True)
        assert len(digest) == 32
        return amz({"Signature": b64encode(signature(self.signs_with or self.key, digest)).decode()})

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        """Signature Version 4, from its specification."""
        given = request.headers["Authorization"].removeprefix("AWS4-HMAC-SHA256 ")
        parts = dict(part.split("=", 1) for part in given.split(", "))
        names = parts["SignedHeaders"].split(";")
        needed = {"host", "x-amz-date", "x-amz-target", "content-type"}
        if self.session_token is not None:
            needed.add("x-amz-security-token")
            if request.headers.get("X-Amz-Security-Token") != self.session_token:
                return False
        if not needed <= set(names) or names != sorted(names):
            return False
        head = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names)
        canonical = f"POST\n/\n\n{head}\n{';'.join(names)}\n{hashlib.sha256(body).hexdigest()}"
        date = request.headers["X-Amz-Date"]
        scope = f"{date[:8]}/{self.region}/kms/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{date}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = ("AWS4" + SECRET_KEY).encode()
        for word in (date[:8], self.region, "kms", "aws4_request", text):
            key = hmac.new(key, word.encode(), hashlib.sha256).digest()
        return parts["Credential"] == f"{ACCESS_KEY}/{scope}" and hmac.compare_digest(
            parts["Signature"], key.hex()
        )


@dataclass
class VaultDouble:
    """A mount with one key, in versions: the newest last."""

    keys: list[PrivateKey]
    name: str = "payments"
    mount: str = "transit"
    kind: str = "ecdsa-secp256k1"
    head: str = SPKI_HEAD
    token: str = VAULT_TOKEN
    namespace: str | None = None
    instead: list[Answer] = field(default_factory=list[Answer])
    asked: list[str] = field(default_factory=list[str])

    async def serve(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if self.instead:
            return self.instead.pop(0)()
        if request.headers.get("X-Vault-Token") != self.token:
            return web.json_response({"errors": ["permission denied", f"not {self.token}"]}, status=403)
        if request.headers.get("X-Vault-Namespace") != self.namespace:
            return web.json_response({"errors": ["no handler for route"]}, status=404)
        if (request.method, request.path) == ("GET", f"/v1/{self.mount}/keys/{self.name}"):
            versions = {
                str(number): {"public_key": pem(key, self.head), "name": self.kind}
                for number, key in enumerate(self.keys, start=1)
            }
            return data({"type": self.kind, "latest_version": len(self.keys), "keys": versions})
        if (request.method, request.path) != ("POST", f"/v1/{self.mount}/sign/{self.name}"):
            return web.json_response({"errors": []}, status=404)
        document = await request.json()
        assert (document["prehashed"], document["hash_algorithm"], document["marshaling_algorithm"]) == (
            True,
            "sha2-256",
            "asn1",
        )
        version = document["key_version"]
        key = self.keys[int(version) - 1]
        signed = signature(key, b64decode(document["input"], validate=True))
        return data({"signature": f"vault:v{version}:{b64encode(signed).decode()}", "key_version": version})


def amz(document: dict[str, Any]) -> web.Response:
    return web.Response(body=json.dumps(document), content_type="application/x-amz-json-1.1")


def refusal(status: int, kind: str, message: str = "") -> web.Response:
    return web.json_response({"__type": kind, "message": message}, status=status)


def data(document: dict[str, Any]) -> web.Response:
    return web.json_response({"request_id": "r", "data": document})


@asynccontextmanager
async def listening(double: KmsDouble | VaultDouble) -> AsyncGenerator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", double.serve)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
