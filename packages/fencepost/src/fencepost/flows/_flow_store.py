"""Calls of the flow functions; `functions/flow.sql` documents the guarantees of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.flows._layout import Layout, LayoutChange
from fencepost.flows._parts import Part
from fencepost.flows._regroup import SavedRow
from fencepost.kernel._checkpoint import Checkpoint
from fencepost.kernel.call import (
    Call,
    Json,
    column,
    document,
    each,
    nothing,
    optional_document,
    parsed,
    scalar,
    text,
)


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
class UnitHolder:
    """The holder of a task or of a worker slot."""

    resource: str
    owner: str | None
    token: int
    held: bool
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class StoredCheckpoint(Checkpoint):
    """One checkpoint of a task, with the hashes of its parts and their size in bytes."""

    parts: Sequence[bytes] = ()
    part_bytes: int = 0

    @property
    def state_bytes(self) -> int:
        return len(self.state or b"") + self.part_bytes


@dataclass(frozen=True, slots=True)
class Edge:
    """The recent traffic between two nodes of the plan; None where none was reported."""

    parent: int
    child: int
    per_second: float | None
    lag: int | None
    backpressure: float | None


@dataclass(frozen=True, slots=True)
class Late:
    """How many records of a task were late, and the newest of them as text."""

    resource: str
    records: int
    last_at: datetime
    samples: Json


@dataclass(frozen=True, slots=True)
class Instructions:
    """What operators ask of a flow: to drain it, and to commit, with the time of the newest such request."""

    draining: bool = False
    commit_asked_at: datetime | None = None


def register(name: str, plan: Json, by: str) -> Call[int]:
    """Register a flow; returns the edition under which its tasks commit."""
    return Call(
        "select fencepost.flow_register(%s::text, %s::jsonb, %s::text)",
        (text("name", name), document("plan", plan), text("by", by)),
        scalar,
    )


def room() -> Call[int]:
    """How many connections this login may have at once, over all processes."""
    return Call(
        "select least(current_setting('max_connections')::int"
        " - current_setting('superuser_reserved_connections')::int,"
        " (select nullif(r.rolconnlimit, -1) from pg_roles r where r.rolname = current_user),"
        " (select nullif(d.datconnlimit, -1) from pg_database d where d.datname = current_database()))",
        (),
        scalar,
    )


def check_edition(name: str, edition: int) -> Call[None]:
    """Raises mismatch when the flow has another edition now: for a task that commits nothing."""
    return Call(
        "select fencepost.flow_check_edition(%s::text, %s::bigint)", (text("name", name), edition), nothing
    )


def layout(name: str) -> Call[Layout]:
    """The layout of a flow's stateful steps, and the layouts before it."""
    return Call(
        "select layout, origin, renamed::text, dropped::text from fencepost.flow_layouts(%s::text)",
        (text("name", name),),
        _layout,
    )


def drain(name: str, *, draining: bool) -> Call[None]:
    return Call("select fencepost.flow_drain(%s::text, %s::boolean)", (text("name", name), draining), nothing)


def orders(name: str) -> Call[Instructions]:
    """What operators ask of the flow's workers. A request for a commit expires after ten
    minutes: its caller no longer waits."""
    return Call(
        "select draining_at is not null,"
        " case when commit_asked_at > fencepost.clock() - interval '10 minutes' then commit_asked_at end"
        " from fencepost.flows where name = %s::text",
        (text("name", name),),
        lambda rows: Instructions(*rows[0]) if rows else Instructions(),
    )


def ask(name: str) -> Call[datetime]:
    """Ask every task for a commit; returns the time of the request."""
    return Call("select fencepost.flow_ask(%s::text)", (text("name", name),), scalar)


def unanswered(name: str, since: datetime) -> Call[list[str]]:
    """The tasks that are held and have finished no commit since."""
    return Call(
        "select * from fencepost.flow_unanswered(%s::text, %s::timestamptz)",
        (text("name", name), since),
        column,
    )


def commit(
    resource: str,
    token: int,
    *,
    expected: Json,
    frontier: Json,
    state: bytes | None,
    whole: bool,
    edition: int,
) -> Call[int]:
    """Fence, state and frontier in one call; returns the checkpoint's number."""
    return Call(
        "select fencepost.flow_commit"
        "(%s::text, %s::bigint, %s::jsonb, %s::jsonb, %s::bytea, %s::boolean, %s::bigint)",
        (
            text("resource", resource),
            token,
            optional_document("expected", expected),
            document("frontier", frontier),
            state,
            whole,
            edition,
        ),
        scalar,
    )


def store(
    resource: str,
    token: int,
    number: int,
    *,
    expected: Json,
    frontier: Json,
    state: bytes | None,
    handles: Sequence[Json],
    whole: bool,
    edition: int,
) -> Call[None]:
    """The same for a checkpoint that was begun, and whose sinks are written after it."""
    return Call(
        "select fencepost.flow_store(%s::text, %s::bigint, %s::bigint, %s::jsonb, %s::jsonb, %s::bytea,"
        " %s::jsonb, %s::boolean, %s::bigint)",
        (
            text("resource", resource),
            token,
            number,
            optional_document("expected", expected),
            document("frontier", frontier),
            state,
            document("handles", list(handles)),
            whole,
            edition,
        ),
        nothing,
    )


def put_part(resource: str, token: int, part: Part) -> Call[None]:
    """Write a part of a state, for the commit of the same transaction."""
    return Call(
        "select fencepost.flow_put_part(%s::text, %s::bigint, %s::bytea, %s::bytea)",
        (text("resource", resource), token, part.hash, part.content),
        nothing,
    )


def offer_part(name: str, resource: str, part: Part) -> Call[None]:
    """Write a part of a state, for a regrouping that follows."""
    return Call(
        "select fencepost.flow_offer_part(%s::text, %s::text, %s::bytea, %s::bytea)",
        (text("name", name), text("resource", resource), part.hash, part.content),
        nothing,
    )


def name_parts(
    resource: str, token: int, number: int, since: int | None, hashes: Sequence[bytes]
) -> Call[None]:
    """Say which parts a checkpoint has, and which one a restore of it begins with: None for itself."""
    return Call(
        "select fencepost.flow_name_parts(%s::text, %s::bigint, %s::bigint, %s::bigint, %s::bytea[])",
        (text("resource", resource), token, number, since, list(hashes)),
        nothing,
    )


def part(resource: str, digest: bytes) -> Call[bytes | None]:
    """The content of a part; None when it is gone."""
    return Call(
        "select fencepost.flow_part_content(%s::text, %s::bytea)",
        (text("resource", resource), digest),
        _content,
    )


def restore_task(resource: str, token: int) -> Call[list[StoredCheckpoint]]:
    """What a restore of a task reads, oldest first, then the checkpoints begun and never stored."""
    return Call(
        "select number, status, whole, frontier::text, state, handles::text, parts, bytes"
        " from fencepost.flow_restore_task(%s::text, %s::bigint)",
        (text("resource", resource), token),
        each(_stored_checkpoint),
    )


def prune(resource: str, token: int, keep: int) -> Call[int]:
    """Delete all but the newest `keep` durable checkpoints and what they build on; returns how many."""
    return Call(
        "select fencepost.flow_prune(%s::text, %s::bigint, %s::integer)",
        (text("resource", resource), token, keep),
        scalar,
    )


def count_late(resource: str, token: int, records: int, samples: Sequence[Json]) -> Call[None]:
    """Count late records, within the commit that skips them."""
    return Call(
        "select fencepost.flow_count_late(%s::text, %s::bigint, %s::bigint, %s::jsonb)",
        (text("resource", resource), token, records, document("samples", list(samples))),
        nothing,
    )


def lates(name: str) -> Call[list[Late]]:
    return Call(
        "select resource, records, last_at, samples::text from fencepost.flow_lates(%s::text)",
        (text("name", name),),
        each(_late),
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


def holders(name: str) -> Call[list[UnitHolder]]:
    return Call(
        "select resource, owner, token, held, expires_at from fencepost.flow_holders(%s::text)",
        (text("name", name),),
        each(UnitHolder),
    )


def save(name: str, savepoint: str) -> Call[int]:
    return Call(
        "select fencepost.flow_save(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        scalar,
    )


def drop(name: str, savepoint: str) -> Call[int]:
    """Delete a savepoint; returns how many tasks it held."""
    return Call(
        "select fencepost.flow_drop(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        scalar,
    )


def restore(name: str, savepoint: str) -> Call[int]:
    return Call(
        "select fencepost.flow_restore(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        scalar,
    )


def saved_rows(name: str, savepoint: str) -> Call[list[SavedRow]]:
    return Call(
        "select resource, number, whole, frontier::text, state, layout, parts"
        " from fencepost.flow_savepoint_rows(%s::text, %s::text)",
        (text("name", name), text("savepoint", savepoint)),
        each(_saved_row),
    )


def regroup(name: str, savepoint: str, groups: int, rows: Sequence[SavedRow]) -> Call[int]:
    """Begin a flow anew in another number of key groups: `rows` are the savepoint's, divided anew."""
    return Call(
        "select fencepost.flow_regroup"
        "(%s::text, %s::text, %s::int, %s::text[], %s::bigint[], %s::jsonb[], %s::bytea[], %s::jsonb[])",
        (
            text("name", name),
            text("savepoint", savepoint),
            groups,
            [text("resource", row.resource) for row in rows],
            [row.number for row in rows],
            [document("frontier", row.frontier) for row in rows],
            [row.state for row in rows],
            [None if row.parts is None else document("parts", [h.hex() for h in row.parts]) for row in rows],
        ),
        scalar,
    )


def stand(resource: str, position: int) -> Call[int]:
    """The checkpoint of a task that corresponds to `position`, the last one that a sink took."""
    return Call(
        "select fencepost.flow_stand(%s::text, %s::bigint)", (text("resource", resource), position), scalar
    )


def rewind(resource: str, token: int, to: int) -> Call[int]:
    return Call(
        "select fencepost.flow_rewind(%s::text, %s::bigint, %s::bigint)",
        (text("resource", resource), token, to),
        scalar,
    )


def report(told: Sequence[tuple[str, int, Json]]) -> Call[int]:
    """Store the recent activity of tasks: resource, token and activity of each."""
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


def _content(rows: Sequence[Sequence[Any]]) -> bytes | None:
    found = rows[0][0]
    return None if found is None else bytes(found)


def _stored_checkpoint(
    number: int,
    status: str,
    whole: bool,
    frontier: str | None,
    state: bytes | None,
    handles: str,
    parts: Sequence[bytes] | None,
    size: int | None,
) -> StoredCheckpoint:
    return StoredCheckpoint(
        number,
        status,
        whole,
        parsed(frontier),
        None if state is None else bytes(state),
        parsed(handles),
        [bytes(digest) for digest in parts or ()],
        size or 0,
    )


def _layout(rows: Sequence[Sequence[Any]]) -> Layout:
    changes = [
        LayoutChange(layout, origin, parsed(renamed), parsed(dropped))
        for layout, origin, renamed, dropped in rows
    ]
    return Layout(
        max((change.layout for change in changes), default=0), {change.layout: change for change in changes}
    )


def _saved_row(
    resource: str,
    number: int,
    whole: bool,
    frontier: str,
    state: bytes | None,
    layout: int | None,
    parts: Sequence[bytes] | None,
) -> SavedRow:
    data = None if state is None else bytes(state)
    hashes = None if parts is None else tuple(bytes(digest) for digest in parts)
    return SavedRow(resource, number, whole, parsed(frontier), data, layout, hashes)


def _late(resource: str, records: int, last_at: datetime, samples: str) -> Late:
    return Late(resource, records, last_at, parsed(samples))


def _task_frontier(
    resource: str, number: int, status: str, frontier: str, stored_at: datetime, state_bytes: int | None
) -> TaskFrontier:
    return TaskFrontier(resource, number, status, parsed(frontier), stored_at, state_bytes)
