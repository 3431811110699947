"""The names of streams: one for each queue and priority, derived from one key."""

from __future__ import annotations

from fencepost.redis_streams._keys import beside

PRIORITIES = ("urgent", "normal", "low", "bulk")
NORMAL = 1
DEFAULT_QUEUE = "default"


def stream_of(key: str, queue: str, priority: int, main: str = DEFAULT_QUEUE) -> str:
    """The main queue's normal priority is the key itself; all others are below it, in its cluster slot.

    The queue comes last, because its name is free: with the priority behind it, the queue `mail:urgent` and
    the urgent priority of `mail` would be one stream.
    """
    below = [] if priority == NORMAL else [PRIORITIES[priority]]
    if queue != main:
        below += ["q", queue]
    return beside(key, ":".join(below)) if below else key
