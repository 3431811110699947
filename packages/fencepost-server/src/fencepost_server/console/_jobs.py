"""Queues and jobs: pages and actions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, cast

from fastapi import Path, Query, Request
from pydantic import Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.call import document
from fencepost_server.console._read_pool import Row
from fencepost_server.console._swim_lanes import instant
from fencepost_server.console.context import ConsoleContext, MaybeId, Name, Paged, wanted
from fencepost_server.console.listing import Listing
from fencepost_server.console.page_data import PageData
from fencepost_server.web.formatting import quoted
from fencepost_server.web.words import say

State = Literal[
    "", "pending", "scheduled", "retrying", "dispatched", "running", "finished", "dead", "cancelled"
]
STATES = ("pending", "scheduled", "retrying", "dispatched", "running", "finished", "dead", "cancelled")
JobId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]


SUGGESTED_MAX = 200
_JOBS = Listing(
    table="jobs",
    sql="select job_id, queue, kind, priority, state, run_at > fencepost.clock() as is_later,"
    " final_status, tries, tries_max, submitted_at, run_at, claimed_at, finished_at, owner,"
    " left(error, 300) as error"
    " from fencepost.jobs where job_id = any (%(ids)s) order by job_id desc",
    key=("job_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "job_id": "bigint",
        "state": "text",
        "queue": "text",
        "kind": "text",
        "tries": "bigint",
        "submitted_at": "timestamptz",
        "finished_at": "timestamptz",
        "error": "text",
    },
)


class JobQuery(Paged):
    state: State | None = None
    queue: Name | None = None
    kind: Name | None = None
    tag: Name | None = None
    arg: Annotated[
        Name | None, Field(description="An argument, NAME=VALUE; the value as JSON or a text.")
    ] = None
    part: Annotated[Name | None, Field(description="A part of the kind, of a tag or of the arguments.")] = (
        None
    )
    owner: Annotated[Name | None, Field(description="The jobs that this worker runs.")] = None
    id: MaybeId = None

    @property
    def labels(self) -> tuple[list[str], str] | None:
        """The tags and the arguments that are searched, as JSON; None for neither."""
        if not (self.tag or self.arg):
            return None
        arguments = searched_argument(self.arg) if self.arg else {}
        return [self.tag] if self.tag else [], document("arg", arguments)


def searched_argument(given: str) -> dict[str, Any]:
    """The argument that a search names, NAME=VALUE. A value that is no JSON is a text."""
    name, equals, value = given.partition("=")
    if not (name and equals):
        raise InvalidInput(
            say("{given} names no argument; write NAME=VALUE.", given=f"{given!r}"), field="arg"
        )
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/jobs", "jobs.html", "Jobs")
    async def jobs(request: Request, query: Annotated[JobQuery, Query()]) -> PageData:
        """Jobs, newest first. A filter that finds little says how far it has searched."""
        page = await context.lists.read(
            _JOBS,
            query,
            query.limit,
            ids=lambda before, limit: _page(context, query, before, limit),
        )
        return PageData(
            {
                "jobs": [{**row, "phase": phase(row)} for row in page.rows],
                **page.next,
                "filters": query.filters(),
                "states": STATES,
                "suggestions": await _suggestions(context),
            },
            "jobs",
            lists={"jobs": page.state},
        )

    @context.router.page("/jobs/{job_id}", "job.html", "Job")
    async def job(request: Request, job_id: JobId) -> PageData:
        """One job's whole history: attempts, refusals with their reasons, payload and result."""
        row = await context.reading.row(
            "select *, run_at > fencepost.clock() as is_later from fencepost.jobs where job_id = %s", job_id
        )
        if row is None:
            raise NotFound(
                say("There is no job {job_id}: it never existed, or it was pruned.", job_id=job_id)
            )
        batches = await context.reading.rows(
            "select o.role, b.* from fencepost.console_job_batches(%s) o"
            " join fencepost.batches b on b.batch_id = o.batch_id order by b.batch_id limit 50",
            job_id,
        )
        return PageData(
            {
                "title": f"Job {job_id}",
                "job": {**row, "phase": phase(row)},
                "is_live": row["state"] in ("pending", "dispatched", "running"),
                "is_workflow": "workflow" in (row["headers"] or {}),
                "trace_url": _trace_url(context.settings.trace_url, row["headers"] or {}),
                "progress_part": progress_part(row["progress"]),
                "batches": batches,
                "life": await life(context, f"job:{job_id}"),
            },
            "life",
            ("batches",),
        )


async def _page(
    context: ConsoleContext, query: JobQuery, before: int | None, limit: int
) -> tuple[list[int], int | None]:
    """The ids of one page of the jobs that a query selects, newest first, and where the next page begins."""
    if query.id is not None:
        return [query.id], None
    if owner := wanted(query.owner):
        return await context.reading.page(
            "select ids, next_before"
            " from fencepost.console_job_owner_page(%s::text, %s::bigint, %s::integer)",
            owner,
            before,
            limit,
        )
    if part := wanted(query.part):
        return await context.reading.page(
            "select ids, next_before from fencepost.console_job_part_page(%s::text, %s::text, %s::text,"
            " %s::bigint, %s::integer, %s::integer)",
            part,
            wanted(query.state),
            wanted(query.queue),
            before,
            limit,
            context.settings.scan_max,
        )
    if (labels := query.labels) is not None:
        return await context.reading.page(
            "select ids, next_before from fencepost.console_job_search(%s::text[], %s::jsonb, %s::text,"
            " %s::text, %s::text, %s::bigint, %s::integer, %s::integer)",
            *labels,
            wanted(query.state),
            wanted(query.queue),
            wanted(query.kind),
            before,
            limit,
            context.settings.scan_max,
        )
    return await context.reading.page(
        "select ids, next_before from fencepost.console_job_page(%s::text, %s::text, %s::text,"
        " %s::bigint, %s::integer, %s::integer)",
        wanted(query.state),
        wanted(query.queue),
        wanted(query.kind),
        before,
        limit,
        context.settings.scan_max,
    )


def phase(job: Row) -> str:
    """The state, told apart: a job that is due later was submitted for then, or a try of it failed."""
    if job["state"] == "pending" and job["is_later"]:
        return "retrying" if job["tries"] else "scheduled"
    return str(job["state"])


def _trace_url(template: str | None, headers: Mapping[str, Any]) -> str | None:
    """Where the trace of a job is shown, as CONSOLE_TRACE_URL says."""
    trace_id = headers.get("trace_id")
    if template is None or not isinstance(trace_id, str):
        return None
    return template.replace("{trace_id}", quoted(trace_id))


def progress_part(progress: object) -> float | None:
    """How much is done, 0 to 1: of a number, or of `done` and `total`. None when it says neither."""
    if isinstance(progress, Mapping):
        facts = cast("Mapping[str, object]", progress)
        done, total = facts.get("done"), facts.get("total")
    else:
        done, total = progress, 1
    if not (_is_figure(done) and _is_figure(total)):
        return None
    done, total = float(cast("float", done)), float(cast("float", total))
    return done / total if total > 0 and 0 <= done <= total else None


def _is_figure(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


async def _suggestions(context: ConsoleContext) -> dict[str, list[str]]:
    """What a filter may mean: the queues that are seen, and the kinds that live workers serve."""
    seen = await context.live_snapshot.newest()
    return {"queues": [queue["queue"] for queue in seen.queues][:SUGGESTED_MAX], "kinds": list(seen.kinds)}


async def life(context: ConsoleContext, subject: str) -> list[dict[str, Any]]:
    """Every transition and every refusal of one subject, with the reason's meaning and what to do."""
    moments = await context.reading.rows(
        "select at, event, actor, token, detail from fencepost.explain(%s)", subject
    )
    return await told(context, with_claims(moments))


def with_claims(moments: Sequence[Row]) -> list[Row]:
    """A history with each claim in its place: that of an attempt that has ended is recorded with its end."""
    known = {moment["token"] for moment in moments if moment["event"] == "claimed"}
    claims: dict[int, Row] = {}
    for moment in moments:
        at, token = instant(moment["detail"].get("claimed_at")), moment["token"]
        if at is not None and token is not None and token not in known:
            claim: Row = {
                "at": at,
                "event": "claimed",
                "actor": moment["actor"],
                "token": token,
                "detail": {},
            }
            claims.setdefault(token, claim)
    return sorted([*moments, *claims.values()], key=lambda moment: moment["at"])


async def told(context: ConsoleContext, moments: Sequence[Row]) -> list[dict[str, Any]]:
    """Moments of a history, each with the time since the one before it; a refusal with its meaning."""
    reasons = {
        one["reason"]: one
        for one in await context.reading.rows("select reason, meaning, remedy from fencepost.refusal_status")
    }
    history: list[dict[str, Any]] = []
    for moment in moments:
        reason = reasons.get(moment["event"].removeprefix("refused:"))
        refused = moment["event"].startswith("refused:")
        history.append(
            {
                **moment,
                "detail": {name: value for name, value in moment["detail"].items() if name != "traceback"},
                "traceback": moment["detail"].get("traceback"),
                "refused": refused,
                "meaning": reason["meaning"] if refused and reason else None,
                "remedy": reason["remedy"] if refused and reason else None,
                "since_seconds": (moment["at"] - history[-1]["at"]).total_seconds() if history else None,
            }
        )
    return history
