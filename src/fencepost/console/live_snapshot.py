"""The pulse: one look at the system for everybody who watches, and streams that cannot fill the memory.

However many pages are open, the database is asked once. Each stream holds one answer at most, the newest; a
reader who does not take it while several newer ones came is dropped, and his browser connects again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fencepost.console.page_data import as_json
from fencepost.console.read_pool import ReadPool, Row
from fencepost.errors import ServerUnavailable
from fencepost.web.formatting import link, quoted

MISSED_MAX = 5
# A look that takes long is made less often: at most this part of the time is spent looking.
SHARE_MAX = 0.2
# Nobody asked for so long: nobody watches.
WANTED_SECONDS = 30.0
HELD_MAX = 100
CAUSES_MAX = 200
ORDERS = "orders:"


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person."""

    what: str
    count: int
    where: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The system at one moment."""

    at: datetime
    queues: Sequence[Row]
    causes: Sequence[Row]
    channels: Sequence[Row]
    held_keys: Sequence[Row]
    refusals: Sequence[Row]
    decisions: Sequence[Row]
    """What waits for a person in flows, orders and nonces."""
    leases_held: int
    workers: int

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers that change while one watches."""
        return {
            "at": self.at,
            "waiting": sum(queue["pending"] + queue["dispatched"] for queue in self.queues),
            "running": sum(queue["running"] for queue in self.queues),
            "dead": sum(queue["dead"] for queue in self.queues),
            "oldest_seconds": max((queue["oldest_waiting_seconds"] or 0 for queue in self.queues), default=0),
            "undelivered": sum(_live(channel) for channel in self.channels),
            "outbox_lag_seconds": max((channel["lag_seconds"] or 0 for channel in self.channels), default=0),
            "leases_held": self.leases_held,
            "workers": self.workers,
            "refused": sum(reason["refused"] for reason in self.refusals),
        }

    @property
    def needs(self) -> list[Need]:
        """What a person must decide, the largest first."""
        found = [
            Need(f"dead in {queue['queue']}", queue["dead"], link("/console/dead", queue=queue["queue"]))
            for queue in self.queues
            if queue["dead"]
        ]
        found += [
            Need(f"{state} in {channel['channel']}", channel[state], _where(channel["channel"], state))
            for channel in self.channels
            for state in ("unknown", "parked")
            if channel[state]
        ]
        found += [_decision(one) for one in self.decisions if one["things"]]
        found += [
            Need(f"{queue['queue']} is paused", queue["pending"] + queue["dispatched"], "/console/queues")
            for queue in self.queues
            if queue["paused"]
        ]
        return sorted(found, key=lambda need: -need.count)


async def look(reading: ReadPool) -> Snapshot:
    """Each view in a statement of its own: a moving system, not a consistent snapshot."""
    queues = await reading.rows("select * from fencepost.queue_status order by queue")
    causes = await dead_causes(reading)
    channels = await reading.rows("select * from fencepost.outbox_status order by channel")
    held_keys = await reading.rows("select * from fencepost.console_held_keys(%s::integer, 100000)", HELD_MAX)
    refusals = await reading.rows(
        "select reason, refused, meaning, remedy from fencepost.refusal_status order by refused desc, reason"
    )
    decisions = await reading.rows("select need, name, things from fencepost.console_needs()")
    counts = await reading.row(
        "select (select count(*) from fencepost.lease_status where held) as leases,"
        " (select count(distinct owner) from fencepost.console_workers()) as workers"
    )
    assert counts is not None
    return Snapshot(
        datetime.now(UTC),
        queues,
        causes,
        channels,
        held_keys,
        refusals,
        decisions,
        counts["leases"],
        counts["workers"],
    )


async def dead_causes(
    reading: ReadPool, queue: str | None = None, kind: str | None = None, cause: str | None = None
) -> Sequence[Row]:
    """What most have died of, of those that the filter means."""
    return await reading.rows(
        "select queue, kind, cause, jobs, first_at, last_at, newest_job_id, newest_error"
        " from fencepost.dead_causes where (%s::text is null or queue = %s)"
        " and (%s::text is null or kind = %s) and (%s::text is null or cause = %s)"
        " order by jobs desc, queue, kind, cause limit %s",
        *(queue, queue, kind, kind, cause, cause, CAUSES_MAX),
    )


def _where(channel: str, state: str) -> str:
    """An order is decided about as an order, which knows more than its message."""
    if channel.startswith(ORDERS):
        return link("/console/orders", status=state, broker=channel.removeprefix(ORDERS))
    return link("/console/outbox", channel=channel, state=state)


def _decision(row: Row) -> Need:
    name, things = row["name"], row["things"]
    match row["need"]:
        case "flow failing":
            return Need(f"failing tasks of the flow {name}", things, f"/console/flows/{quoted(name)}")
        case "flow dead letters":
            return Need(f"dead letters of the flow {name}", things, f"/console/flows/{quoted(name)}")
        case "signers recovering":
            return Need("signers wait for a recovery", things, link("/console/nonces", state="recovering"))
        case "transactions in doubt" | "transactions unproved" as what:
            return Need(what, things, "/console/nonces#doubt")
        case halted:
            return Need(f"{halted}: {name}", things, "/console/orders")


@dataclass(slots=True, eq=False)
class SnapshotStream:
    """One reader: the newest answer that he has not taken, and how many he has let pass."""

    cut: Callable[[], object] = lambda: None
    pending: bytes | None = None
    missed: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: bytes) -> bool:
        """Whether he still reads."""
        self.missed = self.missed + 1 if self.pending is not None else 0
        self.pending = event
        self.ready.set()
        return self.missed < MISSED_MAX

    async def take(self) -> bytes:
        await self.ready.wait()
        self.ready.clear()
        event, self.pending = self.pending or b"", None
        return event


class LiveSnapshot:
    """The newest look, and the streams that want to hear of it."""

    def __init__(self, reading: ReadPool, *, look_seconds: float, streams_max: int) -> None:
        self._reading = reading
        self._look_seconds = look_seconds
        self._streams_max = streams_max
        self._streams: set[SnapshotStream] = set()
        self._newest: Snapshot | None = None
        self._newest_at = 0.0
        self._wanted_at = 0.0
        self._looking: asyncio.Task[Snapshot] | None = None
        self._changes = 0
        self.dropped = 0

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    async def newest(self) -> Snapshot:
        """What was seen last; looked for now when nobody has looked for a while."""
        self._wanted_at = time.monotonic()
        fresh_for = max(self._look_seconds * 3, 5.0)
        if self._newest is None or self._wanted_at - self._newest_at > fresh_for:
            return await self.refresh()
        return self._newest

    async def refresh(self) -> Snapshot:
        """Look again, once for all who ask at the same time."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="fencepost-console-look")
        return await asyncio.shield(self._looking)

    def forget(self) -> None:
        """Something was changed: who asks next sees it."""
        self._newest = None
        self._looking = None
        self._changes += 1

    async def tick(self) -> float:
        """Look while somebody watches. Answers how long to wait."""
        began = time.monotonic()
        if not self._streams and began - self._wanted_at > WANTED_SECONDS:
            return self._look_seconds
        seen = await self.refresh()
        self._publish(event("look", {**seen.figures, "needs": seen.needs, "queues": seen.queues}))
        return max(self._look_seconds, (time.monotonic() - began) / SHARE_MAX)

    def subscribe(self) -> SnapshotStream:
        if len(self._streams) >= self._streams_max:
            raise ServerUnavailable(
                f"{self._streams_max} streams are open already (CONSOLE_STREAMS_MAX). Try again later."
            )
        stream = SnapshotStream()
        self._streams.add(stream)
        return stream

    def unsubscribe(self, stream: SnapshotStream) -> None:
        self._streams.discard(stream)

    def _publish(self, message: bytes) -> None:
        for stream in tuple(self._streams):
            if not stream.offer(message):
                self.dropped += 1
                self._streams.discard(stream)
                stream.cut()

    async def _look(self) -> Snapshot:
        changes = self._changes
        seen = await look(self._reading)
        if changes == self._changes:
            # Otherwise it may have been seen before the change.
            self._newest, self._newest_at = seen, time.monotonic()
        return seen


def event(name: str, facts: Mapping[str, Any]) -> bytes:
    """A server-sent event. JSON has no bare line break, so one data line is enough."""
    return f"event: {name}\ndata: {as_json(facts)}\n\n".encode()


def _live(channel: Row) -> int:
    return int(
        channel["queued"] + channel["sending"] + channel["failed"] + channel["unknown"] + channel["parked"]
    )
