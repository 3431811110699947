"""The input of a task: sources directly, or channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fencepost.flows.commit_trace import Traces
from fencepost.flows.failing import reading
from fencepost.flows.frontier import Frontier, Mark
from fencepost.flows.plan import FlowPlan, SourceStage, least
from fencepost.flows.record import END, Offset
from fencepost.flows.sinks.sink import FlowContext
from fencepost.flows.sources.source import Reader
from fencepost.flows.steps import Batch
from fencepost.flows.units import RecordSender


@dataclass(frozen=True, slots=True)
class Arrival:
    """Records of one sender by entrance, and the mark that the sender has reached with them."""

    sender: str
    runs: Sequence[tuple[int, Batch]]
    mark: Mark
    watermark: float | None
    """As the merge counts it: None for a sender without event time, END after its last record."""
    count: int
    traces: Traces = ()
    offsets: Sequence[Offset] = ()
    """The offsets of the records; each record has its index in them."""


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


class SourceInput:
    """Reads source partitions in turn, each through its own source stage."""

    def __init__(self, program: FlowPlan, senders: Sequence[RecordSender], place: FlowContext) -> None:
        self._program = program
        self._senders = senders
        self._place = place
        self._heads: dict[str, SourceStage] = {}
        self._readers: dict[str, Reader] = {}
        self._timeless = {sender.name for sender in senders if sender.timeless}
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
                    self._place, sender.partition, mark.at
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
        if names and not any(arrival.count or arrival.mark.ended for arrival in arrivals):
            wait_each = wait_seconds / len(names)
            arrivals = [await self._take(name, limit, wait_each) for name in names]
        for arrival in arrivals:
            if arrival.mark.ended:
                await self._readers.pop(arrival.sender).close()
        return [arrival for arrival in arrivals if arrival.count or arrival.mark.ended]

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
        return Arrival(
            name, runs, self._marks[name], watermark, len(chunk.values), chunk.traces, chunk.offsets
        )

    def _watermark(self, name: str) -> float | None:
        watermark = None if name in self._timeless else self._heads[name].watermark
        return END if watermark is not None and self._marks[name].ended else watermark


def opened(mark: Mark, sender: RecordSender) -> Mark:
    """Where to begin: the end of a timeless source was only the end of that run."""
    return replace(mark, ended=False) if sender.timeless else mark
