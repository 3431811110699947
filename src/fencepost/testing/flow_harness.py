"""A flow in memory, synchronously: given records and their times, what would the sinks have got?

    outcome = run_flow(flow, {"orders": [order(1), order(2)]})
    assert outcome.of(totals) == [("ann", 3)]

No server, no clock, no threads. `restart_every` ends and restores all tasks after so many batches, through
the same bytes that a checkpoint stores: a step whose state does not survive that is found here.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Any

from fencepost.flows.graph import Flow
from fencepost.flows.program import Body, Head, Program, decode, encode, least
from fencepost.flows.record import END
from fencepost.flows.sinks.sink import Sink
from fencepost.flows.sources.source import is_timeless
from fencepost.flows.state import as_key, pack, unpack
from fencepost.flows.steps import Batch

Partitions = Mapping[str, Sequence[Any]]


class FlowOutcome:
    """What each sink got, commit by commit."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self.commits: list[list[list[Any]]] = [[] for _ in sinks]

    def of(self, sink: Sink | int = 0) -> list[Any]:
        """Everything that a sink got, in order."""
        number = sink if isinstance(sink, int) else self._sinks.index(sink)
        return [value for values in self.commits[number] for value in values]

    def table(self, sink: Sink | int = 0) -> dict[Any, Any]:
        """The last value of each key, as a sink that replaces by key has it."""
        return dict(self.of(sink))

    def add(self, taken: Sequence[Sequence[Any]]) -> None:
        for commits, values in zip(self.commits, taken, strict=True):
            commits.append(list(values))


class _Sender:
    def __init__(self, name: str, source: Any, values: Sequence[Any], head: Head) -> None:
        self.name = name
        self.source = source
        self.values = values
        self.head = head
        self.at = 0

    @property
    def watermark(self) -> float | None:
        watermark = None if is_timeless(self.source.source) else self.head.watermark
        return END if watermark is not None and self.at >= len(self.values) else watermark


class _Run:
    """One run: senders take turns in a random order that a seed fixes; each turn is a commit."""

    def __init__(self, flow: Flow, inputs: Mapping[str, Sequence[Any] | Partitions], batch: int) -> None:
        self.program = Program(flow)
        self.senders: list[_Sender] = []
        for node in self.program.sources:
            name = self.program.names[node]
            if is_timeless(node.source) and name not in inputs:
                continue
            given = inputs[name]
            partitions: Partitions = given if isinstance(given, Mapping) else {"0": given}
            for partition, values in sorted(partitions.items()):
                name = f"{self.program.names[node]}/{partition}"
                self.senders.append(_Sender(name, node, values, Head(self.program, node)))
        self.body = Body(self.program, senders=len(self.senders))
        self.outcome = FlowOutcome(self.program.sinks)
        self._batch = batch

    async def turn(self, sender: _Sender) -> None:
        values = sender.values[sender.at : sender.at + self._batch]
        sender.at += len(values)
        for entrance, records in await sender.head.feed(values):
            await self.body.push(sender.name, entrance, self._exchanged(entrance, records))
        await self.body.advance(least([each.watermark for each in self.senders]))
        await self.body.flush()
        self.outcome.add(self.body.take())

    def _exchanged(self, entrance: int, records: Batch) -> Batch:
        """With key groups records arrive as plain data: a step that expects more is found here."""
        if self.program.groups is None:
            return records
        revive = self.program.revivers()[entrance]
        return [(revive(value), as_key(key), time, at) for value, key, time, at in unpack(pack(records))]

    def restart(self) -> None:
        stored = encode(self.body.whole())
        self.body = Body(self.program, senders=len(self.senders))
        self.body.load([decode(stored)])
        for sender in self.senders:
            watermark = sender.head.watermark
            sender.head = Head(self.program, sender.source)
            sender.head.restore(watermark)


def run_flow(
    flow: Flow,
    inputs: Mapping[str, Sequence[Any] | Partitions],
    *,
    batch: int = 100,
    seed: int = 0,
    restart_every: int | None = None,
) -> FlowOutcome:
    """Run to the end. `inputs` are values by the name of the source, or by partition below it."""
    return asyncio.run(_run(flow, inputs, batch, random.Random(seed), restart_every))  # noqa: S311


async def _run(
    flow: Flow,
    inputs: Mapping[str, Sequence[Any] | Partitions],
    batch: int,
    dice: random.Random,
    restart_every: int | None,
) -> FlowOutcome:
    run = _Run(flow, inputs, batch)
    turns = 0
    waiting: list[_Sender] = [sender for sender in run.senders if sender.values]
    while waiting:
        sender = dice.choice(waiting)
        await run.turn(sender)
        turns += 1
        if restart_every is not None and turns % restart_every == 0:
            run.restart()
        waiting = [sender for sender in waiting if sender.at < len(sender.values)]
    return run.outcome
