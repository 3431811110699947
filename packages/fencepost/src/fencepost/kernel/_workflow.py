"""Workflows: jobs that remember their steps. The table at the head of `functions/workflow.sql` has the
transitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    document,
    duration,
    each,
    nothing,
    one,
    optional_document,
    optional_duration,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost.kernel.job import Submitted

What = Literal["step", "sleep", "event", "spawn"]


class StoredStep(NamedTuple):
    """A step that happened. A large result is not read with the others: `result` reads it."""

    name: str
    what: What
    digest: str
    result: Json
    is_large: bool


class Loaded(NamedTuple):
    """All steps of a workflow in order, and the database's time; no time where nothing was read."""

    now: datetime | None
    steps: Sequence[StoredStep]


class Record(NamedTuple):
    """A step to be recorded. `undo` is the job that undoes it, as a document."""

    job_id: int
    attempt: int
    name: str
    digest: str
    result: Json = None
    undo: Mapping[str, Json] | None = None


class RecordAnswer(NamedTuple):
    """The answer for one of many steps; `refusal` is None when it is recorded."""

    job_id: int
    name: str
    refusal: str | None


class ChildOutcome(NamedTuple):
    """How a child ended; no state when it has not ended or was pruned."""

    job_id: int
    state: str | None
    final_status: str | None
    tries: int | None
    result: Json
    error: str | None


class EndedBatch(NamedTuple):
    """Children that have all ended, and how many of them how."""

    batch: int
    finished: int
    dead: int
    cancelled: int


class StoredGraph(NamedTuple):
    """A declared graph as it was stored, the state of its workflow, and its steps."""

    document: Json
    state: str
    steps: Sequence[Mapping[str, Json]]


class Version(NamedTuple):
    """How many workflows live on a version, and when the oldest of them was started."""

    queue: str
    name: str
    version: int
    waiting: int
    running: int
    oldest: datetime | None


def start(
    queue: str,
    name: str,
    version: int,
    payload: Json,
    *,
    priority: int = 1,
    run_at: datetime | None = None,
    tries_max: int = 5,
    lease_seconds: float = 60,
    unique_key: str | None = None,
    headers: Mapping[str, Json] | None = None,
) -> Call[Submitted]:
    """Start a workflow in the caller's transaction, without its declaration."""
    return Call(
        "select job_id, created from fencepost.workflow_start(%s::text, %s::text, %s::integer, %s::jsonb,"
        " %s::integer, %s::timestamptz, %s::integer, %s::interval, %s::text, null, null, %s::jsonb)",
        (
            text("queue", queue),
            text("name", name),
            version,
            document("payload", payload),
            priority,
            run_at,
            tries_max,
            duration("lease", lease_seconds),
            optional_text("unique_key", unique_key),
            document("headers", dict(headers or {})),
        ),
        one(Submitted),
    )


def load(job_id: int) -> Call[Loaded]:
    """All steps of a workflow, by one call. A first attempt has none."""
    return Call("select now, steps::text from fencepost.workflow_load(%s::bigint)", (job_id,), _loaded)


def commit(record: Record, owner: str) -> Call[None]:
    """Record a step in the caller's transaction, with the caller's writes."""
    return Call(
        "select fencepost.step_commit(%s::bigint, %s::bigint, %s::text, %s::text, %s::text, %s::jsonb,"
        " %s::jsonb)",
        (
            record.job_id,
            record.attempt,
            text("owner", owner),
            text("name", record.name),
            text("digest", record.digest),
            optional_document("result", record.result),
            optional_document("undo", record.undo),
        ),
        nothing,
    )


def commit_many(records: Sequence[Record], owner: str) -> Call[list[RecordAnswer]]:
    """Record many steps with one statement and one commit; answers for each. A repeat is safe."""
    return Call(
        "select job_id, name, refusal from fencepost.step_commit_many(%s::bigint[], %s::bigint[], %s::text,"
        " %s::text[], %s::text[], %s::jsonb[], %s::jsonb[])",
        _columns(records, owner),
        each(RecordAnswer),
    )


def commit_all(records: Sequence[Record], owner: str) -> Call[None]:
    """`commit` for many, in the transaction of their writes: all of them, or the first that is refused
    refuses the transaction."""
    return Call(
        "select fencepost.step_commit_all(%s::bigint[], %s::bigint[], %s::text, %s::text[], %s::text[],"
        " %s::jsonb[], %s::jsonb[])",
        _columns(records, owner),
        nothing,
    )


def _columns(records: Sequence[Record], owner: str) -> tuple[Any, ...]:
    results = [optional_document("result", record.result) for record in records]
    undos = [optional_document("undo", record.undo) for record in records]
    return (
        [record.job_id for record in records],
        [record.attempt for record in records],
        text("owner", owner),
        [text("name", record.name) for record in records],
        [text("digest", record.digest) for record in records],
        results,
        # Most have none, and the database then has nothing to check.
        undos if any(undos) else None,
    )


def result(job_id: int, name: str) -> Call[Json]:
    """The result of a step that lies in a row of its own."""
    return Call(
        "select fencepost.step_result(%s::bigint, %s::text)::text", (job_id, text("name", name)), _document
    )


def sleep(
    job_id: int, attempt: int, owner: str, name: str, digest: str, seconds: float, *, park: bool = True
) -> Call[datetime]:
    """Record when the sleep ends and give the workflow back until then; returns that time."""
    return Call(
        "select fencepost.workflow_sleep(%s::bigint, %s::bigint, %s::text, %s::text, %s::text, %s::interval,"
        " %s::boolean)",
        (
            job_id,
            attempt,
            text("owner", owner),
            text("name", name),
            text("digest", digest),
            duration("delay", seconds),
            park,
        ),
        scalar,
    )


def park(job_id: int, attempt: int, owner: str) -> Call[None]:
    """Give the workflow back until one of the things it has registered for happens."""
    return Call(
        "select fencepost.workflow_park(%s::bigint, %s::bigint, %s::text)",
        (job_id, attempt, text("owner", owner)),
        nothing,
    )


def restart(job_id: int, attempt: int, owner: str, payload: Json) -> Call[None]:
    """Begin again with other arguments under the same id; the steps are dropped."""
    return Call(
        "select fencepost.workflow_restart(%s::bigint, %s::bigint, %s::text, %s::jsonb)",
        (job_id, attempt, text("owner", owner), document("payload", payload)),
        nothing,
    )


def spawn(
    job_id: int, attempt: int, owner: str, name: str, digest: str, children: Sequence[int]
) -> Call[int]:
    """Record the children that this transaction submitted, as one step; returns their batch."""
    return Call(
        "select fencepost.workflow_spawn(%s::bigint, %s::bigint, %s::text, %s::text, %s::text, %s::bigint[])",
        (job_id, attempt, text("owner", owner), text("name", name), text("digest", digest), list(children)),
        scalar,
    )


def join(
    job_id: int, attempt: int, owner: str, batch: int, *, park: bool = True
) -> Call[Literal["ended", "parked", "registered"]]:
    """Wait for the children of a batch: parks the workflow until the last of them has ended."""
    return Call(
        "select fencepost.workflow_join(%s::bigint, %s::bigint, %s::text, %s::bigint, %s::boolean)",
        (job_id, attempt, text("owner", owner), batch, park),
        scalar,
    )


def join_any(
    job_id: int, attempt: int, owner: str, batches: Sequence[int], *, park: bool = True
) -> Call[list[EndedBatch]]:
    """Wait for the children of any of these batches: those that have ended. None has: parks the workflow
    until one of them has."""
    return Call(
        "select batch_id, finished, dead, cancelled"
        " from fencepost.workflow_join_any(%s::bigint, %s::bigint, %s::text, %s::bigint[], %s::boolean)",
        (job_id, attempt, text("owner", owner), list(batches), park),
        each(EndedBatch),
    )


def children(job_ids: Sequence[int]) -> Call[list[ChildOutcome]]:
    """How children ended, in the order of the ids."""
    return Call(
        "select job_id, state, final_status, tries, result::text, error"
        " from fencepost.workflow_children(%s::bigint[])",
        (list(job_ids),),
        _outcomes,
    )


def graph(job_id: int) -> Call[StoredGraph | None]:
    """The declared graph that a workflow runs; None when there is no such workflow, or it runs none."""
    return Call(
        "select document::text, state, steps::text from fencepost.workflow_graph(%s::bigint)",
        (job_id,),
        _graph,
    )


def repeats(job_id: int, attempt: int) -> Call[bool]:
    """Whether the attempt before this one failed or was lost: what it had not recorded is done again."""
    return Call("select fencepost.workflow_repeats(%s::bigint, %s::bigint)", (job_id, attempt), scalar)


def retry_from(job_id: int, step: str, actor: str) -> Call[None]:
    """Run a dead or cancelled workflow again from a step; that step and all later ones are dropped."""
    return Call(
        "select fencepost.workflow_retry_from(%s::bigint, %s::text, %s::text)",
        (job_id, text("step", step), text("actor", actor)),
        nothing,
    )


def versions() -> Call[list[Version]]:
    """How many workflows live on which version."""
    return Call(
        "select queue, name, version, waiting, running, oldest from fencepost.workflow_versions()",
        (),
        each(Version),
    )


def await_event(
    job_id: int,
    attempt: int,
    owner: str,
    name: str,
    event: str,
    timeout_seconds: float | None,
    *,
    park: bool = True,
) -> Call[EventAnswer]:
    """Await an event: its payload, a timeout, or the workflow is parked."""
    return Call(
        "select outcome, payload::text from fencepost.event_await(%s::bigint, %s::bigint, %s::text,"
        " %s::text, %s::text, %s::interval, %s::boolean)",
        (
            job_id,
            attempt,
            text("owner", owner),
            text("name", name),
            text("event", event),
            optional_duration("timeout", timeout_seconds),
            park,
        ),
        _event_answer,
    )


class EventAnswer(NamedTuple):
    """What awaiting an event answered."""

    outcome: Literal["emitted", "timed_out", "parked", "registered"]
    payload: Json


def _event_answer(rows: Sequence[Row]) -> EventAnswer:
    outcome, payload = rows[0]
    return EventAnswer(outcome, parsed(payload))


def _document(rows: Sequence[Row]) -> Json:
    return parsed(rows[0][0])


def _graph(rows: Sequence[Row]) -> StoredGraph | None:
    if not rows:
        return None
    graph, state, steps = rows[0]
    return StoredGraph(parsed(graph), state, parsed(steps))


def _loaded(rows: Sequence[Row]) -> Loaded:
    now, steps = rows[0]
    return Loaded(now, [StoredStep(*step) for step in parsed(steps)])


def _outcomes(rows: Sequence[Row]) -> list[ChildOutcome]:
    return [
        ChildOutcome(job_id, state, final_status, tries, parsed(result), error)
        for job_id, state, final_status, tries, result, error in rows
    ]
