"""The names of streams: one for each queue and lane, derived from one key."""

from __future__ import annotations

LANES = ("urgent", "normal", "low", "bulk")
NORMAL = 1
DEFAULT_QUEUE = "default"


def stream_of(key: str, queue: str, lane: int) -> str:
    """The default queue's normal lane is the key itself; everything else hangs below it, in its slot.

    The queue comes last, because its name is free: with the lane behind it, the queue `mail:urgent` and the
    urgent lane of `mail` would be one stream.
    """
    below = [] if lane == NORMAL else [LANES[lane]]
    if queue != DEFAULT_QUEUE:
        below += ["q", queue]
    return beside(key, ":".join(below)) if below else key


def beside(stream: str, what: str) -> str:
    """A key that lies in the stream's slot of a cluster, so that one script may touch both.

    The slot is that of what stands in braces, and of the whole key where nothing does: `{jobs}:urgent` lies
    beside `jobs`.
    """
    return f"{stream}:{what}" if "{" in stream else f"{{{stream}}}:{what}"
