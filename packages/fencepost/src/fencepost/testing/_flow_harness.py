"""Runs a flow in memory, synchronously: returns what the sinks would get for given records and times.

    outcome = run_flow(flow, {"orders": [order(1), order(2)]})
    assert outcome.of(totals) == [("ann", 3)]
    check_flow(flow, {"orders": [order(1), order(2)]})

No server, no clock, no threads: time comes from the records. `restart_every` ends and restores all tasks
after that many batches, through the same bytes that a checkpoint stores, so it finds a step whose state does
not survive a restart. `silences` names the records before which a partition is silent, until no other has any
left. `crash_at` ends the tasks within a commit, at one of its windows: what was not durable
there is dropped, and its records are read again. `check_flow` does that at every window, and compares.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fencepost.flows._frontier import Frontier, Mark
from fencepost.flows._graph import Flow
from fencepost.flows._plan import FlowPlan, KeyedStage, SourceStage
from fencepost.flows._record import END
from fencepost.flows._shuffle import exchanged
from fencepost.flows._stages import StagePlan
from fencepost.flows._state import decode, encode
from fencepost.flows._steps import Batch
from fencepost.flows._watermarks import Watermarks
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sources._source import is_timeless
from fencepost.testing._errors import KitError, PointMissed
from fencepost.testing._flow_windows import DURABLE, windows_of

Partitions = Mapping[str, Sequence[Any]]
Inputs = Mapping[str, Sequence[Any] | Partitions]
Silences = Mapping[str, Collection[int]]


class FlowBroken(KitError):
    """With a crash, a sink gets a different output than without one."""


class FlowOutcome:
    """The output that each sink got, commit by commit."""

    def __init__(self, sinks: Sequence[Sink]) -> None:
        self._sinks = sinks
        self.commits: list[list[list[Any]]] = [[] for _ in sinks]

    def of(self, sink: Sink | int = 0) -> list[Any]:
        """Everything that a sink got, in order."""
        number = sink if isinstance(sink, int) else self._sinks.index(sink)
        return [value for values in self.commits[number] for value in values]

    def table(self, sink: Sink | int = 0) -> dict[Any, Any]:
        """The last value of each key, as in a sink that replaces by key."""
        return dict(self.of(sink))

    def add(self, taken: Sequence[Sequence[Any]]) -> None:
        """Add the values that each sink took in one commit."""
        for commits, values in zip(self.commits, taken, strict=True):
            commits.append(list(values))


class _Sender:
    def __init__(
        self, name: str, source: Any, values: Sequence[Any], head: SourceStage, silences: Collection[int]
    ) -> None:
        self.name = name
        self.source = source
        self.values = values
        self.head = head
        self.at = 0
        self.silences = silences
        self.passed = -1
        """The place of its last silence that is over."""

    @property
    def is_silent(self) -> bool:
        """Whether it waits until the others have nothing left."""
        return self.at in self.silences and self.at != self.passed and self.at < len(self.values)

    def next_values(self, limit: int) -> Sequence[Any]:
        """Up to that many, and none beyond its next silence."""
        stops = [at for at in self.silences if at > self.at]
        return (
            self.values[self.at : min(self.at + limit, *stops)] if stops else self.values[self.at :][:limit]
        )

    @property
    def watermark(self) -> float | None:
        watermark = None if is_timeless(self.source.source) else self.head.watermark
        return END if watermark is not None and self.at >= len(self.values) else watermark


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The bytes that would be stored of each keyed stage, a whole state and the changes since, and the
    position of each sender."""

    states: Sequence[Sequence[bytes]]
    marks: Sequence[tuple[int, int, float | None, float | None]]
    """Of each sender: its place, that of its last silence, its watermark and its floor."""


class _Run:
    """One run: senders take turns in a random order that a seed fixes; each turn is a commit."""

    def __init__(self, flow: Flow, inputs: Inputs, silences: Silences, clock: Callable[[], float]) -> None:
        self.program = FlowPlan(flow)
        self._clock = clock
        self.senders: list[_Sender] = []
        for node in self.program.sources:
            name = self.program.names[node]
            if is_timeless(node.source) and name not in inputs:
                continue
            given = inputs[name]
            partitions: Partitions = given if isinstance(given, Mapping) else {"0": given}
            for partition, values in sorted(partitions.items()):
                name = f"{self.program.names[node]}/{partition}"
                head = SourceStage(self.program, node)
                self.senders.append(_Sender(name, node, values, head, silences.get(name, ())))
        unknown = silences.keys() - {sender.name for sender in self.senders}
        if unknown:
            raise PointMissed(f"{sorted(unknown)} are no partitions of {flow.name}, so none was silent.")
        self.stages = self._new_stages()
        self.watermarks = self._watermarks(Frontier())
        self.outcome = FlowOutcome(self.program.sinks)
        self._states: dict[KeyedStage, Sequence[bytes]] = {}

    @property
    def waiting(self) -> list[_Sender]:
        """The senders that have something. When all others are silent, silence is over."""
        left = [sender for sender in self.senders if sender.at < len(sender.values)]
        if left and all(sender.is_silent for sender in left):
            for sender in left:
                sender.passed = sender.at
                self._tell(self.watermarks, sender)
        return [sender for sender in left if not sender.is_silent]

    def _watermarks(self, frontier: Frontier) -> Watermarks:
        watermarks = Watermarks({sender.name: sender.watermark for sender in self.senders}, frontier)
        for sender in self.senders:
            self._tell(watermarks, sender)
        return watermarks

    def _tell(self, watermarks: Watermarks, sender: _Sender) -> None:
        silent = sender.is_silent and self.program.idle_seconds(sender.source) is not None
        watermarks.arrived(sender.name, sender.watermark, sender.head.watermark, silent=silent)

    async def turn(self, sender: _Sender, limit: int) -> list[list[Any]]:
        """Process up to `limit` records; returns the outputs for the sinks."""
        values = sender.next_values(limit)
        sender.at += len(values)
        floor = self.watermarks.floor(sender.name)
        now, runs = self._clock(), await sender.head.feed(values)
        self._tell(self.watermarks, sender)
        self.watermarks.settle()
        is_end = all(each.at >= len(each.values) for each in self.senders)
        outputs: dict[Any, list[Any]] = {}
        sent: list[tuple[str, int, Batch]] = []
        for stage in self.stages:
            await stage.tick(now)
            if self.program.feeds(sender.source, stage.stage):
                for number, records in runs:
                    if stage.takes(number):
                        await stage.push(sender.name, number, self._exchanged(number, records), floor)
            for name, number, records in sent:
                if stage.takes(number):
                    await stage.push(name, number, self._exchanged(number, records))
            # A stage is as far as all sources: those before it have emitted what they had until there.
            await stage.advance(self.watermarks.lowest())
            if is_end:
                await stage.tick(END)
            await stage.flush()
            sent += [(f"stage-{stage.stage.number}", *run) for run in stage.take_sent()]
            outputs |= dict(zip(stage.stage.sinks, stage.take(), strict=True))
        return [outputs[node] for node in self.program.flow.sinks]

    def _new_stages(self) -> list[KeyedStage]:
        return [
            KeyedStage(self.program, senders=self._senders(stage), stage=stage)
            for stage in self.program.stages
        ]

    def _senders(self, stage: StagePlan) -> int:
        """How many senders a stage has: the partitions that come to it, and the stages before it."""
        partitions = sum(self.program.feeds(sender.source, stage) for sender in self.senders)
        return partitions + sum(stage.receives_from(other) for other in self.program.stages)

    def _exchanged(self, input_number: int, records: Batch) -> Batch:
        """With key groups, records pass through the bytes of a channel: finds a record that would not survive
        it."""
        return records if self.program.groups is None else exchanged(self.program, input_number, records)

    def stored(self, outputs: list[list[Any]]) -> list[list[Any]]:
        """The outputs that recovery gives to the sinks: for those that follow the commit, the
        checkpoint's."""
        staged = {place: values for place, values in enumerate(outputs) if self.program.sinks[place].staged}
        return [
            decode(encode(None, staged=staged)).staged.get(place, values)
            for place, values in enumerate(outputs)
        ]

    def checkpoint(self) -> _Checkpoint:
        """As a task stores it: the whole state first, and then what has changed."""
        marks = [
            (sender.at, sender.passed, sender.head.watermark, self.watermarks.stored_floor(sender.name))
            for sender in self.senders
        ]
        for stage in self.stages:
            document = stage.changed() if stage in self._states else stage.whole()
            self._states[stage] = (*self._states.get(stage, ()), encode(document))
            stage.clean()
        return _Checkpoint([self._states[stage] for stage in self.stages], marks)

    async def restore(self, checkpoint: _Checkpoint) -> None:
        """Restores as another process would: with new steps, from the bytes."""
        self.stages = self._new_stages()
        self._states = dict(zip(self.stages, checkpoint.states, strict=True))
        for stage, states in self._states.items():
            stored = [decode(state).body for state in states]
            await stage.load([document for document in stored if document is not None])
            stage.clean()
        frontier = Frontier()
        for sender, (at, passed, watermark, floor) in zip(self.senders, checkpoint.marks, strict=True):
            sender.at, sender.passed = at, passed
            sender.head = SourceStage(self.program, sender.source)
            sender.head.restore(watermark)
            frontier[sender.name] = Mark(at, watermark, floor=floor)
        self.watermarks = self._watermarks(frontier)


@dataclass(frozen=True, slots=True)
class _Crash:
    """A crash at one window of the nth commit, or of every commit."""

    window: str
    nth: int | None

    @property
    def is_durable(self) -> bool:
        """Whether the checkpoint of that commit is stored: then recovery completes the commit, and it is not
        repeated."""
        return self.window in DURABLE

    def strikes(self, commit: int, *, is_repeat: bool) -> bool:
        return commit == self.nth or (self.nth is None and not is_repeat)


def run_flow(
    flow: Flow,
    inputs: Inputs,
    *,
    batch: int = 100,
    seed: int = 0,
    restart_every: int | None = None,
    crash_at: str | None = None,
    nth: int | None = 1,
    silences: Silences | None = None,
    clock: Callable[[], float] = float,
) -> FlowOutcome:
    """Run to the end. `inputs` are values by the name of the source, or by partition below it.

    `silences` are by "source/partition": before which records it is silent, as `idle_after` means it.
    `clock` is asked once for each batch, for windows in processing time.

    `crash_at` is a crash point of a commit, reached in the nth one, or in every one with `nth=None`.
    """
    run = _Run(flow, inputs, silences or {}, clock)
    crash = None
    if crash_at is not None:
        windows = windows_of(*run.program.sinks)
        if crash_at not in windows:
            raise PointMissed(f"A commit of {flow.name} does not come to {crash_at}, but to {windows}.")
        crash = _Crash(crash_at, nth)
    return asyncio.run(_run(run, batch, random.Random(seed), restart_every, crash))  # noqa: S311


async def _run(
    run: _Run, batch: int, chance: random.Random, restart_every: int | None, crash: _Crash | None
) -> FlowOutcome:
    commits = 0
    is_repeat = crashed = False
    durable = run.checkpoint()
    while waiting := run.waiting:
        # Records that are read again after a crash are batched differently than before.
        limit = chance.randint(1, batch) if is_repeat else batch
        outputs = await run.turn(chance.choice(waiting), limit)
        commits += 1
        strikes = crash is not None and crash.strikes(commits, is_repeat=is_repeat)
        crashed = crashed or strikes
        is_repeat = strikes and crash is not None and not crash.is_durable
        if is_repeat:
            await run.restore(durable)
            continue
        if strikes:
            outputs = run.stored(outputs)
        run.outcome.add(outputs)
        if crash is not None:
            durable = run.checkpoint()
        if strikes:
            await run.restore(durable)
        elif restart_every is not None and commits % restart_every == 0:
            await run.restore(run.checkpoint())
    if crash is not None and not crashed:
        raise PointMissed(f"{crash.window} was not reached {crash.nth} times: there were {commits} commits.")
    return run.outcome


def check_flow(
    flow: Flow,
    inputs: Inputs,
    *,
    batch: int = 10,
    seed: int = 0,
    key: Callable[[Any], Any] | None = None,
    silences: Silences | None = None,
) -> FlowOutcome:
    """Raise FlowBroken if a crash in any window of any commit changes the final output of a sink.

    A sink that replaces by key must have the same table, any other the same values: in the same order
    with one source partition, in the same order per key if `key` is given, and in any order with several
    partitions. Returns the outcome of a run without faults.
    """
    program = FlowPlan(flow)
    expected = run_flow(flow, inputs, batch=batch, seed=seed, silences=silences)
    for window in windows_of(*program.sinks):
        found = run_flow(flow, inputs, batch=batch, seed=seed, crash_at=window, nth=None, silences=silences)
        for number, sink in enumerate(program.sinks):
            wanted, given = (_comparable(each, number, sink, inputs, key) for each in (expected, found))
            if wanted != given:
                raise FlowBroken(
                    f"Crashed at {window} of every commit, {type(sink).__name__} ({number}) has "
                    f"{_differing(given, wanted)}, and without a crash {_differing(wanted, given)}."
                )
    return expected


def _comparable(
    outcome: FlowOutcome, number: int, sink: Sink, inputs: Inputs, key: Callable[[Any], Any] | None
) -> list[Any]:
    """The output that must be equal, as a list."""
    if sink.keyed:
        return sorted(outcome.table(number).items(), key=repr)
    values = outcome.of(number)
    partitions = sum(len(given) if isinstance(given, Mapping) else 1 for given in inputs.values())
    if partitions > 1:
        return sorted(values, key=repr)
    return values if key is None else sorted(values, key=lambda value: repr(key(value)))


def _differing(values: list[Any], others: list[Any]) -> str:
    """The position of the first difference, and the number of differences."""
    at = next((i for i, pair in enumerate(zip(values, others, strict=False)) if pair[0] != pair[1]), None)
    at = min(len(values), len(others)) if at is None else at
    shown = repr(values[at]) if at < len(values) else "no more"
    return f"{len(values)} values, the {at + 1}. of them {shown}"
