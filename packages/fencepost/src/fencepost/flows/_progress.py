"""The progress of a flow in sources that end, computed from what all its tasks have committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fencepost.flows._flow_store import TaskFrontier
from fencepost.flows._frontier import Frontier, least_mark
from fencepost.flows._plan import FlowPlan
from fencepost.flows._units import divide, senders_of
from fencepost.flows.sources._source import extent_of


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one source partition: the offset that all effects have passed, and the one at which it ends."""

    sender: str
    at: int
    extent: int
    ended: bool


def progress_of(program: FlowPlan, frontiers: Sequence[TaskFrontier]) -> list[Progress]:
    """For each partition whose end is known; a partition without a commit is at 0."""
    stored = {each.resource: Frontier.from_json(each.frontier) for each in frontiers}
    units = [unit for unit in divide(program) if unit.commits]
    found: list[Progress] = []
    for sender in senders_of(program):
        extent = extent_of(sender.node.source, sender.partition)
        if extent is None:
            continue
        marks = [
            stored.get(unit.resource, Frontier()).of(sender.name) for unit in units if sender in unit.senders
        ]
        mark = least_mark(marks)
        found.append(Progress(sender.name, extent if mark.ended else int(mark.at or 0), extent, mark.ended))
    return found
