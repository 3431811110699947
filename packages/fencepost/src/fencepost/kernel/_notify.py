"""Wake-ups: a loop records that it sleeps; writers notify only then. `functions/notify.sql` explains why."""

from __future__ import annotations

from typing import LiteralString

from fencepost.kernel.call import Call, nothing, text

LISTEN: LiteralString = "listen fencepost"
"""All topics use one channel; the payload names the topic."""


def sleep_on(topic: str) -> Call[None]:
    """Record that the loop found nothing and is about to wait."""
    return Call("select fencepost.sleep_on(%s::text)", (text("topic", topic),), nothing)


def wake_up(topic: str) -> Call[None]:
    """Record that the loop is awake: writers need not notify it."""
    return Call("select fencepost.wake_up(%s::text)", (text("topic", topic),), nothing)
