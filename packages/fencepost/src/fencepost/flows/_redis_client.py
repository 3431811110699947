"""Redis clients that return bytes: records are not text."""

from __future__ import annotations

from typing import Any

from fencepost.flows._errors import StartRefused
from fencepost.redis_streams.connection import connect
from fencepost.redis_streams.errors import ResponseError

REPLY_SECONDS = 30.0
CONNECTIONS = 16


def connect_bytes(url: str | None, what: str, *, connections_max: int = CONNECTIONS) -> Any:
    """A client that returns bytes. A command that finds all its connections in use waits for one."""
    if url is None:
        raise StartRefused(f"{what} needs Redis: set REDIS_URL, or give the worker redis_url.")
    return connect(url, reply_seconds=REPLY_SECONDS, connections_max=connections_max, raw=True)


async def check_room(client: Any, wanted: int, setting: str) -> None:
    """Raise StartRefused if Redis would never allow that many connections."""
    try:
        facts: Any = await client.info("clients")
    except ResponseError:
        # A login without permission to read the limit cannot check it: then a refused connection will show
        # it.
        return
    allowed = int(facts.get("maxclients", wanted))
    if wanted > allowed:
        raise StartRefused(
            f"{setting} is {wanted}, and Redis allows {allowed} clients. Lower {setting} to {allowed} or "
            f"less, or raise maxclients: redis-cli config set maxclients {wanted * 2}"
        )


def entries_of(answer: Any) -> dict[bytes, Any]:
    """A mapping from stream to entries: RESP2 returns pairs, RESP3 a mapping."""
    if not answer:
        return {}
    return dict(answer.items() if hasattr(answer, "items") else answer)
