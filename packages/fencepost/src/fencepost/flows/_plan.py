"""A graph prepared to run: source stages, which read source partitions, and keyed stages, which hold state
and sinks.

A source stage is everything before the first `key_by`: its only state is the watermark of its partition. Its
borders (a `key_by`, or a sink that follows without one) are the inputs of a keyed stage. Both stages may
run in one task, or in many tasks with channels between them: neither depends on which. With key groups, each
further `key_by` is the border to another keyed stage; without them, one keyed stage has them all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from fencepost.flows._errors import GraphRefused, StateMismatch
from fencepost.flows._graph import Flow
from fencepost.flows._layout import Layout
from fencepost.flows._merge import TimeMerge
from fencepost.flows._node import GraphNode
from fencepost.flows._parts import Part
from fencepost.flows._record import END, Behind, Record, settle, under
from fencepost.flows._segments import (
    Convert,
    PackedPair,
    SegmentChain,
    bucket_of,
    key_of,
    packed_key,
    value_of,
    with_key,
)
from fencepost.flows._spill import Spill
from fencepost.flows._stages import StagePlan, first_windows, stages_of
from fencepost.flows._state import Document, as_key, pieces, reviver
from fencepost.flows._step_identity import PYTHON, derived_name, fingerprint
from fencepost.flows._steps import AdaptiveBatch, Batch, Chain, Collect, EventTime, Pass, Step, push
from fencepost.flows._value_codec import flat, pack, unpack, unpack_plain
from fencepost.flows._windows import Gathering, Interval, Session
from fencepost.flows.sinks._sink import Sink
from fencepost.flows.sources._source import is_timeless

HEAD, BORDER, BODY = "head", "border", "body"


class FlowPlan:
    """What all tasks of a flow share: the nodes in order, their names, and the stage of each."""

    def __init__(self, flow: Flow) -> None:
        if not flow.sinks:
            raise GraphRefused(f"The flow {flow.name} has no sink: end a branch with .sink(...).")
        self.flow = flow
        self.nodes = flow.nodes()
        self.sections = self._divide()
        self.places = self._places()
        self.names = self._names()
        self.sources = [node for node in self.nodes if node.source is not None]
        self.borders = [node for node in self.nodes if self.sections[node] == BORDER]
        self.stages = self._stages()
        self.sinks: list[Sink] = [node.sink for node in flow.sinks if node.sink is not None]
        self._check()

    @cached_property
    def is_keyed(self) -> bool:
        return any(node.kind == "key_by" for node in self.borders)

    @cached_property
    def is_one(self) -> bool:
        """Whether, without key groups, one keyed stage takes every partition."""
        return self.is_keyed or any(section == BODY for section in self.sections.values())

    @cached_property
    def groups(self) -> int | None:
        """The number of key groups of the first keyed stage; None without key groups."""
        return self.stages[0].groups

    @property
    def has_shuffles(self) -> bool:
        """Whether one keyed stage sends to another."""
        return len(self.stages) > 1

    def enters(self, border: GraphNode) -> bool:
        """Whether records come to a border from sources, and not from another keyed stage."""
        return all(self.sections[parent] == HEAD for parent in border.parents)

    def feeds(self, source: GraphNode, stage: StagePlan) -> bool:
        """Whether records of a source come to a keyed stage through none before it."""
        if not self.has_shuffles:
            return True
        borders = (self.borders[number] for number in stage.inputs)
        return any(self.enters(border) and source in border.ancestors() for border in borders)

    def sources_of(self, stage: StagePlan) -> list[GraphNode]:
        """The sources whose records come to a keyed stage, also through others."""
        found = [source for source in self.sources if self.feeds(source, stage)]
        for other in self.stages:
            found += self.sources_of(other) if stage.receives_from(other) else []
        return list(dict.fromkeys(found))

    def is_timed(self, source: GraphNode) -> bool:
        """Whether records of a source are in event time, so that its watermark counts."""
        if is_timeless(source.source):
            return False
        return any(node.kind == "event_time" and source in node.ancestors() for node in self.nodes)

    def stage_is_timed(self, number: int) -> bool:
        """Whether a keyed stage has a watermark: something that it receives is in event time."""
        return any(self.is_timed(source) for source in self.sources_of(self.stages[number - 1]))

    @cached_property
    def has_time(self) -> bool:
        return any(node.kind == "event_time" for node in self.nodes)

    def revivers(self) -> list[Callable[[Any], Any]]:
        """For each input: a function from what was stored or sent to what the steps work with."""
        return [*(reviver(border.value) for border in self.borders), reviver(None)]

    def declared(self) -> list[bool]:
        """For each input, and for that of late records: whether the type of its values is declared."""
        return [*(border.value is not None for border in self.borders), False]

    @property
    def late_input(self) -> int:
        """The input through which late records are counted: the number after the borders."""
        return len(self.borders)

    def windows_behind(self, clock: GraphNode) -> list[Gathering]:
        """The windows that records of an event_time reach."""
        return [
            node.window
            for node in self.nodes
            if node.window is not None and not node.by_arrival and clock in node.ancestors()
        ]

    def windows_decide(self, clock: GraphNode) -> bool:
        """Whether only the windows can decide what is late: sessions are open by key, an interval by side,
        and several windows must agree."""
        windows = self.windows_behind(clock)
        decided = len(windows) > 1 or any(isinstance(window, Session | Interval) for window in windows)
        return decided or self.may_idle(clock)

    def may_idle(self, clock: GraphNode) -> bool:
        """Whether a silent partition of it lets others pass: then only the task that receives from all of
        them knows what a record came behind."""
        return clock.idle_seconds is not None and any(
            node.kind == "key_by" and clock in node.ancestors() for node in self.nodes
        )

    def idle_seconds(self, source: GraphNode) -> float | None:
        """After how long a partition of this source is silent: the longest time, or None if one of the clocks
        behind it has none."""
        clocks = [n for n in self.nodes if n.kind == "event_time" and source in n.ancestors()]
        times = [clock.idle_seconds if self.may_idle(clock) else None for clock in clocks]
        known = [seconds for seconds in times if seconds is not None]
        return max(known) if known and len(known) == len(times) else None

    def clock_name(self, input_number: int) -> str | None:
        """The name of the event_time of an input; None without one."""
        clock = self.clock_of(self.borders[input_number]) if input_number < len(self.borders) else None
        return None if clock is None else self.names[clock]

    def clock_of(self, border: GraphNode) -> GraphNode | None:
        """The event_time that set the times of an input's records."""
        return next((n for n in reversed(list(border.ancestors())) if n.kind == "event_time"), None)

    def is_late(self, clock: GraphNode) -> Callable[[float, float], bool]:
        """Whether a time is late for a watermark, as far as the two alone decide it. Without windows it
        is."""
        windows = self.windows_behind(clock)
        if self.windows_decide(clock):
            return lambda time, watermark: False
        fixed = [window for window in windows if not isinstance(window, Session | Interval)]
        return lambda time, watermark: all(window.last_end(time) <= watermark for window in fixed)

    @cached_property
    def has_arrival(self) -> bool:
        """Whether a window gathers records by when they are processed."""
        return any(node.by_arrival for node in self.nodes)

    def must_merge(self, senders: int, stage: StagePlan | None = None) -> bool:
        """Whether records must be ordered before a keyed stage: its result, or that of a stage behind it,
        depends on their order, and no other part orders them."""
        stage = stage or self.stages[0]
        if not self.has_time:
            return False
        behind = [
            *stage.nodes,
            *(n for each in self.stages if each.number > stage.number for n in each.nodes),
        ]
        ordered = behind if stage.outputs else stage.nodes
        return any(node.timers for node in stage.nodes) or (
            senders > 1 and any(node.ordered for node in ordered)
        )

    def decides_in(self, clock: GraphNode) -> StagePlan:
        """The keyed stage in which it is known which records of an event_time are late."""
        found = [
            stage
            for stage in self.stages
            if any(
                self.clock_of(self.borders[n]) is clock and self.enters(self.borders[n]) for n in stage.inputs
            )
        ]
        windows = [node for node in first_windows(self.nodes, clock) if not node.by_arrival]
        deciding = [stage for stage in self.stages if stage.nodes.intersection(windows)]
        return [*deciding, *found, self.stages[0]][0]

    def versions(self) -> dict[str, int]:
        return {self.names[node]: node.version for node in self.nodes if node.needs_key}

    def picture(self) -> dict[str, Any]:
        """The graph as data, for the console."""
        numbers = {node: number for number, node in enumerate(self.nodes)}
        return {
            "nodes": [
                {
                    "name": self.names[n],
                    "kind": n.kind,
                    "section": self.sections[n],
                    "place": self.places[n],
                    **self._stage_of(n),
                }
                for n in self.nodes
            ],
            "edges": [[numbers[p], numbers[n]] for n in self.nodes for p in n.parents],
        }

    def _stages(self) -> list[StagePlan]:
        numbers = {border: number for number, border in enumerate(self.borders)}
        body = [node for node in self.nodes if self.sections[node] == BODY]
        return stages_of(self, numbers, body)

    @property
    def is_grouped(self) -> bool:
        return any(node.groups is not None for node in self.nodes)

    def _divide(self) -> dict[GraphNode, str]:
        sections: dict[GraphNode, str] = {}
        for node in self.nodes:
            above = {sections[parent] for parent in node.parents}
            if node.side == "late" and self.windows_decide(node.parents[0]):
                sections[node] = BODY
            elif (node.kind in ("key_by", "sink") and above == {HEAD}) or (
                node.kind == "key_by" and self.is_grouped and HEAD not in above
            ):
                sections[node] = BORDER
            elif above <= {HEAD} or (node.side == "errors" and _follows_sources(node.parents[0], sections)):
                sections[node] = HEAD
            elif HEAD in above:
                raise GraphRefused(
                    f"A {node.kind} takes a keyed and an unkeyed stream. Key both, or neither."
                )
            else:
                sections[node] = BODY
        return sections

    def _names(self) -> dict[GraphNode, str]:
        """The given name; for a step with state, one derived from its place, so that it is stable; for others
        the kind and its number."""
        names = {
            node: derived_name(node) if node.needs_key and not node.name else self.places[node]
            for node in self.nodes
        }
        several = sorted({name for name in names.values() if list(names.values()).count(name) > 1})
        if several:
            raise GraphRefused(
                f"Two steps of {self.flow.name} have one name: {', '.join(several)}. Steps with state "
                f"that do the same "
                "in the same place cannot be told apart by themselves: give each a name= of its own."
            )
        return names

    def _places(self) -> dict[GraphNode, str]:
        """The given name, or the kind and its number in the graph."""
        places: dict[GraphNode, str] = {}
        for node in self.nodes:
            number = 1 + sum(1 for other in places if other.kind == node.kind)
            places[node] = node.name or f"{node.kind}-{number}"
        return places

    def steps(self) -> dict[str, Any]:
        """The steps with state, by name: the database compares them with the stored ones."""
        return {
            self.names[node]: {
                "kind": node.kind,
                "version": node.version,
                "window": node.gathers,
                "given": bool(node.name),
                "place": self.places[node],
                "print": fingerprint(node),
                "python": PYTHON,
                **self._stage_of(node),
            }
            for node in self.nodes
            if node.needs_key
        }

    def _stage_of(self, node: GraphNode) -> dict[str, int]:
        """The keyed stage that a node belongs to, for what is stored: left out where there is only one."""
        found = [s.number for s in self.stages if node in s.nodes or self._is_input(node, s)]
        return {"stage": found[0]} if self.has_shuffles and found else {}

    def _is_input(self, node: GraphNode, stage: StagePlan) -> bool:
        return any(self.borders[number] is node for number in stage.inputs)

    def inputs(self) -> list[str]:
        """The borders by stable names. Two borders with the same name get the same records."""
        found: list[str] = []
        for border in self.borders:
            name = derived_name(border)
            found.append(f"{name}-{found.count(name)}" if name in found else name)
        return found

    def _check(self) -> None:
        groups = self.groups
        if self.is_grouped and any(stage.groups is None for stage in self.stages):
            raise GraphRefused(
                "One key_by of the flow has groups and another has none. Give each its groups, or none: then "
                "one task keeps all keys of all of them."
            )
        for node in self.nodes:
            if node.needs_time and not all(self._is_timed(border) for border in self._inputs_of(node)):
                raise GraphRefused(
                    f"{self.names[node]} works in event time: put .event_time(...) before key_by."
                )
            if groups is None:
                continue
            if is_timeless(node.source) and self.has_time:
                raise GraphRefused(
                    "Dead letters come back into a flow in event time only without key groups: which windows "
                    "are closed differs between groups. Leave groups out, or end with .errors.sink(...); "
                    "what a sink rejects is kept without coming back by DeadLetters(name, replays=False)."
                )
            gathers = node.window is not None and not node.by_arrival
            if gathers and any(other.at_commit for other in node.ancestors()):
                raise GraphRefused(
                    f"{self.names[node]} works in event time, and a fold before it emits once per commit, "
                    "which has no event time. Use emit='each', or a window."
                )
            if node.kind == "enrich" and self.sections[node] == HEAD:
                raise GraphRefused(
                    "enrich stands before key_by with groups: a replay may enrich otherwise, and a record "
                    "could change its group in between. Put it behind key_by."
                )

    def _inputs_of(self, node: GraphNode) -> list[GraphNode]:
        return [other for other in node.ancestors() if self.sections[other] == BORDER]

    def _is_timed(self, border: GraphNode) -> bool:
        return border.is_behind("event_time")


def _follows_sources(node: GraphNode, sections: Mapping[GraphNode, str]) -> bool:
    """Whether a node is a border that sources lead to."""
    return sections[node] == BORDER and all(sections[parent] == HEAD for parent in node.parents)


class Wiring:
    """Steps for some of the nodes, connected as the nodes are."""

    def __init__(self, program: FlowPlan, nodes: Sequence[GraphNode]) -> None:
        self.steps: dict[GraphNode, Step] = {}
        for node in nodes:
            step = Collect() if node.sink is not None else node.make()
            step.name = program.names[node]
            self.steps[node] = step
            for port, parent in enumerate(node.parents):
                if parent in self.steps:
                    _connect(self.steps[parent], step, node.side, port)


def _connect(parent: Step, step: Step, side: str, port: int) -> None:
    if side == "late":
        assert isinstance(parent, EventTime), "lateness exists only in event time"
        parent.late.append((step, port))
    elif side == "errors":
        parent.errors.append((step, port))
    else:
        parent.outs.append((step, port))


class SourceStage:
    """Processes one source partition up to the borders. `paced` lets other tasks run in between."""

    def __init__(self, program: FlowPlan, source: GraphNode, *, paced: bool = False) -> None:
        reached = {source}
        for node in program.nodes:
            if program.sections[node] == BODY or not any(parent in reached for parent in node.parents):
                continue
            if program.sections[node] == HEAD or program.enters(node):
                reached.add(node)
        nodes = [node for node in program.nodes if node in reached]
        self._wiring = Wiring(program, nodes)
        self._entry = self._wiring.steps[source]
        self._ends: list[tuple[int, Collect]] = []
        for number, border in enumerate(program.borders):
            if border in reached:
                self._ends.append((number, self._end_of(border)))
        self.steps: Mapping[GraphNode, Step] = self._wiring.steps
        self._clocks = [step for step in self._wiring.steps.values() if isinstance(step, EventTime)]
        self._late = Collect()
        for node, step in self._wiring.steps.items():
            if isinstance(step, EventTime):
                step.is_late = program.is_late(node)
                step.late.append((self._late, 0))
        self._late_input = program.late_input
        self._pace = AdaptiveBatch.of(self.steps.values()) if paced else None
        self._chain = Chain.of(self._entry)

    @property
    def watermark(self) -> float | None:
        """None where nothing is in event time: such a partition does not hold the watermark back."""
        return min((clock.watermark for clock in self._clocks), default=None)

    def restore(self, watermark: float | None) -> None:
        if watermark is not None:
            for clock in self._clocks:
                clock.watermark = watermark

    async def feed(self, values: Sequence[Any]) -> list[tuple[int, Batch]]:
        """Process values; returns records by the number of their border, in order of arrival."""
        if self._pace is None:
            await self._take(values, 0)
        else:
            await self._pace.each_turn(values, self._take)
        runs = [(number, end.take()) for number, end in self._ends]
        late = self._late.take()
        return [*runs, (self._late_input, late)] if late else runs

    async def _take(self, values: Sequence[Any], start: int) -> None:
        records = None if self._chain is None else self._chain.made(values, start)
        if self._chain is None or records is None:
            await self._entry.push([(value, None, None, at) for at, value in enumerate(values, start)], 0)
        else:
            await self._chain.emit(records)

    def _end_of(self, border: GraphNode) -> Collect:
        step = self._wiring.steps[border]
        if isinstance(step, Collect):
            return step
        end = Collect()
        step.outs.append((end, 0))
        return end


async def no_part(_: bytes) -> bytes | None:
    return None


class KeyedStage:
    """A keyed stage, with its states, the pending values of its sinks, and the records that it sends to later
    stages. `paced` is as for SourceStage."""

    def __init__(
        self,
        program: FlowPlan,
        *,
        senders: int,
        paced: bool = False,
        layout: Layout | None = None,
        stage: StagePlan | None = None,
        spill: Spill | None = None,
    ) -> None:
        self._layout = layout or Layout()
        self.stage = stage = stage or program.stages[0]
        sends = [program.borders[number] for number in stage.outputs]
        wiring = Wiring(program, [n for n in program.nodes if n in stage.nodes or n in sends])
        self._program = program
        self._steps = list(wiring.steps.values())
        self._inputs = {number: self._input(wiring, program.borders[number]) for number in stage.inputs}
        inputs = {program.borders[number]: step for number, step in self._inputs.items()}
        self.steps: Mapping[GraphNode, Step] = {**wiring.steps, **inputs}
        self._sinks = [self.steps[node] for node in stage.sinks]
        self._ends = {number: Collect() for number in stage.outputs}
        for number, end in self._ends.items():
            wiring.steps[program.borders[number]].outs.append((end, 0))
        self._merge = TimeMerge() if program.must_merge(senders, stage) else None
        self._watermark = float("-inf")
        self._clock = 0.0
        self._pace = AdaptiveBatch.of(self._steps) if paced else None
        self._sides = {
            program.names[clock]: [
                step
                for node, step in wiring.steps.items()
                if node.side == "late" and node.parents == (clock,)
            ]
            for clock in program.nodes
            if clock.kind == "event_time" and program.decides_in(clock) is stage
        }
        self._clocks = {number: program.clock_of(program.borders[number]) for number in stage.inputs}
        # Without windows a record behind the watermark is late, and with idle partitions only the task knows.
        self._judged = {
            number
            for number, clock in self._clocks.items()
            if clock
            and program.enters(program.borders[number])
            and program.may_idle(clock)
            and not program.windows_behind(clock)
        }
        self.late: Batch = []
        """Records that no window took, since the last commit."""
        self._chain = SegmentChain()
        self._origin: int | None = None
        """The number of the first checkpoint that was loaded."""
        self.spill = spill
        """Where the states are that do not fit into memory; None while all are in memory."""
        if spill is not None:
            spill.adopt(self._states())
            for step in self._steps:
                step.loaded()

    @staticmethod
    def _input(wiring: Wiring, border: GraphNode) -> Step:
        if border.sink is not None:
            return Collect()
        entry = Pass()
        for node, step in wiring.steps.items():
            for port, parent in enumerate(node.parents):
                if parent is border:
                    entry.outs.append((step, port))
        return entry

    async def push(
        self, sender: str, input_number: int, records: Batch, floor: float = float("-inf")
    ) -> None:
        """Take records of a sender; below the floor they came behind the watermark."""
        if input_number == self._program.late_input:
            self.late += records
            return
        clock = self._clocks[input_number]
        if floor > float("-inf") and clock is not None:
            name = self._program.names[clock]
            records = [under(record, floor, name) for record in records]
        if self._merge is not None:
            self._merge.add(sender, input_number, records)
        elif records:
            await self._enter(input_number, records)

    async def _enter(self, input_number: int, records: Batch) -> None:
        if input_number in self._judged:
            for _, _, time, _ in records:
                if time is not None:
                    settle(time, taken=False)
            in_time = [record for record in records if type(record[2]) is not Behind]
        else:
            in_time = records
        await push(self._inputs[input_number], in_time, self._pace)
        if not self._sides:
            return
        late = {id(time): time for _, _, time, _ in records if type(time) is Behind and time.is_late}
        for time in late.values():
            if time.clock not in self._sides:
                continue
            record: Record = (time.value, None, float(time), 0)
            self.late.append(record)
            for side in self._sides[time.clock]:
                await side.push([record], 0)

    async def advance(self, watermark: float | None) -> None:
        """Advance to the lowest watermark of all senders; None when nothing is in event time."""
        if watermark is None or watermark <= self._watermark:
            return
        self._watermark = watermark
        if self._merge is not None:
            for input_number, records in self._merge.release(watermark):
                await self._enter(input_number, records)
        for step in self._steps:
            await step.advance(watermark)

    async def tick(self, now: float) -> None:
        """Show the steps the clock, which never goes back; END when nothing will come any more."""
        if now != END:
            self._clock = now = max(now, self._clock)
        for step in self._steps:
            await step.tick(now)

    async def flush(self) -> None:
        for step in self._steps:
            await step.flush()

    @property
    def pending(self) -> int:
        """How many values are pending for the sinks and the later stages."""
        ends = [*self._sinks, *self._ends.values()]
        return sum(len(end.records) for end in ends if isinstance(end, Collect))

    def takes(self, input_number: int) -> bool:
        """Whether it receives through an input: late records are counted in the first stage."""
        is_late = input_number == self._program.late_input
        return (is_late and self.stage.number == 1) or input_number in self._inputs

    @property
    def merges(self) -> bool:
        """Whether records wait in the merge, so that a record may have been read earlier than it is
        processed."""
        return self._merge is not None

    @property
    def waiting(self) -> int:
        """How many records wait in the merge."""
        return len(self._merge) if self._merge is not None else 0

    @property
    def has_state(self) -> bool:
        return self._merge is not None or any(step.states for step in self._steps)

    def take(self) -> list[list[Any]]:
        """Take the pending values of each sink, in the order of the graph's sinks."""
        return [[record[0] for record in sink.take()] for sink in self._sinks if isinstance(sink, Collect)]

    def take_sent(self) -> list[tuple[int, Batch]]:
        """Take the records for later stages, by the number of their input."""
        return [(number, end.take()) for number, end in self._ends.items() if end.records]

    def take_late(self) -> Batch:
        """Take the records that no window took, since the last call."""
        late, self.late = self.late, []
        return late

    def changed(self) -> dict[str, Any]:
        """What changed since the last `clean`, as plain data."""
        return self._document({name: state.delta() for name, state in self._states().items()}, whole=False)

    def whole(self) -> dict[str, Any]:
        return self._document({name: state.whole() for name, state in self._states().items()}, whole=True)

    def spilled(self, spill: Spill) -> tuple[dict[str, Any], list[Part]]:
        """What changed, and the buckets that are due, of states on disk; with the parts that have them."""
        found = spill.changes()
        document = self._document({}, whole=spill.is_rest_due)
        return {**document, "segments": found.segments, "inline": found.inline}, found.parts

    def clean(self) -> None:
        for state in self._states().values():
            state.clean()
        if self._merge is not None:
            self._merge.clean()

    async def load(self, documents: Sequence[Document]) -> None:
        """Load a whole state and the changes that followed it. Other tasks can run in between."""
        for number, document in enumerate(documents, 1):
            await self.apply(document, number)
        await self.complete()

    async def apply(self, document: Document, number: int, parts: Sequence[bytes] = ()) -> None:
        """Load the next of the checkpoints that a restore reads, which names these parts; `complete` follows
        the last one. Other tasks can run in between."""
        states = self._states()
        self._origin = self._origin or number
        for name, pairs in self._migrated(document):
            self._check_name(name)
            for piece in pairs:
                if self.spill is None:
                    states[name].load(piece)
                else:
                    self.spill.ingest(name, piece)
                await asyncio.sleep(0)
        self._chain.add(
            number, document.segments, document.inline, parts, lambda name: self._segment(document, name)
        )
        # Records behind a watermark that has not moved wait for its next move.
        moved = document.watermark > self._watermark
        released = document.watermark if moved else float("-inf")
        self._watermark = document.watermark
        self._clock = document.clock
        if self._merge is not None and document.merge is not None:
            numbers = input_numbers(document.entrances, self._program.inputs())
            self._merge.load(document.merge, self._program.revivers(), numbers, released)

    async def complete(self, get: Callable[[bytes], Awaitable[bytes | None]] = no_part) -> None:
        """Read the parts that the checkpoints name, with `get`, and let the steps rebuild what they derive
        from their states. States on disk bring their values when they are asked for."""
        if self.spill is not None:
            await self._chain.fetch(get, self.spill.directory, self.spill.disk)
            self.spill.continue_from(self._chain, self._origin or 0)
        elif self._chain:
            await self._chain.fetch(get, None)
            try:
                await self._bring_all()
            finally:
                self._chain.close()
        for step in self._steps:
            step.loaded()

    async def _bring_all(self) -> None:
        """Take what a task had on disk into memory."""
        for name, state in self._states().items():
            # A base has all of its bucket: what older checkpoints, of a task in memory, have besides was
            # removed.
            for key in [key for key in state.values if bucket_of(packed_key(key)) in self._chain.bases]:
                del state.values[key]
            for bucket in self._chain.buckets(name):
                pairs = self._chain.take(name, bucket).items()
                state.load(
                    [unpack(key)] if value is None else [unpack(key_of(key, value)), unpack(value_of(value))]
                    for key, value in pairs
                )
                await asyncio.sleep(0)

    async def fill(self) -> None:
        """Bring the states on disk that no step has asked for yet, while the task runs."""
        if self.spill is not None:
            await self.spill.fill()

    @property
    def was_spilled(self) -> bool:
        """Whether what was loaded is a state that a task kept on disk, and this one keeps it in memory."""
        return self.spill is None and self._chain.is_used

    def _check_name(self, name: str) -> None:
        if name not in self._states():
            raise StateMismatch(
                f"The stored state of {self._program.flow.name} has a step {name.partition('/')[0]!r} that "
                "the graph does not have. Give the step its old name (name=), or begin a new flow."
            )

    def _segment(self, document: Document, stored_name: str) -> tuple[str, Convert | None] | None:
        """The current name of a state, and what converts its pairs to the current version; None if it was
        dropped."""
        stored_step, _, part = stored_name.partition("/")
        step = self._layout.name_of(stored_step, document.layout)
        if step is None:
            return None
        name = f"{step}/{part}"
        self._check_name(name)
        version = document.versions.get(stored_step, 1)
        migration = self._migration(step, version)
        if migration is None:
            return name, None
        return name, converter(name, version, migration, plain=self._states()[name].declared)

    def _migration(self, step: str, version: int) -> Migration | None:
        """What converts a stored version of a step's state; None for the current one."""
        today = self._program.versions()
        if step not in today or version == today[step]:
            return None
        migrations = self._program.flow.migrations
        if step in migrations:
            return migrations[step]
        raise StateMismatch(
            f"The state of {step} was stored by version {version} and the graph has version {today[step]}. "
            f"Give the flow migrations={{{step!r}: function}}, or the step version={version}."
        )

    def _migrated(self, document: Document) -> Iterator[tuple[str, Iterable[list[Any]]]]:
        """The pairs of each step, in pieces; a migration gets all of them at once."""
        for stored_name, pairs in document.steps.items():
            stored_step, _, part = stored_name.partition("/")
            step = self._layout.name_of(stored_step, document.layout)
            if step is None:
                continue
            name = f"{step}/{part}"
            version = document.versions.get(stored_step, 1)
            migration = self._migration(step, version)
            if migration is None:
                yield name, pieces(pairs)
            else:
                plain = list(chain.from_iterable(pieces(pairs, plain=True)))
                # A key that was removed since the whole state was stored has no value to migrate.
                yield name, [migration(version, [pair for pair in plain if len(pair) > 1])]
                yield name, [[pair for pair in plain if len(pair) == 1]]

    def _states(self) -> dict[str, Any]:
        return {f"{step.name}/{name}": state for step in self._steps for name, state in step.states.items()}

    def _document(self, states: dict[str, Any], *, whole: bool) -> dict[str, Any]:
        return {
            "versions": self._program.versions(),
            "layout": self._layout.number,
            "entrances": self._program.inputs() if self._merge is not None else [],
            "steps": {name: pairs for name, pairs in states.items() if pairs},
            "watermark": self._watermark,
            "clock": self._clock,
            "merge": None if self._merge is None else self._merge.dump(self._program.declared(), whole=whole),
            "declared": {name for name, state in self._states().items() if state.declared},
        }


def input_numbers(before: Sequence[str], today: Sequence[str]) -> dict[int, int]:
    """Map the input numbers of what was stored to the current ones. Records that wait for an input that is
    gone are dropped with it; if exactly one input changed, its records continue under its new name."""
    if not before:
        return {number: number for number in range(len(today))}
    found = {number: today.index(name) for number, name in enumerate(before) if name in today}
    gone = [number for number, name in enumerate(before) if name not in today]
    added = [number for number, name in enumerate(today) if name not in before]
    return {**found, **(dict(zip(gone, added, strict=True)) if len(gone) == len(added) else {})}


Migration = Callable[[int, list[Any]], list[Any]]


def converter(name: str, version: int, migration: Migration, *, plain: bool) -> Convert:
    """What converts the packed pairs of a state to the current version, a bucket at a time."""
    write = flat if plain else pack

    def convert(pairs: list[PackedPair]) -> list[PackedPair]:
        before = [[unpack_plain(key_of(k, v)), unpack_plain(value_of(v))] for k, v in pairs if v is not None]
        after: dict[bytes, bytes] = {}
        for plain_key, value in migration(version, before):
            key = as_key(plain_key)
            packed = packed_key(key)
            after[packed] = with_key(key, packed, write(value))
        if not after.keys() <= {key for key, _ in pairs}:
            raise StateMismatch(
                f"The migration of {name.partition('/')[0]} from version {version} changes keys. State on "
                "disk is migrated a few keys at a time, and keeps its keys: run the flow once without "
                "FLOW_STATE_DIR."
            )
        # A key that the migration leaves out is removed, as one that was removed since.
        return [(key, after.get(key)) for key, _ in pairs]

    return convert


def least(watermarks: Sequence[float | None]) -> float | None:
    """The lowest watermark of several senders: senders without event time do not hold it back; None if none
    has event time."""
    timed = [watermark for watermark in watermarks if watermark is not None]
    return min(timed) if timed else None


__all__ = ["END", "FlowPlan", "KeyedStage", "SourceStage", "input_numbers", "least"]
