"""Workflows: lists, one workflow's timeline, and the decisions of operators."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel, Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel import _event as kernel_event
from fencepost.kernel import _workflow as kernel_workflow
from fencepost.kernel import _workflow_operator as operator
from fencepost.kernel import job as kernel_job
from fencepost.kernel import schedule
from fencepost_server.console import _timeline as timeline
from fencepost_server.console._jobs import STATES, JobId, State, searched_argument, told, with_claims
from fencepost_server.console._read_pool import Row
from fencepost_server.console.bulk_actions import Act, BulkActions, Choice, Number, add_bulk_actions
from fencepost_server.console.context import LAST_ID, ConsoleContext, MaybeId, Name, Paged, wanted
from fencepost_server.console.listing import Listing
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import brief, link
from fencepost_server.web.forms import Id
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

# The most that one request decides about: the page continues with the next batch by itself.
BATCH_MAX = 500
SAMPLE_MAX = 20
COUNT_MAX = 10_000
"""The most that are looked at for one count of what a filter selects."""
LIFE_MAX = 200
"""The moments of its life that a page tells: the newest."""
_VERSION_QUEUE = re.compile(r"(?P<queue>[^/]+)/(?P<name>[^/@]+)@(?P<version>[0-9]{1,9})")
_WORKFLOWS = Listing(
    table="workflows",
    sql="select * from fencepost.workflow_rows(%(ids)s::bigint[])",
    key=("job_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "job_id": "bigint",
        "state": "text",
        "name": "text",
        "version": "bigint",
        "steps": "bigint",
        "attempt": "bigint",
        "submitted_at": "timestamptz",
        "finished_at": "timestamptz",
        "error": "text",
    },
    searched=("name", "state", "error", "waits::text"),
    weight=2,
)
_STEPS = Listing(
    table="steps",
    sql="select step_id, name, what, attempt, at, undo ->> 'kind' as undo, undone_by,"
    " case when pg_column_size(result) <= 65536 then result end as result"
    " from fencepost.workflow_steps where job_id = %(job_id)s"
    " and step_id < coalesce(%(before)s::bigint, 9223372036854775807)"
    " order by step_id desc limit %(limit)s",
    key=("step_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "step_id": "bigint",
        "name": "text",
        "what": "text",
        "attempt": "bigint",
        "at": "timestamptz",
        "undo": "text",
    },
    searched=("name", "what"),
)
_SETTLED = ("cancelled", "requested", "replayed")
How = Literal["cancel", "replay"]
Waits = Literal["", "event", "time"]


class Selection(BaseModel):
    """Which workflows are meant."""

    state: State | None = None
    name: Name | None = None
    waits: Annotated[Waits | None, Field(description="Parked for an event, or for the time alone.")] = None
    tag: Name | None = None
    arg: Annotated[
        Name | None, Field(description="An argument, NAME=VALUE; the value as JSON or a text.")
    ] = None

    @property
    def selected(self) -> operator.WorkflowFilter:
        return operator.WorkflowFilter(
            wanted(self.state),
            wanted(self.name),
            self.waits or None,
            [self.tag] if self.tag else [],
            searched_argument(self.arg) if self.arg else {},
        )

    @property
    def terms(self) -> dict[str, Any]:
        """The parameters of the filter that are given."""
        fields = Selection.model_fields
        return {name: value for name, value in self.model_dump().items() if name in fields and value}


class WorkflowQuery(Paged, Selection):
    id: MaybeId = None


class OneWorkflowQuery(Paged):
    """The steps older than the step id `before`."""

    limit: Annotated[int, Field(ge=1, le=1000, description="Steps on one page.")] = 100


class PreviewQuery(Selection):
    how: How = "cancel"
    up_to: Annotated[
        MaybeId, Field(description="Workflows with a higher id were started later: they are not meant.")
    ] = None


class Settle(Selection):
    """Cancel the live ones of a selection, or replay its dead ones: those up to the id `up_to`."""

    model_config = {"extra": "forbid"}

    how: How
    up_to: Id
    limit: Annotated[int, Field(ge=1, le=BATCH_MAX)] = BATCH_MAX


class Emission(BaseModel):
    model_config = {"extra": "forbid"}

    event: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\x00]+$")]
    payload: Annotated[str, Field(max_length=65_536, description="A JSON document, as text.")] = "null"


class RetryFrom(BaseModel):
    model_config = {"extra": "forbid"}

    step: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/workflows", "workflows.html", "Workflows")
    async def workflows(request: Request, query: Annotated[WorkflowQuery, Query()]) -> PageData:
        """Workflows, newest first, and how many live on which version. A filter that finds little says how
        far it has searched."""
        page = await context.lists.read(
            _WORKFLOWS, query, query.limit, ids=lambda before, limit: _page(context, query, before, limit)
        )
        return PageData(
            {
                "workflows": page.rows,
                **page.next,
                "versions": _versions((await context.live_snapshot.newest()).queues),
                "filters": query.filters(),
                "terms": query.terms,
                "states": STATES,
            },
            "workflows",
            ("versions",),
            {"workflows": page.state},
        )

    @context.router.page("/workflows/preview", "workflows_preview.html", "Many workflows")
    async def preview(request: Request, query: Annotated[PreviewQuery, Query()]) -> PageData:
        """How many workflows a decision would be about, and the first of them. Changes nothing."""
        ids, onward = await _meant(context, query, query.how, query.up_to)
        return PageData(
            {
                "how": query.how,
                "count": len(ids),
                "more": onward is not None,
                "up_to": query.up_to if query.up_to is not None else max(ids, default=0),
                "sample": await _rows(context, ids[:SAMPLE_MAX]),
                "filters": query.terms,
                "batch": BATCH_MAX,
            },
            rows="sample",
        )

    @context.router.page("/workflows/{job_id}", "workflow.html", "Workflow")
    async def workflow(
        request: Request, job_id: JobId, query: Annotated[OneWorkflowQuery, Query()]
    ) -> PageData:
        """One workflow: its timeline, steps, waits, children, compensations, and every refusal."""
        row = await context.reading.row(
            "select * from fencepost.jobs where job_id = %s and headers ? 'workflow'", job_id
        )
        if row is None:
            raise NotFound(
                say(
                    "There is no workflow {job_id}: it never existed, it is a plain job, or it was pruned.",
                    job_id=job_id,
                )
            )
        page = await context.lists.read(_STEPS, query, query.limit, {"job_id": job_id})
        # In natural order the newest page, the oldest of its steps first.
        steps = list(page.rows if page.state.sort else reversed(page.rows))
        names = [step["name"] for step in steps]
        now = await context.fp.run(schedule.clock())
        waits = await context.reading.rows(
            "select w.name, w.event, w.deadline, w.since, e.at as emitted_at, e.actor as emitted_by"
            " from fencepost.workflow_waits w left join fencepost.workflow_events e on e.event = w.event"
            " where w.job_id = %s and (w.event is not null or w.deadline > %s) order by w.since, w.name",
            job_id,
            now,
        )
        children = await context.reading.rows(
            "select s.name, b.batch_id, b.size, b.remaining, b.finished, b.dead, b.cancelled, b.completed_at,"
            " (s.result #>> '{jobs, 0}')::bigint as first_job_id"
            " from fencepost.workflow_steps s join fencepost.batches b"
            " on b.batch_id = (s.result ->> 'batch')::bigint"
            " where s.job_id = %s and s.what = 'spawn' and s.name = any (%s) order by s.step_id",
            job_id,
            names,
        )
        undo = await context.reading.rows(
            "select s.name as step, j.job_id, j.kind, j.state, j.submitted_at, j.finished_at, j.error"
            " from fencepost.workflow_steps s join fencepost.jobs j on j.job_id = s.undone_by"
            " where s.job_id = %s and s.name = any (%s) order by s.step_id desc",
            job_id,
            names,
        )
        recorded = await context.reading.rows(
            "select at, event, actor, token, detail from fencepost.workflow_life(%s, %s)", job_id, LIFE_MAX
        )
        moments = await told(context, with_claims(recorded))
        begun = min((row["submitted_at"], *(step["at"] for step in steps)))
        spans = timeline.spans(row, steps, waits, children, undo, moments, now)
        described = row["headers"]["workflow"]
        of = f"{described.get('name')}@{described.get('version')}"
        return PageData(
            {
                "title": say("Workflow {job_id}", job_id=job_id),
                "workflow": row,
                "of": of,
                "name": described.get("name"),
                "is_live": row["state"] not in ("finished", "dead", "cancelled"),
                "steps": steps,
                **page.next,
                "waits": waits,
                "children": children,
                "undo": undo,
                "life": moments,
                "timeline": timeline.lay_out(say("workflow {job_id}", job_id=job_id), spans, begun)
                if request.url.path.startswith("/console")
                else None,
                "filters": query.filters(),
            },
            "steps",
            ("waits", "children", "undo"),
            {"steps": page.state},
        )


class WorkflowQuestions:
    """What a person confirms, for each action."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context

    async def settle(self, request: Request, body: Settle) -> Confirmation:
        ids, _ = await _meant(self._context, body, body.how, body.up_to)
        count = min(len(ids), body.limit)
        verb = "Replay" if body.how == "replay" else "Cancel"
        ends = (
            "Each goes on after its recorded steps."
            if body.how == "replay"
            else "Each ends as cancelled, and its steps are undone, newest first."
        )
        terms = ", ".join(f"{name} {value}" for name, value in body.terms.items()) or say("every workflow")
        told = say(
            "{count} of {terms}, up to the id {up_to}.",
            count=counted(count, "workflow"),
            terms=terms,
            up_to=body.up_to,
        )
        back = link("/console/workflows/preview", **body.terms, how=body.how, up_to=body.up_to)
        return Confirmation(f"{verb} {counted(count, 'workflow')}?", [told, ends], f"{verb} {count:,}", back)

    async def _about(self, job_id: int) -> tuple[str, int]:
        row = await self._context.reading.row(
            "select headers -> 'workflow' ->> 'name' as name, state,"
            " (select count(*) from fencepost.workflow_steps s where s.job_id = j.job_id) as steps"
            " from fencepost.jobs j where job_id = %s and headers ? 'workflow'",
            job_id,
        )
        if row is None:
            raise NotFound(say("There is no workflow {job_id}.", job_id=job_id))
        return say(
            "Workflow {job_id}, {name}, is {state}.", job_id=job_id, name=row["name"], state=row["state"]
        ), row["steps"]

    @staticmethod
    def _question(job_id: int, verb: str, consequences: Sequence[str], what: str = "") -> Confirmation:
        answer = f"{verb} {what or f'workflow {job_id}'}"
        return Confirmation(f"{answer}?", consequences, answer, f"/console/workflows/{job_id}")

    async def cancel(self, request: Request, job_id: int) -> Confirmation:
        told, steps = await self._about(job_id)
        undone = say(
            "Its next step is refused. Of {steps}, those with an undo are undone.",
            steps=counted(steps, "recorded step"),
        )
        return self._question(job_id, "Cancel", [told, undone])

    async def replay(self, request: Request, job_id: int) -> Confirmation:
        told, steps = await self._about(job_id)
        return self._question(
            job_id,
            "Replay",
            [told, say("It runs again, after {steps}.", steps=counted(steps, "recorded step"))],
        )

    async def retry_from(self, request: Request, job_id: int, body: RetryFrom) -> Confirmation:
        told, _ = await self._about(job_id)
        row = await self._context.reading.row(
            "select count(*) as dropped from fencepost.workflow_steps s"
            " where s.job_id = %s and s.step_id >= ("
            "select f.step_id from fencepost.workflow_steps f where f.job_id = %s and f.name = %s)",
            job_id,
            job_id,
            body.step,
        )
        dropped = row["dropped"] if row is not None else 0
        again = say(
            "It forgets {dropped}, from {step} on, and runs again.",
            dropped=counted(dropped, "step"),
            step=body.step,
        )
        return self._question(
            job_id,
            "Retry",
            [told, again],
            say("workflow {job_id} from {step}", job_id=job_id, step=body.step),
        )

    async def emit(self, request: Request, job_id: int, body: Emission) -> Confirmation:
        told, _ = await self._about(job_id)
        emitted = say(
            "{event} is emitted by {name} with {payload}.",
            event=body.event,
            name=visitor_of(request).name,
            payload=brief(body.payload),
        )
        final = "The first emission counts; it cannot be taken back."
        return self._question(job_id, "Emit", [told, emitted, final], body.event)


def _add_bulk_actions(context: ConsoleContext) -> None:
    async def states(_: Request, ids: Sequence[int]) -> Mapping[int, str]:
        return {row["job_id"]: row["state"] for row in await _rows(context, ids)}

    def each(how: How) -> Act:
        async def act(job_id: int, request: Request, _: str) -> None:
            (settled,) = await context.fp.run(operator.settle([job_id], how, visitor_of(request).actor))
            if settled.outcome not in _SETTLED:
                raise InvalidInput(
                    say("Workflow {job_id}: {outcome}.", job_id=job_id, outcome=settled.outcome)
                )

        return act

    choices = {
        "cancel": Choice(
            verb="Cancel",
            done="cancelled, or asked to stop",
            consequence="Each ends as cancelled, and its steps are undone, newest first.",
            act=each("cancel"),
            fits=("pending", "dispatched", "running"),
        ),
        "replay": Choice(
            verb="Replay",
            done="replayed",
            consequence="Each goes on after its recorded steps.",
            act=each("replay"),
            fits=("dead",),
        ),
    }
    actions = BulkActions(
        table="workflows",
        action="workflow.selected",
        one="workflow",
        many="workflows",
        back="/console/workflows",
        choices=choices,
        states=states,
        key=Number,
    )
    add_bulk_actions(context, actions)


def add_actions(context: ConsoleContext) -> None:
    _add_bulk_actions(context)
    questions = WorkflowQuestions(context)

    @context.router.action("/workflows/settle", "workflow.settle", asks=questions.settle)
    async def settle(request: Request, body: Settle) -> ActionDone:
        """Cancel or replay what is selected, at most `limit` of them. Repeated, it goes on."""
        ids, onward = await _meant(context, body, body.how, body.up_to)
        meant = ids[: body.limit]
        settled = await context.fp.run(operator.settle(meant, body.how, visitor_of(request).actor))
        done = sum(one.outcome in _SETTLED for one in settled)
        context.live_snapshot.forget()
        # Onward from the last one, so that those that were refused are not asked for again.
        next_up_to = onward if len(ids) <= body.limit else max(0, meant[-1] - 1)
        word = say("replayed") if body.how == "replay" else say("cancelled, or asked to stop")
        message = say("{done} {word}; {what} refused.", done=done, word=word, what=len(settled) - done)
        facts = {"settled": done, "refused": len(settled) - done, "next_up_to": next_up_to}
        if next_up_to is None:
            return ActionDone(message, "/console/workflows", facts)
        back = link("/console/workflows/preview", **body.terms, how=body.how, up_to=next_up_to)
        return ActionDone(say("{message} There are more.", message=message), back, facts)

    @context.router.action("/workflows/{job_id}/cancel", "workflow.cancel", asks=questions.cancel)
    async def cancel(request: Request, job_id: JobId) -> ActionDone:
        """A waiting workflow ends at once; the next step of a running one is refused. Its steps are
        undone."""
        await _require(context, job_id)
        answered = await context.fp.run(kernel_job.cancel(job_id, visitor_of(request).actor))
        words = (
            say("is cancelled")
            if answered == "cancelled"
            else say("was asked to stop; its next step is refused")
        )
        return _done(context, say("Workflow {job_id} {words}.", job_id=job_id, words=words), job_id)

    @context.router.action("/workflows/{job_id}/replay", "workflow.replay", asks=questions.replay)
    async def replay(request: Request, job_id: JobId) -> ActionDone:
        """Run a dead workflow again, after the steps that are recorded."""
        await _require(context, job_id)
        await context.fp.run(kernel_job.replay(job_id, visitor_of(request).actor))
        return _done(
            context, say("Workflow {job_id} runs again, after its recorded steps.", job_id=job_id), job_id
        )

    @context.router.action("/workflows/{job_id}/retry-from", "workflow.retry_from", asks=questions.retry_from)
    async def retry_from(request: Request, job_id: JobId, body: RetryFrom) -> ActionDone:
        """Run a dead or cancelled workflow again from a step: that one and all later ones are dropped."""
        await _require(context, job_id)
        await context.fp.run(kernel_workflow.retry_from(job_id, body.step, visitor_of(request).actor))
        return _done(
            context, say("Workflow {job_id} runs again from {step}.", job_id=job_id, step=body.step), job_id
        )

    @context.router.action("/workflows/{job_id}/emit", "workflow.emit", asks=questions.emit)
    async def emit(request: Request, job_id: JobId, body: Emission) -> ActionDone:
        """Emit an event that the workflow waits for, as an approval does. The first emission stays."""
        try:
            payload = json.loads(body.payload)
        except ValueError as error:
            raise InvalidInput(
                say("payload is no JSON document: {error}", error=error), field="payload"
            ) from None
        await _require(context, job_id)
        waits = await context.reading.row(
            "select 1 from fencepost.workflow_waits where job_id = %s and event = %s", job_id, body.event
        )
        if waits is None:
            raise NotFound(
                say("Workflow {job_id} does not wait for {event}.", job_id=job_id, event=body.event)
            )
        first = await context.fp.run(kernel_event.emit(body.event, payload, actor=visitor_of(request).actor))
        words = say("is emitted") if first else say("was emitted before; the first emission counts")
        return _done(context, f"{body.event} {words}.", job_id, emitted=first)


def _versions(queues: Sequence[Row]) -> list[Row]:
    """How many live on which version, and how many of it are dead: each version has a queue of its own. Every
    viewer asks this, and one snapshot answers all of them."""
    found = [(_VERSION_QUEUE.fullmatch(queue["queue"]), queue) for queue in queues]
    return [
        {
            "name": named["name"],
            "version": int(named["version"]),
            "queue": named["queue"],
            "waiting": queue["pending"] + queue["dispatched"],
            "running": queue["running"],
            "dead": queue["dead"],
        }
        for named, queue in found
        if named is not None
    ]


async def _page(
    context: ConsoleContext, query: WorkflowQuery, before: int | None, limit: int
) -> tuple[Sequence[int], int | None]:
    if query.id is not None:
        return [query.id], None
    call = operator.page(query.selected, before_id=before, limit=limit, scan_max=context.settings.scan_max)
    return await context.reading.page(call.sql, *call.arguments)


async def _rows(context: ConsoleContext, ids: Sequence[int]) -> Sequence[Row]:
    return await context.reading.rows("select * from fencepost.workflow_rows(%s::bigint[])", list(ids))


async def _meant(
    context: ConsoleContext, query: Selection, how: How, up_to: int | None
) -> tuple[list[int], int | None]:
    """The ids that a decision is about, newest first: the live ones for a cancel, the dead ones for a replay.
    And the id from which on others were not looked at yet."""
    possible = ("dead",) if how == "replay" else ("live", "pending", "dispatched", "running")
    state = query.state or possible[0]
    if state not in possible:
        return [], None
    before = None if up_to is None else min(LAST_ID, up_to + 1)
    selected = replace(query.selected, state=state)
    call = operator.page(selected, before_id=before, limit=COUNT_MAX, scan_max=COUNT_MAX)
    ids, following = await context.reading.page(call.sql, *call.arguments)
    return ids, None if following is None else following - 1


async def _require(context: ConsoleContext, job_id: int) -> None:
    known = "select 1 from fencepost.jobs where job_id = %s and headers ? 'workflow'"
    if await context.reading.row(known, job_id) is None:
        raise NotFound(say("There is no workflow {job_id}.", job_id=job_id))


def _done(context: ConsoleContext, message: str, job_id: int, **facts: Any) -> ActionDone:
    context.live_snapshot.forget()
    return ActionDone(message, f"/console/workflows/{job_id}", {"job_id": job_id, **facts})
