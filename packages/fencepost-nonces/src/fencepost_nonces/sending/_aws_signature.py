"""Signature Version 4 of AWS: a request's headers, with a signature over method, address, headers and body.

Without I/O. Not botocore: it brings the descriptions of every service for what is forty lines.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote, urlsplit

ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


def signed_headers(
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    credentials: AwsCredentials,
    region: str,
    service: str,
    at: datetime,
) -> dict[str, str]:
    """`headers` with the date, the session token and the signature. All of them are signed, and the host."""
    parts = urlsplit(url)
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    sent = {**headers, "X-Amz-Date": stamp}
    if credentials.session_token is not None:
        sent["X-Amz-Security-Token"] = credentials.session_token
    signed = {name.lower(): " ".join(value.split()) for name, value in sent.items()} | {"host": parts.netloc}
    names = ";".join(sorted(signed))
    canonical = "\n".join(
        (
            method,
            quote(parts.path or "/", safe="/-_.~%"),
            "&".join(sorted(parts.query.split("&"))) if parts.query else "",
            *(f"{name}:{signed[name]}" for name in sorted(signed)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{stamp[:8]}/{region}/{service}/aws4_request"
    text = "\n".join((ALGORITHM, stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    sent["Authorization"] = (
        f"{ALGORITHM} Credential={credentials.access_key_id}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )
    return sent
