"""The names of streams: one for each queue and priority, derived from one key."""

from __future__ import annotations

PRIORITIES = ("urgent", "normal", "low", "bulk")
NORMAL = 1
DEFAULT_QUEUE = "default"


def stream_of(key: str, queue: str, priority: int) -> str:
    """The default queue's normal priority is the key itself; all others are below it, in its cluster slot.

    The queue comes last, because its name is free: with the priority behind it, the queue `mail:urgent` and
    the urgent priority of `mail` would be one stream.
    """
    below = [] if priority == NORMAL else [PRIORITIES[priority]]
    if queue != DEFAULT_QUEUE:
        below += ["q", queue]
    return beside(key, ":".join(below)) if below else key


def beside(stream: str, what: str) -> str:
    """A key that lies in the stream's slot of a cluster, so that one script may touch both.

    The slot is computed from the part in braces, or from the whole key if there is none: `{jobs}:urgent` is
    in the slot of `jobs`.
    """
    return f"{stream}:{what}" if "{" in stream else f"{{{stream}}}:{what}"
