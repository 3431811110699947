"""Wake-ups: a loop says that it sleeps; only then does a writer notify. `functions/notify.sql` says why."""

from __future__ import annotations

from typing import LiteralString

from fencepost.kernel.call import Call, nothing, text

LISTEN: LiteralString = "listen fencepost"
"""Every topic travels over one channel; the payload names it."""


def sleep_on(topic: str) -> Call[None]:
    """The loop found nothing and is about to wait."""
    return Call("select fencepost.sleep_on(%s::text)", (text("topic", topic),), nothing)


def wake_up(topic: str) -> Call[None]:
    """The loop is awake: nobody needs to notify it."""
    return Call("select fencepost.wake_up(%s::text)", (text("topic", topic),), nothing)
