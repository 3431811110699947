"""A unit that commits: reads from sources or channels, processes, and periodically makes the result durable
in one commit."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Protocol

from fencepost.crashpoints import crash_point
from fencepost.flows._commit_pace import CommitPace
from fencepost.flows._commit_trace import CommitTrace, Traces
from fencepost.flows._committer import Committer
from fencepost.flows._dead_letters import DeadLetterSink
from fencepost.flows._edge_stats import EdgeStats, UnitClock, counted
from fencepost.flows._failing import blame, reading
from fencepost.flows._frontier import Frontier, Mark
from fencepost.flows._late_records import LateLog
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._plan import FlowPlan, KeyedStage, SourceStage, least
from fencepost.flows._record import END, Offset
from fencepost.flows._settings import FlowSettings
from fencepost.flows._steps import Batch
from fencepost.flows._taken import Taken
from fencepost.flows._units import RecordSender
from fencepost.flows._watermarks import Silence, Watermarks
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk, Reader
from fencepost.signals import announce

TICK_SECONDS = 0.5
"""How long after its end a window in processing time may close, while nothing comes."""
wall_clock = time.time
"""For windows in processing time."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """Records of one sender by input, and the mark that the sender has reached with them."""

    sender: str
    runs: Sequence[tuple[int, Batch]]
    mark: Mark
    watermark: float | None
    """As the merge counts it: None for a sender without event time, END after its last record."""
    count: int
    traces: Traces = ()
    offsets: Sequence[Offset] = ()
    """The offsets of the records; each record has its index in them."""
    silent: bool = False
    """Whether the sender has had nothing for as long as its `idle_after`."""

    @property
    def has_news(self) -> bool:
        return bool(self.count or self.mark.ended or self.silent)


class RecordInput(Protocol):
    @property
    def heads(self) -> Sequence[SourceStage]:
        """The source stages that it feeds itself."""
        ...

    async def read(self, limit: int, wait_seconds: float, only: frozenset[str] | None) -> list[Arrival]:
        """Read records; with `only`, of these senders: the others have sent more than can be held."""
        ...

    async def acknowledge(self, frontier: Frontier) -> None: ...

    def taken(self) -> dict[str, int]:
        """How many records were read so far, for each sender that is a source partition."""
        ...

    async def lags(self) -> dict[str, int | None]:
        """How much waits beyond what was read, by sender: in the source, if it reports that, or in
        channels."""
        ...

    async def close(self) -> None: ...


class Sends(Protocol):
    """Where a task of a keyed stage leaves what it sends to later stages: the last sink of its commits."""

    async def packed(
        self, runs: Sequence[tuple[int, Batch]], watermark: float | None, *, ended: bool
    ) -> Sequence[Any]: ...


class SourceInput:
    """Reads source partitions in turn, each through its own source stage."""

    def __init__(self, program: FlowPlan, senders: Sequence[RecordSender], context: FlowContext) -> None:
        self._program = program
        self._senders = senders
        self._context = context
        self._heads: dict[str, SourceStage] = {}
        self._readers: dict[str, Reader] = {}
        self._timeless = {sender.name for sender in senders if sender.timeless}
        self._silences = {s.name: Silence(program.idle_seconds(s.node)) for s in senders}
        self._marks: Frontier = Frontier()

    async def open(self, frontier: Frontier) -> None:
        for sender in self._senders:
            mark = frontier.of(sender.name)
            head = SourceStage(self._program, sender.node, paced=True)
            head.restore(mark.watermark)
            self._heads[sender.name] = head
            self._marks[sender.name] = mark
            if not mark.ended:
                assert sender.node.source is not None, "a sender is a partition of a source"
                self._readers[sender.name] = await sender.node.source.open(
                    self._context, sender.partition, mark.at
                )

    @property
    def heads(self) -> Sequence[SourceStage]:
        return list(self._heads.values())

    def watermarks(self) -> dict[str, float | None]:
        """The watermark of each sender before the first read."""
        return {name: self._watermark(name) for name in self._heads}

    async def read(self, limit: int, wait_seconds: float, only: frozenset[str] | None) -> list[Arrival]:
        """Read what every partition has; if none has anything, wait for the first one that does."""
        names = [name for name in self._readers if only is None or name in only]
        arrivals = [await self._take(name, limit, 0.0) for name in names]
        if names and not any(arrival.has_news for arrival in arrivals):
            wait_each = wait_seconds / len(names)
            arrivals = [await self._take(name, limit, wait_each) for name in names]
        for arrival in arrivals:
            if arrival.mark.ended:
                await self._readers.pop(arrival.sender).close()
        return [arrival for arrival in arrivals if arrival.has_news]

    async def acknowledge(self, frontier: Frontier) -> None:
        for name, reader in list(self._readers.items()):
            at = frontier.of(name).at
            if at is not None:
                await reader.acknowledge(at)

    def taken(self) -> dict[str, int]:
        return {name: self._marks[name].count for name in self._readers}

    async def lags(self) -> dict[str, int | None]:
        lags: dict[str, int | None] = {}
        for name in list(self._readers):
            # This runs concurrently with the task, which may close its readers meanwhile.
            reader = self._readers.get(name)
            if reader is not None:
                lags[name] = await reader.lag(self._marks[name].count)
        return lags

    async def close(self) -> None:
        while self._readers:
            await self._readers.popitem()[1].close()

    async def _take(self, name: str, limit: int, wait_seconds: float) -> Arrival:
        chunk = await self._readers[name].read(limit, wait_seconds)
        head = self._heads[name]
        if name in self._timeless:
            # Lateness is decided by the other senders' watermarks: a timeless source has none of its own.
            head.restore(least([self._watermark(other) for other in self._heads]))
        with reading(name, chunk.offsets):
            runs = await head.feed(chunk.values) if chunk.values else []
        before = self._marks[name]
        at = chunk.offsets[-1] if chunk.values else before.at
        count = before.count + chunk.skipped + len(chunk.values)
        self._marks[name] = Mark(at, head.watermark, chunk.ended, count)
        watermark = self._watermark(name)
        silent = self._is_silent(name, chunk)
        return Arrival(
            name, runs, self._marks[name], watermark, len(chunk.values), chunk.traces, chunk.offsets, silent
        )

    def _is_silent(self, name: str, chunk: Chunk) -> bool:
        """Whether to tell that a partition is silent; a silence that lasts is told again."""
        silence = self._silences[name]
        if chunk.values or chunk.skipped or chunk.ended:
            silence.heard()
            return False
        if not silence.lasts():
            return False
        silence.begins_again()
        return True

    def _watermark(self, name: str) -> float | None:
        watermark = None if name in self._timeless else self._heads[name].watermark
        return END if watermark is not None and self._marks[name].ended else watermark


def opened(mark: Mark, sender: RecordSender) -> Mark:
    """Where to begin: the end of a source that goes on was only the end of that run."""
    return replace(mark, ended=False) if sender.goes_on else mark


class Task:
    """One running unit, under one lease. It is discarded after any error: the checkpoint is authoritative."""

    def __init__(
        self,
        program: FlowPlan,
        body: KeyedStage,
        committer: Committer,
        flow_input: RecordInput,
        watermarks: dict[str, float | None],
        frontier: Frontier,
        settings: FlowSettings,
        metrics: FlowMetrics,
        sends: Sends | None = None,
    ) -> None:
        self._program = program
        self._flow = program.flow.name
        self._body = body
        self._committer = committer
        self._input = flow_input
        self._watermarks = Watermarks(watermarks, frontier)
        self._senders = frozenset(watermarks)
        self._frontier = frontier
        self._taken = {
            sender: Taken(**mark.taken) for sender, mark in frontier.items() if mark.taken is not None
        }
        self._reached = frontier.reached
        self.progressed = False
        """Whether it has committed more than it started with."""
        self._settings = settings
        self._metrics = metrics
        self._uncommitted = 0
        self._commit_trace = CommitTrace(self._flow, committer.resource)
        self._late_log = LateLog(self._flow, committer.resource)
        self._moved_at: float | None = None
        """When it took in the oldest record, or end, that is not committed."""
        self._rejected = 0
        """Values that sinks rejected and that are counted."""
        self._last_commit = time.monotonic()
        self._pace = CommitPace(settings, groups=body.stage.groups, follows=committer.follows)
        self._sends = sends
        self._sent_watermark: float | None = None
        """The watermark that later stages know."""
        self._asked = asyncio.Event()
        self._clock = UnitClock()

    async def edge_stats(self) -> EdgeStats:
        """What it has done so far, for the console."""
        edges = counted(self._program, self._body.steps)
        for head in self._input.heads:
            for edge, count in counted(self._program, head.steps).items():
                edges[edge] = edges.get(edge, 0) + count
        taken = self._input.taken()
        waits = 0.0 if self._moved_at is None else time.monotonic() - self._moved_at
        return EdgeStats(
            edges,
            await self._input.lags(),
            self._clock.idle_seconds,
            taken=taken,
            uncommitted_seconds=waits,
        )

    def ask_to_commit(self) -> None:
        """Commit now, whether a commit is due or not."""
        self._asked.set()

    @property
    def ended(self) -> bool:
        return all(self._frontier.of(sender).ended for sender in self._senders)

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped, or until every sender has ended. What was read is committed before it
        returns."""
        reading: asyncio.Task[list[Arrival]] | None = None
        asked = asyncio.create_task(self._asked.wait())
        told = asyncio.create_task(stopping.wait())
        try:
            while not self.ended and not stopping.is_set():
                reading = reading or self._read()
                if asked.done() and not self._asked.is_set():
                    asked = asyncio.create_task(self._asked.wait())
                with self._clock.idle():
                    await asyncio.wait(
                        [reading, asked, told],
                        timeout=self._patience(),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                await self._tick()
                if reading.done():
                    arrivals, reading = reading.result(), None
                    if not stopping.is_set():
                        # The next chunk is read while this one is processed and committed.
                        reading = self._read()
                    await self._work(arrivals)
                if self._is_due():
                    await self._commit()
            if self._moved_at is not None:
                await self._commit()
        finally:
            asked.cancel()
            told.cancel()
            if reading is not None:
                reading.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await reading

    async def _tick(self) -> None:
        """Let windows in processing time close. When every sender has ended they close all."""
        if not self._program.has_arrival:
            return
        await self._body.tick(END if self.ended else wall_clock())
        if self._body.pending:
            self._moved_at = self._moved_at or time.monotonic()

    def _read(self) -> asyncio.Task[list[Arrival]]:
        settings = self._settings
        return asyncio.create_task(self._input.read(settings.batch, settings.interval_seconds, self._only()))

    def _only(self) -> frozenset[str] | None:
        """While too many records wait in the merge, read only the senders that they wait for: this bounds
        memory."""
        if self._body.waiting < self._settings.records_max:
            return None
        return self._watermarks.slowest()

    def _patience(self) -> float:
        """How long to wait for records before a commit is due."""
        if self._moved_at is None:
            most = TICK_SECONDS if self._program.has_arrival else END
            return min(most, self._settings.interval_seconds)
        return max(0.0, self._last_commit + self._pace.wait_seconds - time.monotonic())

    async def _work(self, arrivals: list[Arrival]) -> None:
        watermarks, moves = self._watermarks, False
        for arrival in arrivals:
            sender, floor = arrival.sender, watermarks.floor(arrival.sender)
            taken = self._taken.get(sender)
            for input_number, given in arrival.runs:
                records = given
                if taken is not None:
                    clock = self._program.clock_name(input_number)
                    records = taken.left(given, arrival.offsets, clock)
                with reading(sender, arrival.offsets, exactly=not self._body.merges):
                    await self._body.push(sender, input_number, records, floor)
            watermarks.arrived(sender, arrival.watermark, arrival.mark.watermark, silent=arrival.silent)
            if taken is not None and taken.is_passed(arrival.mark.at, arrival.mark.watermark):
                taken = None
                del self._taken[sender]
            self._frontier[sender] = replace(arrival.mark, taken=None if taken is None else taken.as_json())
            self._uncommitted += arrival.count
            self._commit_trace.saw(arrival.traces)
            # A position without a record is committed too: its sender waits for it.
            moves = moves or not arrival.silent
        if arrivals:
            moves = watermarks.settle() or moves
            # The decision that a sender is silent is stored with its effects: a replay does not take it
            # again.
            for sender in self._senders:
                mark, stored = self._frontier.of(sender), watermarks.stored_floor(sender)
                if mark.floor != stored:
                    self._frontier[sender] = replace(mark, floor=stored)
            if moves:
                self._moved_at = self._moved_at or time.monotonic()
            self._pace.read(max(arrival.count for arrival in arrivals))
            watermark = watermarks.lowest()
            await self._body.advance(watermark)
            self._metrics.saw(self._flow, sum(arrival.count for arrival in arrivals), watermark)
        if self.ended:
            await self._tick()

    def _is_due(self) -> bool:
        if self._asked.is_set() or self._moved_at is None:
            return self._asked.is_set()
        return (
            self._uncommitted >= self._settings.records_max
            or self._body.pending >= self._settings.records_max
            or self.ended
            or time.monotonic() - self._last_commit >= self._pace.wait_seconds
        )

    def _uncommitted_places(self) -> dict[str, str]:
        """The range of offsets, by stream, of the records in a commit."""
        moved = {name: at for name, at in self._frontier.reached.items() if at != self._reached.get(name)}
        spans = [f"{self._reached.get(name) or 'the beginning'} to {at}" for name, at in moved.items()]
        return {"stream": ", ".join(moved), "offset": ", ".join(spans)}

    async def _commit(self) -> None:
        began = time.monotonic()
        self._asked.clear()
        await self._body.flush()
        outputs, late = self._body.take(), self._body.take_late()
        if self._sends is not None:
            outputs.append(await self._sent(self._sends))
        try:
            with self._commit_trace.commit(self._uncommitted):
                size = await self._committer.commit(self._body, outputs, self._frontier, late)
        except Exception as error:
            blame(error, **self._uncommitted_places())
            raise
        self._reached = self._frontier.reached
        self.progressed = True
        self._metrics.late.labels(flow=self._flow).inc(len(late))
        self._count_dead(outputs)
        self._late_log.saw(late)
        records, self._uncommitted, self._moved_at = self._uncommitted, 0, None
        self._last_commit = time.monotonic()
        crash_point("flows.ack.before")
        await self._input.acknowledge(self._frontier)
        crash_point("flows.ack.after")
        seconds = self._last_commit - began
        self._pace.committed(seconds)
        self._metrics.committed(self._flow, records, sum(map(len, outputs)), seconds, size)
        announce("flows.committed")

    async def _sent(self, sends: Sends) -> list[Any]:
        """What this commit sends to later stages: they also wait for watermarks, and for the end."""
        runs, lowest = self._body.take_sent(), self._watermarks.lowest()
        # At the end of all senders the watermark is that of the end, and is no time.
        watermark = self._sent_watermark if lowest is None or not isfinite(lowest) else lowest
        if not runs and watermark == self._sent_watermark and not self.ended:
            return []
        self._sent_watermark = watermark
        return [*await sends.packed(runs, watermark, ended=self.ended)]

    def _count_dead(self, outputs: Sequence[Sequence[Any]]) -> None:
        by_steps = sum(
            len(values)
            for node, values in zip(self._body.stage.sinks, outputs, strict=False)
            if isinstance(node.sink, DeadLetterSink)
        )
        rejected, self._rejected = self._committer.rejected - self._rejected, self._committer.rejected
        self._metrics.buried(self._flow, by_steps=by_steps, by_sinks=rejected)
