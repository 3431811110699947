"""The live snapshot: one reading of the system for all viewers, and streams of bounded memory.

However many pages are open, the database is queried once. Each stream holds one event at most, the newest; a
reader that does not take it while several newer ones came is dropped, and its browser connects again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Self

from fencepost.errors import ServerUnavailable
from fencepost.plugin import plugins
from fencepost_server.console._read_pool import ReadPool, Row
from fencepost_server.console.page_data import as_json
from fencepost_server.console.plugin_pages import plugin_pages
from fencepost_server.web.formatting import link, quoted
from fencepost_server.web.words import filled

MISSED_MAX = 5
# A slow reading is made less often: at most this part of the time is spent reading.
SHARE_MAX = 0.2
# When no request came for this long, there are no viewers.
WANTED_SECONDS = 30.0
HELD_MAX = 100
# Refusals that are counted by kind at each look.
REFUSALS_MAX = 20_000
UNSERVED_MAX = 100
CAUSES_MAX = 200


_UNDECIDED: Mapping[str, str] = {"unknown": "unknown in {channel}", "parked": "parked in {channel}"}


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs an operator's decision."""

    what: str
    count: int
    where: str
    message: str
    """`what` before its names are filled in: pages show it in the language of their reader."""
    named: Mapping[str, str]

    @classmethod
    def of(cls, message: str, count: int, where: str, /, **named: str) -> Self:
        return cls(filled(message, named), count, where, message, named)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The system at one moment."""

    at: datetime
    queues: Sequence[Row]
    causes: Sequence[Row]
    channels: Sequence[Row]
    held_keys: Sequence[Row]
    refusals: Sequence[Row]
    refusal_kinds: dict[str, int]
    """How many of each kind were recorded in the last 24 hours."""
    decisions: Sequence[Need]
    """What needs an operator's decision in flows and in the plugins."""
    unserved: Sequence[Row]
    disabled: Sequence[Row]
    """Workers and hosts that are out of service until they are enabled."""
    leases_held: int
    workers: int
    kinds: Sequence[str]
    """The kinds that live workers serve, for suggestions."""

    @property
    def figures(self) -> dict[str, Any]:
        """The numbers that change while a page is open."""
        return {
            "at": self.at,
            "waiting": sum(queue["due"] + queue["dispatched"] for queue in self.queues),
            "scheduled": sum(queue["pending"] - queue["due"] for queue in self.queues),
            "running": sum(queue["running"] for queue in self.queues),
            "dead": sum(queue["dead"] for queue in self.queues),
            "oldest_seconds": max((queue["oldest_waiting_seconds"] or 0 for queue in self.queues), default=0),
            "undelivered": sum(_live(channel) for channel in self.channels),
            "outbox_lag_seconds": max((channel["lag_seconds"] or 0 for channel in self.channels), default=0),
            "leases_held": self.leases_held,
            "workers": self.workers,
            "late_writes": self.refusal_kinds["late"],
        }

    @property
    def needs(self) -> list[Need]:
        """What an operator must decide, the largest first."""
        found = [
            Need.of(
                "dead in {queue}",
                queue["dead"],
                link("/console/dead", queue=queue["queue"]),
                queue=queue["queue"],
            )
            for queue in self.queues
            if queue["dead"]
        ]
        found += [
            Need.of(
                _UNDECIDED[state],
                channel[state],
                _where(channel["channel"], state),
                channel=channel["channel"],
            )
            for channel in self.channels
            for state in _UNDECIDED
            if channel[state]
        ]
        found += self.decisions
        found += [_without_worker(work) for work in self.unserved]
        found += [
            Need.of(
                "{target} is disabled by {actor}: {reason}",
                1,
                "/console/workers",
                target=one["target"],
                actor=one["actor"],
                reason=one["reason"],
            )
            for one in self.disabled
        ]
        found += [
            Need.of(
                "{queue} is paused",
                queue["pending"] + queue["dispatched"],
                "/console/queues",
                queue=queue["queue"],
            )
            for queue in self.queues
            if queue["paused"]
        ]
        return sorted(found, key=lambda need: -need.count)


async def look(reading: ReadPool) -> Snapshot:
    """Read each view in a statement of its own: the result is not a consistent snapshot."""
    queues = await reading.rows("select * from fencepost.queue_status order by queue")
    causes = await dead_causes(reading)
    channels = await reading.rows("select * from fencepost.outbox_status order by channel")
    held_keys = await reading.rows("select * from fencepost.console_held_keys(%s::integer, 100000)", HELD_MAX)
    refusals = await reading.rows(
        "select reason, refused, meaning, remedy from fencepost.refusal_status order by refused desc, reason"
    )
    kinds = await reading.rows(
        "select kind, refused from fencepost.console_refusal_kinds('24 hours', %s::integer)", REFUSALS_MAX
    )
    decisions = await _decisions(reading)
    unserved = await reading.rows(
        "select queue, schedule, waiting, problem, message from fencepost.unserved_work"
        " order by waiting desc, queue, schedule, problem limit %s",
        UNSERVED_MAX,
    )
    disabled = await reading.rows(
        "select target, actor, reason from fencepost.worker_holds where state = 'disabled'"
        " order by held_at desc, target limit %s",
        UNSERVED_MAX,
    )
    kinds_served = await reading.rows(
        "select distinct k as kind from fencepost.job_workers w, jsonb_object_keys(w.serves -> 'kinds') k"
        " order by 1 limit 200"
    )
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
        {row["kind"]: row["refused"] for row in kinds},
        decisions,
        unserved,
        disabled,
        counts["leases"],
        counts["workers"],
        [row["kind"] for row in kinds_served],
    )


async def dead_causes(
    reading: ReadPool, queue: str | None = None, kind: str | None = None, cause: str | None = None
) -> Sequence[Row]:
    """The most frequent causes of death of the dead letters that match the filter."""
    return await reading.rows(
        "select queue, kind, cause, jobs, first_at, last_at, newest_job_id, newest_error"
        " from fencepost.dead_causes where (%s::text is null or queue = %s)"
        " and (%s::text is null or kind = %s) and (%s::text is null or cause = %s)"
        " order by jobs desc, queue, kind, cause limit %s",
        *(queue, queue, kind, kind, cause, cause, CAUSES_MAX),
    )


async def _decisions(reading: ReadPool) -> list[Need]:
    """What each plugin reports as waiting for an operator."""
    found: list[Need] = []
    for name, plugin in plugins().items():
        if plugin.needs is None:
            continue
        pages = plugin_pages().get(name)
        describe = (pages.describe_need if pages else None) or _describe_flow_need
        rows = [row for row in await reading.rows(plugin.needs) if row["things"]]
        told = ((row["things"], describe(row["need"], row["name"])) for row in rows)
        found += [Need.of(what, things, where) for things, (what, where) in told]
    return found


def _without_worker(work: Row) -> Need:
    """Work that no live worker takes, which only a deployment can change."""
    if work["schedule"] is not None:
        return Need.of(work["message"], 1, "/console/schedules")
    return Need.of(
        "waiting in {queue}: {problem}",
        work["waiting"],
        "/console/queues",
        queue=work["queue"],
        problem=work["problem"],
    )


def _where(channel: str, state: str) -> str:
    """The page of the plugin that owns the channel, which shows more than the outbox does."""
    for pages in plugin_pages().values():
        address = pages.message_address and pages.message_address(channel, state)
        if address:
            return address
    return link("/console/outbox", channel=channel, state=state)


def _describe_flow_need(need: str, name: str | None) -> tuple[str, str]:
    what = "failing tasks" if need == "flow failing" else "dead letters"
    return f"{what} of the flow {name}", f"/console/flows/{quoted(name or '')}"


@dataclass(slots=True, eq=False)
class SnapshotStream:
    """One reader: the newest event that it has not taken, and how many it has missed."""

    cut: Callable[[], object] = lambda: None
    pending: bytes | None = None
    missed: int = 0
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, event: bytes) -> bool:
        """Offer an event; answers whether the reader still reads."""
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
    """The newest snapshot, and the streams that receive it."""

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
        """The newest snapshot; read now when it is too old."""
        self._wanted_at = time.monotonic()
        fresh_for = max(self._look_seconds * 3, 5.0)
        if self._newest is None or self._wanted_at - self._newest_at > fresh_for:
            return await self.refresh()
        return self._newest

    async def refresh(self) -> Snapshot:
        """Read again, once for all concurrent callers."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(), name="fencepost-console-look")
        return await asyncio.shield(self._looking)

    def forget(self) -> None:
        """Discard the snapshot after a change: the next caller sees the change."""
        self._newest = None
        self._looking = None
        self._changes += 1

    async def tick(self) -> float:
        """Read while there are viewers. Answers how long to wait."""
        began = time.monotonic()
        if not self._streams and began - self._wanted_at > WANTED_SECONDS:
            return self._look_seconds
        seen = await self.refresh()
        shown = {**seen.figures, "needs": seen.needs, "queues": seen.queues}
        self._publish(event("look", {**shown, "every_seconds": self._look_seconds}))
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
            # Otherwise it may have been read before the change.
            self._newest, self._newest_at = seen, time.monotonic()
        return seen


def event(name: str, facts: Mapping[str, Any]) -> bytes:
    """A server-sent event. JSON has no bare line break, so one data line is enough."""
    return f"event: {name}\ndata: {as_json(facts)}\n\n".encode()


def _live(channel: Row) -> int:
    return int(
        channel["queued"] + channel["sending"] + channel["failed"] + channel["unknown"] + channel["parked"]
    )
