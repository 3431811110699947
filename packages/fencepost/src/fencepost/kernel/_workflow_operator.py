"""What operators do with workflows: lists of them, and decisions about many at once.
`functions/workflow_operator.sql` has the functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fencepost.kernel.call import Call, Json, document, each, optional_text, text

Settling = Literal["cancel", "replay"]


@dataclass(frozen=True, slots=True)
class WorkflowFilter:
    """Selects workflows. `waits` is those that are parked, for an event or for the time alone."""

    state: str | None = None
    name: str | None = None
    waits: Literal["event", "time"] | None = None
    tags: Sequence[str] = ()
    arguments: Mapping[str, Json] | None = None


class WorkflowPage(NamedTuple):
    """The ids of one page, newest first, and where the next one begins."""

    ids: list[int]
    next_before: int | None


class SettledWorkflow(NamedTuple):
    """What became of one workflow: cancelled, requested or replayed, or the reason why not."""

    job_id: int
    outcome: str


def page(
    wanted: WorkflowFilter, *, before_id: int | None = None, limit: int = 50, scan_max: int = 20_000
) -> Call[WorkflowPage]:
    """One page of workflows. A page that found few has looked at `scan_max`, and says where it stopped."""
    return Call(
        "select ids, next_before from fencepost.workflow_page(%s::text, %s::text, %s::text, %s::text[],"
        " %s::jsonb, %s::bigint, %s::integer, %s::integer)",
        (
            optional_text("state", wanted.state),
            optional_text("name", wanted.name),
            wanted.waits,
            [text("tag", tag) for tag in wanted.tags],
            document("arguments", dict(wanted.arguments or {})),
            before_id,
            limit,
            scan_max,
        ),
        lambda rows: WorkflowPage(*rows[0]),
    )


def settle(job_ids: Sequence[int], how: Settling, actor: str) -> Call[list[SettledWorkflow]]:
    """Cancel live workflows, or replay dead ones; returns an outcome for each."""
    return Call(
        "select job_id, outcome from fencepost.workflow_settle(%s::bigint[], %s::text, %s::text)",
        (list(job_ids), how, text("actor", actor)),
        each(SettledWorkflow),
    )
