"""Redis with bytes: records are not text."""

from __future__ import annotations

from typing import Any

from fencepost.drive.connection import connect
from fencepost.flows.errors import StartRefused

REPLY_SECONDS = 30.0


def connect_bytes(url: str | None, what: str) -> Any:
    """A client that answers bytes, and the replies of XREAD as Redis sends them: parsing them costs half a
    read."""
    if url is None:
        raise StartRefused(f"{what} needs Redis: set REDIS_URL, or give the worker redis_url.")
    client: Any = connect(url, reply_seconds=REPLY_SECONDS)
    client.connection_pool.connection_kwargs["decode_responses"] = False
    client.response_callbacks.pop("XREAD", None)
    return client


def entries_of(answer: Any) -> dict[bytes, Any]:
    """Stream to entries: RESP2 answers pairs, RESP3 a mapping."""
    if not answer:
        return {}
    return dict(answer.items() if hasattr(answer, "items") else answer)
