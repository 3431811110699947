"""Calls of the flow functions; `functions/flow.sql` says what each promises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.kernel.call import Call, Json, document, each, nothing, optional_document, parsed, scalar, text


@dataclass(frozen=True, slots=True)
class TaskFrontier:
    """The newest durable commit of one task."""

    resource: str
    number: int
    status: str
    frontier: Json
    stored_at: datetime
    state_bytes: int | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a task or a seat."""

    resource: str
    owner: str | None
    token: int
    held: bool
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Edge:
    """What flows between two nodes of the plan, lately; None where nobody has told."""

    parent: int
    child: int
    per_second: float | None
    lag: int | None
    backpressure: float | None


def register(name: str, plan: Json, by: str) -> Call[None]:
    return Call(
        "select fencepost.flow_register(%s::text, %s::jsonb, %s::text)",
        (text("name", name), document("plan", plan), text("by", by)),
        nothing,
    )


def drain(name: str, *, draining: bool) -> Call[None]:
    return Call("select fencepost.flow_drain(%s::text, %s::boolean)", (text("name", name), draining), nothing)


def is_draining(name: str) -> Call[bool]:
    return Call(
        "select coalesce((select draining_at is not null from fencepost.flows where name = %s::text), false)",
        (text("name", name),),
        scalar,
    )


def commit(
    resource: str, token: int, *, expected: Json, frontier: Json, state: bytes | None, whole: bool
) -> Call[int]:
    """Fence, state and frontier in one call; answers the checkpoint's number."""
    return Call(
        "select fencepost.flow_commit(%s::text, %s::bigint, %s::jsonb, %s::jsonb, %s::bytea, %s::boolean)",
        (
            text("resource", resource),
            token,
            optional_document("expected", expected),
            document("frontier", frontier),
            state,
            whole,
        ),
        scalar,
    )


def number(resource: str) -> Call[int]:
    return Call("select fencepost.flow_number(%s::text)", (text("resource", resource),), scalar)


def frontiers(name: str) -> Call[list[TaskFrontier]]:
    return Call(
        "select resource, number, status, frontier::text, stored_at, state_bytes"
        " from fencepost.flow_frontiers(%s::text)",
        (text("name", name),),
        each(_task_frontier),
    )


def holders(name: str) -> Call[list[Holder]]:
    return Call(
        "select resource, owner, token, held, expires_at from fencepost.flow_holders(%s::text)",
        (text("name", name),),
        each(Holder),
    )


def save(name: str, savepoint: str) -> Call[int]:
    return Call(
        "select fencepost.flow_save(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        scalar,
    )


def restore(name: str, savepoint: str) -> Call[int]:
    return Call(
        "select fencepost.flow_restore(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        scalar,
    )


def rewind(resource: str, token: int, to: int) -> Call[int]:
    return Call(
        "select fencepost.flow_rewind(%s::text, %s::bigint, %s::bigint)",
        (text("resource", resource), token, to),
        scalar,
    )


def report(told: Sequence[tuple[str, int, Json]]) -> Call[int]:
    """What tasks have done lately: resource, token and activity of each."""
    return Call(
        "select fencepost.flow_report(%s::text[], %s::bigint[], %s::jsonb[])",
        (
            [text("resource", resource) for resource, _, _ in told],
            [token for _, token, _ in told],
            [document("activity", activity) for _, _, activity in told],
        ),
        scalar,
    )


def edges(name: str) -> Call[list[Edge]]:
    return Call(
        "select parent, child, per_second, lag, backpressure from fencepost.flow_edges(%s::text)",
        (text("name", name),),
        each(Edge),
    )


def _task_frontier(
    resource: str, number: int, status: str, frontier: str, stored_at: datetime, state_bytes: int | None
) -> TaskFrontier:
    return TaskFrontier(resource, number, status, parsed(frontier), stored_at, state_bytes)
