"""What a plugin brings to `fencepost demo`: its `PLUGIN` names a `DemoPart`, as it names commands and pages.

    demo="shop_points.demo:PART"

A part makes things for as long as the demo runs, through the interfaces that any program has. All of them
carry the mark `demo`, in a queue, a tag, a broker or a name. So its `clean` finds them, and nothing else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, LiteralString, TypeVar

from fencepost.backoff import Backoff
from fencepost.server_addresses import ServerAddresses

if TYPE_CHECKING:
    from fencepost.client import Fencepost

__all__ = ["DemoContext", "DemoPart"]

T = TypeVar("T")
QUEUES = ("demo", "demo-zombie")
_LOOKS = Backoff(0.05, 0.5, jitter=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoContext:
    """What a part has while the demo runs."""

    fp: Fencepost
    """A client of the running system, as the services' role."""
    addresses: ServerAddresses
    chance: random.Random
    """The same decisions for the same --seed. What they meet in the system differs."""
    run: str
    """A word that no other run has: for keys and names that must be new in each run."""
    folder: Path
    """For logs of the processes that a part starts."""
    say: Callable[..., None]
    """`say("text", path="/jobs/7")` prints a line; the path becomes an address."""

    async def pause(self, least_seconds: float, most_seconds: float) -> None:
        """Waits a random time between these bounds."""
        await asyncio.sleep(self.chance.uniform(least_seconds, most_seconds))

    async def until(self, look: Callable[[], Awaitable[T | None]], *, within: float) -> T | None:
        """What `look` returns as soon as it is something, or None when the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                for wait_seconds in _LOOKS.waits():
                    if (found := await look()) is not None:
                        return found
                    await asyncio.sleep(wait_seconds)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPart:
    """What one plugin shows."""

    name: str
    about: str
    """One line: what there is to see."""
    path: str
    """The page where it is seen: `/console/jobs`."""
    run: Callable[[DemoContext], Awaitable[None]]
    """Makes things until it is cancelled; it may return earlier, with a line that says why."""
    counts: LiteralString
    """A query that returns `name, count`: what there is of this part, for the lines of the demo. As the
    services' role, so it reads views."""
    others: LiteralString
    """A query that returns true if there are things of this service that no demo made."""
    clean: Path | None = None
    """A file of statements that remove what the part made: all run as the owner of the schema, in one
    transaction. Jobs it only names, and they are removed for it: `insert into demo_job select job_id ...`."""
    queues: tuple[str, ...] = ()
    """Queues whose jobs `others` accounts for."""
    channels: tuple[str, ...] = ()
    """Channels of the outbox, likewise."""
    redis_keys: tuple[str, ...] = ()
    """Patterns of its keys in Redis."""
    setup: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tables of the demo's own: a name, and the statement that creates it, as the owner of the schema."""
