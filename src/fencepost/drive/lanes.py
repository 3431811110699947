"""The names of streams: one for each queue and lane, derived from one key."""

from __future__ import annotations

LANES = ("urgent", "normal", "low", "bulk")
NORMAL = 1
DEFAULT_QUEUE = "default"


def stream_of(key: str, queue: str, lane: int) -> str:
    """The default queue's normal lane is the key itself; everything else hangs below it."""
    name = key if queue == DEFAULT_QUEUE else f"{key}:q:{queue}"
    return name if lane == NORMAL else f"{name}:{LANES[lane]}"


def beside(stream: str, what: str) -> str:
    """A key that lies in the stream's slot of a cluster, so that one script may touch both."""
    return f"{stream}:{what}" if "{" in stream else f"{{{stream}}}:{what}"
