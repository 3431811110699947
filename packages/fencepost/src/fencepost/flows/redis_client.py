"""Redis with bytes: records are not text."""

from __future__ import annotations

from typing import Any

import redis

from fencepost.flows.errors import StartRefused
from fencepost.redis_streams.connection import connect

REPLY_SECONDS = 30.0
CONNECTIONS = 16


def connect_bytes(url: str | None, what: str, *, connections_max: int = CONNECTIONS) -> Any:
    """A client that answers bytes, and the replies of XREAD as Redis sends them: parsing them costs half a
    read. A command that finds all its connections in use waits for one."""
    if url is None:
        raise StartRefused(f"{what} needs Redis: set REDIS_URL, or give the worker redis_url.")
    client: Any = connect(url, reply_seconds=REPLY_SECONDS, connections_max=connections_max)
    client.connection_pool.connection_kwargs["decode_responses"] = False
    client.response_callbacks.pop("XREAD", None)
    return client


async def check_room(client: Any, wanted: int, setting: str) -> None:
    """Raise StartRefused if Redis would never allow so many connections."""
    try:
        facts: Any = await client.info("clients")
    except redis.ResponseError:
        # A login that may not ask is not told: then it shows when a connection is refused.
        return
    allowed = int(facts.get("maxclients", wanted))
    if wanted > allowed:
        raise StartRefused(
            f"{setting} is {wanted}, and Redis allows {allowed} clients. Lower {setting} to {allowed} or "
            f"less, or raise maxclients: redis-cli config set maxclients {wanted * 2}"
        )


def entries_of(answer: Any) -> dict[bytes, Any]:
    """Stream to entries: RESP2 answers pairs, RESP3 a mapping."""
    if not answer:
        return {}
    return dict(answer.items() if hasattr(answer, "items") else answer)
