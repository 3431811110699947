"""Flows: the graph, the owner and the progress of each task, and savepoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, LiteralString

from fastapi import Path, Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import NotFound
from fencepost.flows import _dead_letters as dead_letters
from fencepost.kernel.call import Call, nothing, text
from fencepost_server.console._graph import draw, edge_words
from fencepost_server.console.context import ConsoleContext, Limit, MaybeId, Name, wanted
from fencepost_server.console.listing import Listing, ListQuery, Type
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import quoted
from fencepost_server.web.forms import Ids
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

_FLOWS = Listing(
    table="flows",
    sql="select name, registered_at, registered_by, draining_at,"
    " jsonb_array_length(plan -> 'nodes') as nodes,"
    " (select count(*) from fencepost.flow_failing(name)) as failing"
    " from fencepost.flows where name > coalesce(%(after)s::text, '') order by name limit %(limit)s",
    key=("name",),
    positions=("after",),
    is_descending=False,
    columns={
        "name": "text",
        "failing": "bigint",
        "nodes": "bigint",
        "registered_at": "timestamptz",
        "registered_by": "text",
    },
    searched=("name", "registered_by"),
)
_TASKS = Listing(
    table="tasks",
    sql="select coalesce(f.resource, h.resource) as resource, h.owner, h.held, h.token, h.expires_at,"
    " f.number, f.status, f.frontier, f.stored_at, f.state_bytes, a.failed_at, a.failures, a.error,"
    " a.step, a.stream, a.at_offset, a.remedy"
    " from fencepost.flow_frontiers(%(name)s) f"
    " full join fencepost.flow_holders(%(name)s) h on h.resource = f.resource"
    " left join fencepost.flow_failing(%(name)s) a on a.resource = coalesce(f.resource, h.resource)"
    " where coalesce(f.resource, h.resource) > coalesce(%(after)s::text, '') order by 1 limit %(limit)s",
    key=("resource",),
    positions=("after",),
    is_descending=False,
    columns={
        "resource": "text",
        "owner": "text",
        "expires_at": "timestamptz",
        "number": "bigint",
        "stored_at": "timestamptz",
        "state_bytes": "bigint",
        "failures": "bigint",
    },
)
_DEAD = Listing(
    table="dead",
    sql="select id, step, error, preview, died_at from fencepost.flow_dead_letters"
    " where flow = %(name)s and replay is null and id > coalesce(%(dead_after)s::bigint, 0)"
    " order by id limit %(limit)s",
    key=("id",),
    positions=("dead_after",),
    is_descending=False,
    columns={"id": "bigint", "step": "text", "died_at": "timestamptz", "error": "text"},
    searched=("step", "error", "preview"),
)
_SAVEPOINTS = Listing(
    table="savepoints",
    sql="select savepoint, tasks, state_bytes, made_at from fencepost.flow_savepoints"
    " where flow = %(name)s and (%(saved_before)s::text is null or (made_at, savepoint) < ("
    "select o.made_at, o.savepoint from fencepost.flow_savepoints o"
    " where o.flow = %(name)s and o.savepoint = %(saved_before)s))"
    " order by made_at desc, savepoint desc limit %(limit)s",
    key=("savepoint",),
    positions=("saved_before",),
    is_descending=True,
    columns={"savepoint": "text", "tasks": "bigint", "state_bytes": "bigint", "made_at": "timestamptz"},
)
_CHECKPOINT_COLUMNS: Mapping[LiteralString, Type] = {
    "resource": "text",
    "owner": "text",
    "number": "bigint",
    "status": "text",
    "state_bytes": "bigint",
    "stored_at": "timestamptz",
    "committed_at": "timestamptz",
}
_CHECKPOINTS = Listing(
    table="checkpoints",
    sql="select c.*, l.owner, l.held, l.expires_at from fencepost.checkpoints c"
    " left join fencepost.lease_status l on l.resource = c.resource"
    " where c.resource = %(resource)s and c.number < coalesce(%(before)s::bigint, 9223372036854775807)"
    " order by c.number desc limit %(limit)s",
    key=("number",),
    positions=("before",),
    is_descending=True,
    columns=_CHECKPOINT_COLUMNS,
    searched=("resource", "owner"),
)
_CHECKPOINTED = Listing(
    table="checkpoints",
    sql="select c.*, l.owner, l.held, l.expires_at from"
    " fencepost.console_checkpointed(%(after)s::text, %(limit)s::integer) r"
    " join fencepost.checkpoints c on c.resource = r.resource and c.number = r.number"
    " left join fencepost.lease_status l on l.resource = c.resource order by c.resource",
    key=("resource",),
    positions=("after",),
    is_descending=False,
    columns=_CHECKPOINT_COLUMNS,
    searched=("resource", "owner"),
)
FlowName = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[^\x00/]+$")]


class FlowQuery(ListQuery):
    after: Name | None = None
    limit: Limit = 50


class OneFlowQuery(ListQuery):
    """Tasks after `after` in order of name, dead letters after `dead_after`, savepoints older than one."""

    after: Name | None = None
    dead_after: MaybeId = None
    saved_before: Name | None = None
    unfold: bool = False
    limit: Limit = 100


class CheckpointQuery(ListQuery):
    """The newest of each resource after `after`; of one resource, those with a number below `before`."""

    resource: Name | None = None
    after: Name | None = None
    before: MaybeId = None
    limit: Limit = 50


class SettleLetters(BaseModel):
    """A decision about the dead letters that were selected."""

    model_config = {"extra": "forbid"}

    how: Literal["replay", "discard"]
    ids: Ids


class Save(BaseModel):
    model_config = {"extra": "forbid"}

    savepoint: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]
    within_seconds: Annotated[
        float, Field(ge=0, le=60, description="How long to wait for a commit of every task; 0 asks for none.")
    ] = 20


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/flows", "flows.html", "Flows")
    async def flows(request: Request, query: Annotated[FlowQuery, Query()]) -> PageData:
        """Every flow that a worker has registered, and how many of its tasks fail."""
        page = await context.lists.read(_FLOWS, query, query.limit)
        facts = {"flows": page.rows, **page.next, "filters": {"part": query.part or None}}
        return PageData(facts, "flows", lists={"flows": page.state})

    @context.router.page("/flows/{name}", "flow.html", "Flow")
    async def flow(request: Request, name: FlowName, query: Annotated[OneFlowQuery, Query()]) -> PageData:
        """One flow: its graph, its tasks with their owners and frontiers, its savepoints."""
        row = await context.reading.row(
            "select name, plan, registered_at, registered_by, draining_at,"
            " (select count(*) from fencepost.flow_failing(name)) as failing from fencepost.flows"
            " where name = %s",
            name,
        )
        if row is None:
            raise NotFound(say("There is no flow {name}.", name=name))
        tasks = await context.lists.read(_TASKS, query, query.limit, {"name": name})
        savepoints = await context.lists.read(_SAVEPOINTS, query, query.limit, {"name": name})
        edges = await context.reading.rows(
            "select parent, child, per_second, lag, backpressure from fencepost.flow_edges(%s)", name
        )
        edges = [
            {**edge, "edge": f"{edge['parent']}-{edge['child']}", "words": edge_words(edge)} for edge in edges
        ]
        dead = await context.lists.read(_DEAD, query, query.limit, {"name": name})
        late = await context.reading.rows(
            "select resource, records, last_at, samples from fencepost.flow_lates(%s) order by resource "
            "limit %s",
            name,
            query.limit,
        )
        failing = {one["step"] for one in tasks.rows if one["step"]} | {one["step"] for one in dead.rows}
        is_page = request.url.path.startswith("/console")
        pictures = draw(row["plan"], failing=failing, fold=not query.unfold) if is_page else ()
        facts = {
            "title": name,
            "flow": row,
            "tasks": tasks.rows,
            "savepoints": savepoints.rows,
            "edges": edges,
            "dead": dead.rows,
            "late": late,
            "graphs": pictures,
            "filters": {
                "limit": query.limit if query.limit != 100 else None,
                "unfold": "true" if query.unfold else None,
            },
            **savepoints.next,
            **dead.next,
            **tasks.next,
        }
        lists = {"tasks": tasks.state, "dead": dead.state, "savepoints": savepoints.state}
        return PageData(facts, "tasks", ("edges", "dead", "late", "savepoints"), lists)

    @context.router.page("/checkpoints", "checkpoints.html", "Checkpoints")
    async def checkpoints(request: Request, query: Annotated[CheckpointQuery, Query()]) -> PageData:
        """The newest checkpoint of each resource, or all of one resource."""
        listing = _CHECKPOINTS if wanted(query.resource) else _CHECKPOINTED
        page = await context.lists.read(listing, query, query.limit, {"resource": wanted(query.resource)})
        filters = {
            "resource": wanted(query.resource),
            "part": query.part or None,
            "limit": query.limit if query.limit != 50 else None,
        }
        facts = {"next_after": None, "next_before": None, "checkpoints": page.rows, **page.next}
        return PageData({**facts, "filters": filters}, "checkpoints", lists={"checkpoints": page.state})


def add_actions(context: ConsoleContext) -> None:
    async def drain(name: str, *, draining: bool) -> ActionDone:
        await context.fp.run(
            Call(
                "select fencepost.flow_drain(%s::text, %s::boolean)", (text("name", name), draining), nothing
            )
        )
        told = (
            say("is draining: its workers commit and release their tasks") if draining else say("runs again")
        )
        return ActionDone(f"{name} {told}.", f"/console/flows/{quoted(name)}")

    async def before_drain(request: Request, name: str) -> Confirmation:
        held = await context.reading.row(
            "select count(*) filter (where held) as tasks,"
            " count(distinct owner) filter (where held) as workers"
            " from fencepost.flow_holders(%s)",
            name,
        )
        tasks, workers = (held["tasks"], held["workers"]) if held is not None else (0, 0)
        told = say(
            "{workers} commit and release {tasks}, and take none.",
            workers=counted(workers, "worker"),
            tasks=counted(tasks, "task"),
        )
        onward = "No record of it is processed until it runs again."
        return Confirmation(
            say("Drain flow {name}?", name=name),
            [told, onward],
            say("Drain {name}", name=name),
            f"/console/flows/{quoted(name)}",
        )

    @context.router.action("/flows/{name}/drain", "flow.drain", asks=before_drain)
    async def begin_drain(request: Request, name: FlowName) -> ActionDone:
        """Workers commit, release everything and take nothing."""
        return await drain(name, draining=True)

    @context.router.action("/flows/{name}/resume", "flow.resume")
    async def end_drain(request: Request, name: FlowName) -> ActionDone:
        """Workers take tasks again."""
        return await drain(name, draining=False)

    async def steps_of(name: str, ids: Sequence[int]) -> dict[str, list[int]]:
        """The selected letters that nothing was decided about yet, by the step where they died."""
        found: dict[str, list[int]] = {}
        for row in await context.reading.rows(
            "select id, step from fencepost.flow_dead_letters"
            " where flow = %s and replay is null and id = any (%s) order by id",
            name,
            list(ids),
        ):
            found.setdefault(row["step"], []).append(row["id"])
        return found

    async def before_settle(request: Request, name: str, body: SettleLetters) -> Confirmation:
        steps = await steps_of(name, body.ids)
        letters = counted(sum(map(len, steps.values())), "dead letter")
        of = ", ".join(f"{len(ids):,} of {step}" for step, ids in steps.items()) or "none"
        ends = {
            "replay": "The flow reads each of them once more, in order.",
            "discard": "They are deleted. Their records are not processed.",
        }
        answer = f"{body.how.capitalize()} {letters}"
        told = [say("Selected of {name}: {of}.", name=name, of=of), ends[body.how]]
        return Confirmation(
            say("{answer} of {name}?", answer=answer, name=name),
            told,
            answer,
            f"/console/flows/{quoted(name)}#dead",
        )

    @context.router.action("/flows/{name}/dead", "flow.dead", asks=before_settle)
    async def settle(request: Request, name: FlowName, body: SettleLetters) -> ActionDone:
        """Replay or discard the dead letters that are named; those of before stay as they were decided."""
        actor, done = visitor_of(request).actor, 0
        for step, ids in (await steps_of(name, body.ids)).items():
            if body.how == "replay":
                call = dead_letters.replay(name, step, ids=ids, limit=len(ids), by=actor)
            else:
                call = dead_letters.discard(name, step, ids=ids, limit=len(ids))
            done += await context.fp.run(call)
        context.live_snapshot.forget()
        word = "replayed" if body.how == "replay" else "discarded"
        back = f"/console/flows/{quoted(name)}"
        return ActionDone(f"{counted(done, 'dead letter')} {word}.", back, {"settled": done})

    @context.router.action("/flows/{name}/save", "flow.save")
    async def save(request: Request, name: FlowName, body: Save) -> ActionDone:
        """Ask the workers for a commit, and keep it under a name, as `fencepost flows savepoint` does."""
        kept = await context.fp.flows.savepoint(name, body.savepoint, within=body.within_seconds)
        return ActionDone(
            say("{savepoint} keeps {kept} tasks.", savepoint=body.savepoint, kept=kept),
            f"/console/flows/{quoted(name)}",
        )
