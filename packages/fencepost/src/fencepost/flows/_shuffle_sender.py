"""A unit that reads one source partition, or the log of one key group of a keyed stage, and sends its records
to the key groups of the next stages.

It commits nothing: it begins at the lowest frontier of the receivers, and may begin there again at any time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fencepost.crashpoints import crash_point
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._edge_stats import EdgeStats, UnitClock, counted
from fencepost.flows._failing import reading
from fencepost.flows._frontier import Frontier, Mark, least_mark
from fencepost.flows._metrics import FlowMetrics
from fencepost.flows._plan import FlowPlan, SourceStage
from fencepost.flows._record import END, Offset, is_after
from fencepost.flows._settings import FlowSettings
from fencepost.flows._shuffle import ChannelLost, ChannelSender, entries_for
from fencepost.flows._stage_log import StageHead, StageReader
from fencepost.flows._task import opened
from fencepost.flows._units import RecordSender, Spread
from fencepost.flows._watermarks import Silence
from fencepost.flows.sinks._sink import FlowContext
from fencepost.flows.sources._source import Chunk, Reader
from fencepost.kernel import lease as kernel_lease
from fencepost.kernel.call import CallRunner
from fencepost.kernel.lease import Lease
from fencepost.signals import announce

FULL_SECONDS = 0.02
CHECK_SECONDS = 1.0


class ShuffleSender:
    """Sends the records of one sender to all its receivers."""

    def __init__(
        self,
        program: FlowPlan,
        sender: RecordSender,
        lease: Lease,
        context: FlowContext,
        redis: Any,
        settings: FlowSettings,
        metrics: FlowMetrics,
        edition: int,
    ) -> None:
        assert program.groups is not None, "records are forwarded to key groups"
        self._program = program
        self._spread = Spread.of(program, sender)
        self._sender = sender
        self._lease = lease
        self._context = context
        self._redis = redis
        self._settings = settings
        self._metrics = metrics
        self._edition = edition
        self.ended = False
        self.progressed = False
        """Whether it has advanced past the position where it began."""
        self.reader: Reader | None = None
        self.head: SourceStage | StageHead | None = None
        self.clock = UnitClock()
        self._count = 0
        self._silence = Silence(program.idle_seconds(sender.node))

    async def run(self, stopping: asyncio.Event) -> None:
        """Run until stopped, or until every receiver has committed the end of the partition."""
        while not stopping.is_set() and not self.ended:
            try:
                await self._forward(stopping)
            except ChannelLost:
                self._metrics.rewinds.labels(flow=self._program.flow.name).inc()
                announce("flows.rewound")

    async def edge_stats(self) -> EdgeStats:
        """What it has sent so far, for the console."""
        reader, head = self.reader, self.head
        taken, sender = self._count, self._sender.name
        lag = None if reader is None else await reader.lag(taken)
        edges = {} if head is None else counted(self._program, head.steps)
        clock = self.clock
        # Rows of a stage are no records of a source, and do not count in its lag.
        of_source = {} if self._sender.stage else {sender: taken}
        return EdgeStats(edges, {sender: lag}, clock.idle_seconds, clock.blocked_seconds, of_source)

    async def _forward(self, stopping: asyncio.Event) -> None:
        fp: CallRunner = self._context.fp
        # A zombie must not empty channels that its successor fills.
        await fp.run(kernel_lease.fence(self._lease.resource, self._lease.token))
        start = opened(least_mark(await self._taken()), self._sender)
        self.ended = start.ended
        if self.ended:
            return
        head = self._head()
        head.restore(start.watermark)
        channel = ChannelSender(
            self._redis,
            self._program.flow.name,
            self._sender.name,
            [receiver.channel for receiver in self._spread.receivers],
            self._settings.channel_length,
            self._edition,
        )
        await channel.begin()
        crash_point("flows.forward.after_begin")
        reader = await self._open(start.at)
        try:
            self.reader, self.head, self._count = reader, head, start.count
            await self._pump(reader, head, channel, start.at, stopping)
        finally:
            self.reader = None
            await reader.close()

    def _head(self) -> SourceStage | StageHead:
        if self._sender.stage:
            return StageHead(self._program, self._sender)
        return SourceStage(self._program, self._sender.node, paced=True)

    async def _open(self, after: Offset | None) -> Reader:
        if self._sender.stage:
            return await StageReader.open(self._context, self._sender, after)
        assert self._sender.node.source is not None, "a sender is a partition of a source"
        return await self._sender.node.source.open(self._context, self._sender.partition, after)

    async def _pump(
        self,
        reader: Reader,
        head: SourceStage | StageHead,
        channel: ChannelSender,
        sent: Offset | None,
        stopping: asyncio.Event,
    ) -> None:
        checked_at = time.monotonic()
        chunk = Chunk((), ())
        while not stopping.is_set():
            if not chunk.ended:
                with self.clock.idle():
                    chunk = await reader.read(self._settings.batch, CHECK_SECONDS / 4)
                if chunk.values or chunk.ended:
                    self._silence.heard()
                    await self._send(head, channel, chunk, sent, stopping)
                    self.progressed = True
                    sent = chunk.offsets[-1] if chunk.values else sent
                elif self._silence.lasts():
                    self._silence.begins_again()
                    await self._tell_silence(head, channel, sent)
            else:
                await asyncio.sleep(FULL_SECONDS)
            if time.monotonic() - checked_at > CHECK_SECONDS or chunk.ended:
                checked_at = time.monotonic()
                taken = await self._taken()
                least = least_mark(taken)
                # A source that goes on may have ended before: that end does not count if more was sent since.
                self.ended = chunk.ended and least.ended and (sent is None or not is_after(sent, least.at))
                if self.ended:
                    return
                if least.at is not None:
                    await reader.acknowledge(least.at)
                if not chunk.values or chunk.ended:
                    await channel.check(sent, taken)

    async def _send(
        self,
        head: SourceStage | StageHead,
        channel: ChannelSender,
        chunk: Chunk,
        after: Offset | None,
        stopping: asyncio.Event,
    ) -> None:
        with reading(self._sender.name, chunk.offsets):
            runs = await head.feed(chunk.values) if chunk.values else []
        self._count += chunk.skipped + len(chunk.values)
        at = chunk.offsets[-1] if chunk.values else after
        mark = Mark(at, head.watermark, chunk.ended, self._count)
        watermark = END if head.watermark is not None and chunk.ended else head.watermark
        left = entries_for(
            runs, chunk.offsets, self._spread, after, mark, watermark, chunk.traces, self._program.declared()
        )
        crash_point("flows.forward.before_send")
        while left and not stopping.is_set():
            full = await channel.send(left)
            left = {group: left[group] for group in full}
            if left:
                with self.clock.blocked():
                    await asyncio.sleep(FULL_SECONDS)
        crash_point("flows.forward.after_send")

    async def _tell_silence(
        self, head: SourceStage | StageHead, channel: ChannelSender, sent: Offset | None
    ) -> None:
        """Tell the groups that nothing came: an entry that ends where it begins. A group whose channel is
        full is told the next time."""
        mark = Mark(sent, head.watermark, ended=False, count=self._count)
        await channel.send(entries_for((), (), self._spread, sent, mark, head.watermark))
        announce("flows.silent")

    async def _taken(self) -> list[Mark]:
        """The mark of this sender that each group has committed. Raises mismatch when another edition of the
        flow runs: the groups of that edition do not read these channels."""
        flow = self._program.flow.name
        await self._context.fp.run(flow_store.check_edition(flow, self._edition))
        found = {each.resource: each for each in await self._context.fp.run(flow_store.frontiers(flow))}
        resources = [receiver.resource(flow) for receiver in self._spread.receivers]
        return [
            Frontier.from_json(found[resource].frontier if resource in found else None).of(self._sender.name)
            for resource in resources
        ]
