"""AWS KMS as a key service: GetPublicKey once for each key, Sign for each digest."""

from __future__ import annotations

import json
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from datetime import UTC, datetime
from typing import Any, cast

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Reply, Request, failure_name
from fencepost_nonces._errors import SigningFailed
from fencepost_nonces.sending._aws_signature import AwsCredentials, signed_headers
from fencepost_nonces.sending._hosted_keys import WrongKey

SPEC = "ECC_SECG_P256K1"
_WORD = re.compile(r"[A-Za-z0-9_]{1,80}")
# What is over when its time comes, or after it is asked again; other errors need a person.
_PASSING = frozenset(
    {"ThrottlingException", "LimitExceededException", "KMSInternalException", "DependencyTimeoutException"}
)
_OK, _SERVER_ERROR = 200, 500


class AwsKms:
    """One region of AWS KMS. It signs with credentials; neither they nor its messages are in any error."""

    setting = "NONCES_KMS_KEYS"

    def __init__(
        self, region: str, credentials: AwsCredentials, *, url: str | None = None, seconds: float = 10.0
    ) -> None:
        self._region = region
        self._credentials = credentials
        self._url = (url or f"https://kms.{region}.amazonaws.com").rstrip("/") + "/"
        self._client = HttpClient(reply_seconds=seconds)

    async def public_keys(self, key: str) -> dict[str, bytes]:
        answer = await self._ask("GetPublicKey", {"KeyId": key})
        spec, usage = answer.get("KeySpec"), answer.get("KeyUsage")
        if spec != SPEC or usage != "SIGN_VERIFY":
            raise WrongKey(f"is a key of {_word(spec)} for {_word(usage)}; allowed: {SPEC} for SIGN_VERIFY.")
        return {"": _decoded(answer.get("PublicKey"))}

    async def sign_digest(self, key: str, version: str, digest: bytes) -> bytes:
        answer = await self._ask(
            "Sign",
            {
                "KeyId": key,
                "Message": b64encode(digest).decode(),
                "MessageType": "DIGEST",
                "SigningAlgorithm": "ECDSA_SHA_256",
            },
        )
        return _decoded(answer.get("Signature"))

    async def close(self) -> None:
        await self._client.close()

    async def _ask(self, operation: str, document: dict[str, str]) -> dict[str, Any]:
        body = json.dumps(document).encode()
        headers = signed_headers(
            "POST",
            self._url,
            {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"TrentService.{operation}"},
            body,
            credentials=self._credentials,
            region=self._region,
            service="kms",
            at=datetime.now(UTC),
        )
        try:
            reply = await self._client.exchange(Request("POST", self._url, headers, body))
        except (NotSent, MaybeSent) as error:
            raise SigningFailed(f"AWS KMS does not answer {operation}: {failure_name(error)}.") from None
        return _read(operation, reply)


def _read(operation: str, reply: Reply) -> dict[str, Any]:
    answer = reply.json()
    fields = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    if reply.status == _OK:
        return fields
    # Without its message: only the kind of the error is known to contain no secret.
    kind = _word(str(fields.get("__type", "")).rpartition("#")[2])
    advice = (
        "It is asked again."
        if kind in _PASSING or reply.status >= _SERVER_ERROR
        else "Check the credentials, the key's state and its policy (kms:Sign, kms:GetPublicKey)."
    )
    raise SigningFailed(f"AWS KMS refused {operation} with HTTP {reply.status}, {kind}. {advice}")


def _word(given: object) -> str:
    return given if isinstance(given, str) and _WORD.fullmatch(given) else "an unknown kind"


def _decoded(given: object) -> bytes:
    try:
        return b64decode(given, validate=True) if isinstance(given, str) else b""
    except NotBase64:
        return b""
