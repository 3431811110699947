"""Units of work: the parts of a flow, each with its own lease and frontier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.flows._errors import StartRefused
from fencepost.flows._node import GraphNode
from fencepost.flows._plan import FlowPlan
from fencepost.flows._stages import StagePlan
from fencepost.flows.sources._source import goes_on, is_timeless, reads_of
from fencepost.kernel.call import Json


@dataclass(frozen=True, slots=True)
class RecordSender:
    """One partition of one source, or one key group of a keyed stage that sends, under its name in
    frontiers."""

    name: str
    node: GraphNode
    partition: str
    stage: int = 0
    """The number of the keyed stage whose output it sends; 0 for a source."""
    resumes: bool = False
    """Of a stage: whether a source before it goes on."""

    @property
    def source_name(self) -> str:
        """The name of its source in the plan."""
        return self.name.removesuffix(f":{self.partition}")

    @property
    def timeless(self) -> bool:
        return is_timeless(self.node.source)

    @property
    def goes_on(self) -> bool:
        return self.resumes or goes_on(self.node.source)


@dataclass(frozen=True, slots=True)
class Receiver:
    """One key group of one keyed stage."""

    stage: int
    group: int

    def resource(self, flow: str) -> str:
        number = f"{self.group:04}" if self.stage == 1 else f"{self.stage}-{self.group:04}"
        return f"flow:{flow}/group/{number}"

    @property
    def channel(self) -> str:
        """Its name in the keys of its channels."""
        return str(self.group) if self.stage == 1 else f"{self.stage}-{self.group}"


@dataclass(frozen=True, slots=True)
class Spread:
    """How the records of a sender are spread: its receivers, and for each input the range of those that its
    records go to by their keys. Late records have the input after the last."""

    receivers: Sequence[Receiver]
    spans: Sequence[range]

    @classmethod
    def of(cls, program: FlowPlan, sender: RecordSender) -> Spread:
        receivers: list[Receiver] = []
        spans = [range(0)] * (program.late_input + 1)
        for stage in _receiving(program, sender):
            span = range(len(receivers), len(receivers) + (stage.groups or 1))
            receivers += [Receiver(stage.number, group) for group in range(stage.groups or 1)]
            for number in stage.inputs:
                spans[number] = span
        # Late records of a source are counted once: in the first stage that it sends to.
        spans[program.late_input] = range(program.stages[receivers[0].stage - 1].groups or 1)
        return cls(receivers, spans)


@dataclass(frozen=True, slots=True)
class Unit:
    """`whole` reads sources and commits; `forward` reads one partition and sends; `group` receives and
    commits."""

    resource: str
    kind: str
    senders: tuple[RecordSender, ...]
    group: int = 0
    stage: int = 1

    @property
    def commits(self) -> bool:
        return self.kind != "forward"


def senders_of(program: FlowPlan) -> tuple[RecordSender, ...]:
    """The partitions of the sources."""
    return tuple(
        RecordSender(f"{program.names[node]}:{partition}", node, partition)
        for node in program.sources
        if node.source is not None
        for partition in node.source.partitions
    )


def stage_sender(program: FlowPlan, stage: StagePlan, group: int) -> RecordSender:
    """A key group of a keyed stage, as a sender to later stages."""
    name, partition = f"stage-{stage.number}", f"{group:04}"
    resumes = any(goes_on(source.source) for source in program.sources_of(stage))
    return RecordSender(
        f"{name}:{partition}", GraphNode("stage", name=name), partition, stage.number, resumes
    )


def check_bounded(program: FlowPlan) -> None:
    """Raise StartRefused for a flow that cannot tell when a run of it has ended: an end that a source goes on
    behind is one of a run, and a stage does not pass that on to the next."""
    resuming = [program.names[source] for source in program.sources if goes_on(source.source)]
    if program.has_shuffles and resuming:
        raise StartRefused(
            f"{program.flow.name} has several key_by with groups, and {', '.join(resuming)} goes on behind "
            "its end: such a flow does not run until it is done. Run it without --until-done, or leave "
            "groups out."
        )


def stage_senders(program: FlowPlan) -> tuple[RecordSender, ...]:
    return tuple(
        stage_sender(program, stage, group)
        for stage in program.stages
        if stage.outputs
        for group in range(stage.groups or 1)
    )


def _receiving(program: FlowPlan, sender: RecordSender) -> list[StagePlan]:
    """The keyed stages that a sender sends to."""
    if sender.stage:
        from_stage = program.stages[sender.stage - 1]
        return [stage for stage in program.stages if stage.receives_from(from_stage)]
    return [stage for stage in program.stages if program.feeds(sender.node, stage)]


def divide(program: FlowPlan) -> list[Unit]:
    """With key groups: one unit per partition, and one per group of each keyed stage, with one more that
    sends if the stage does. Otherwise one for all keys, or one per partition."""
    prefix = f"flow:{program.flow.name}"
    senders = senders_of(program)
    if program.groups is not None:
        every = (*senders, *stage_senders(program))
        groups = [
            _group_unit(program, Receiver(stage.number, group), every)
            for stage in program.stages
            for group in range(stage.groups or 1)
        ]
        # A worker takes units in this order: those of a stage before those that forward what it sends.
        first, later = (
            [Unit(f"{prefix}/source/{s.name}", "forward", (s,)) for s in some]
            for some in (senders, every[len(senders) :])
        )
        return [*first, *groups, *later]
    if program.is_one:
        return [Unit(f"{prefix}/all", "whole", senders)]
    return [Unit(f"{prefix}/part/{s.name}", "whole", (s,)) for s in senders]


def _group_unit(program: FlowPlan, receiver: Receiver, senders: Sequence[RecordSender]) -> Unit:
    stage = program.stages[receiver.stage - 1]
    mine = tuple(sender for sender in senders if stage in _receiving(program, sender))
    return Unit(receiver.resource(program.flow.name), "group", mine, receiver.group, receiver.stage)


def shape(program: FlowPlan) -> Json:
    """What gives the frontiers of the flow's tasks their meaning: its units, its key groups, and what each
    sender reads."""
    units = "groups" if program.groups is not None else "all" if program.is_one else "parts"
    senders = {s.name: reads_of(s.node.source, s.partition) for s in senders_of(program)}
    stages = {"stages": [stage.groups for stage in program.stages]} if program.has_shuffles else {}
    return {
        "units": units,
        "groups": program.groups,
        **stages,
        "senders": senders,
        "entrances": program.inputs(),
    }


def plan(program: FlowPlan) -> Json:
    """What a worker registers: the picture, the shape, the steps with state, and the renames and drops of
    earlier steps."""
    flow = program.flow
    return {
        **program.picture(),
        "shape": shape(program),
        "steps": program.steps(),
        "rename": dict(flow.rename),
        "drop_state": list(flow.drop_state),
    }


def slot(flow: str, number: int) -> str:
    return f"flow:{flow}/slot/{number:04}"
