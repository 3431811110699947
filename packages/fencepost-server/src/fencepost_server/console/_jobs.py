"""Queues and jobs: pages and actions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from pydantic import Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries, queue
from fencepost.kernel.call import document
from fencepost_server.console._read_pool import Row
from fencepost_server.console.context import ConsoleContext, MaybeId, Name, Paged, wanted
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import brief
from fencepost_server.web.questions import Confirmation, counted

State = Literal["", "pending", "dispatched", "running", "finished", "dead", "cancelled"]
STATES = ("pending", "dispatched", "running", "finished", "dead", "cancelled")
JobId = Annotated[int, Path(ge=1, le=9_223_372_036_854_775_807)]
QueueName = Annotated[str, Path(min_length=1, max_length=128, pattern=r"^[^\x00]+$")]


class JobQuery(Paged):
    state: State | None = None
    queue: Name | None = None
    kind: Name | None = None
    tag: Name | None = None
    arg: Annotated[
        Name | None, Field(description="An argument, NAME=VALUE; the value as JSON or a text.")
    ] = None
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
        raise InvalidInput(f"{given!r} names no argument; write NAME=VALUE.", field="arg")
    try:
        return {name: json.loads(value)}
    except ValueError:
        return {name: value}


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/queues", "queues.html", "Queues")
    async def queues(request: Request) -> PageData:
        """Every queue: what waits, runs and is dead; and the live workers, including idle ones."""
        seen = await context.live_snapshot.newest()
        workers = await context.reading.rows("select * from fencepost.console_workers()")
        return PageData({"queues": seen.queues, "workers": workers, "at": seen.at}, "queues", ("workers",))

    @context.router.page("/jobs", "jobs.html", "Jobs")
    async def jobs(request: Request, query: Annotated[JobQuery, Query()]) -> PageData:
        """Jobs, newest first. A filter that finds little says how far it has searched."""
        if query.id is not None:
            ids, next_before = [query.id], None
        elif (labels := query.labels) is not None:
            ids, next_before = await context.reading.page(
                "select ids, next_before from fencepost.console_job_search(%s::text[], %s::jsonb, %s::text,"
                " %s::text, %s::text, %s::bigint, %s::integer, %s::integer)",
                *labels,
                wanted(query.state),
                wanted(query.queue),
                wanted(query.kind),
                query.before,
                query.limit,
                context.settings.scan_max,
            )
        else:
            ids, next_before = await context.reading.page(
                "select ids, next_before from fencepost.console_job_page(%s::text, %s::text, %s::text,"
                " %s::bigint, %s::integer, %s::integer)",
                wanted(query.state),
                wanted(query.queue),
                wanted(query.kind),
                query.before,
                query.limit,
                context.settings.scan_max,
            )
        rows = await context.reading.rows(
            "select job_id, queue, kind, priority, state, final_status, tries, tries_max, submitted_at,"
            " run_at, claimed_at, finished_at, owner, left(error, 300) as error"
            " from fencepost.jobs where job_id = any (%s) order by job_id desc",
            ids,
        )
        return PageData(
            {"jobs": rows, "next_before": next_before, "filters": query.filters(), "states": STATES},
            rows="jobs",
        )

    @context.router.page("/jobs/{job_id}", "job.html", "Job")
    async def job(request: Request, job_id: JobId) -> PageData:
        """One job's whole history: attempts, refusals with their reasons, payload and result."""
        row = await context.reading.row("select * from fencepost.jobs where job_id = %s", job_id)
        if row is None:
            raise NotFound(f"There is no job {job_id}: it never existed, or it was pruned.")
        return PageData(
            {"title": f"Job {job_id}", "job": row, "life": await life(context, f"job:{job_id}")}, rows="life"
        )


def add_actions(context: ConsoleContext) -> None:
    async def before_pause(request: Request, queue_name: str) -> Confirmation:
        queues = {one["queue"]: one for one in (await context.live_snapshot.refresh()).queues}
        seen = queues.get(queue_name, {})
        waiting = seen.get("pending", 0) + seen.get("dispatched", 0)
        return Confirmation(
            f"Pause queue {queue_name}?",
            [
                f"No job of {queue_name} starts until it is resumed: {counted(waiting, 'job')} wait.",
                f"{counted(seen.get('running', 0), 'running job')} may finish.",
            ],
            f"Pause {queue_name}",
            "/console/queues",
        )

    async def _known(job_id: int) -> Row:
        row = await context.reading.row(
            "select job_id, kind, queue, state, owner, attempt, tries, tries_max, error"
            " from fencepost.jobs where job_id = %s",
            job_id,
        )
        if row is None:
            raise NotFound(f"There is no job {job_id}: it never existed, or it was pruned.")
        return row

    async def before_cancel(request: Request, job_id: int) -> Confirmation:
        job = await _known(job_id)
        if job["state"] == "running":
            holder = f"{job['owner']}, which runs attempt {job['attempt']},"
            ends = f"{holder} is asked to stop; its result is refused."
        else:
            ends = "It ends as cancelled at once and does not run."
        return _asked(job, "Cancel", [ends, "It can be run again from its page."])

    async def before_discard(request: Request, job_id: int) -> Confirmation:
        job = await _known(job_id)
        died = f"It died after {counted(job['tries'], 'try', 'tries')}: {brief(job['error'])}"
        return _asked(job, "Discard", [died, "It ends as cancelled, and is no dead letter any more."])

    async def before_retry(request: Request, job_id: int) -> Confirmation | None:
        job = await _known(job_id)
        if job["state"] not in ("dead", "cancelled"):
            return None
        again = f"It runs again from the beginning, with {counted(job['tries_max'], 'try', 'tries')}."
        return _asked(
            job, "Run", [again, "What its earlier attempts did outside the database may happen again."]
        )

    @context.router.action("/queues/{queue_name}/pause", "queue.pause", asks=before_pause)
    async def pause(request: Request, queue_name: QueueName) -> ActionDone:
        """No job of the queue starts; running jobs continue."""
        await context.fp.run(queue.pause(queue_name, visitor_of(request).actor))
        context.live_snapshot.forget()
        return ActionDone(f"{queue_name} is paused. Running jobs continue.", "/console/queues")

    @context.router.action("/queues/{queue_name}/resume", "queue.resume")
    async def resume(request: Request, queue_name: QueueName) -> ActionDone:
        """The queue's jobs start again."""
        await context.fp.run(queue.resume(queue_name, visitor_of(request).actor))
        context.live_snapshot.forget()
        return ActionDone(f"{queue_name} is resumed.", "/console/queues")

    @context.router.action("/jobs/{job_id}/cancel", "job.cancel", asks=before_cancel)
    async def cancel(request: Request, job_id: JobId) -> ActionDone:
        """A waiting job ends at once; a running one is asked to stop, and its finish is refused."""
        answered = await context.fp.run(kernel_job.cancel(job_id, visitor_of(request).actor))
        words = "is cancelled" if answered == "cancelled" else "was asked to stop; it will end as cancelled"
        return _done(context, f"Job {job_id} {words}.", job_id)

    @context.router.action("/jobs/{job_id}/retry", "job.retry", asks=before_retry)
    async def retry(request: Request, job_id: JobId) -> ActionDone:
        """Run it now: a waiting job at once, a dead or cancelled one from the beginning."""
        actor = visitor_of(request).actor
        seen = await context.fp.run(job_queries.look(job_id))
        match None if seen is None else seen.state:
            case ("dead" | "cancelled") as state:
                await context.fp.run(kernel_job.replay(job_id, actor, expected=state))
                return _done(context, f"Job {job_id} runs again, with all its tries.", job_id)
            case _:
                await context.fp.run(job_queries.hurry(job_id, actor))
                return _done(context, f"Job {job_id} is due now.", job_id)

    @context.router.action("/jobs/{job_id}/replay", "job.replay", asks=before_retry)
    async def replay(request: Request, job_id: JobId) -> ActionDone:
        """Run a dead job again; its attempts are counted from the beginning."""
        await context.fp.run(kernel_job.replay(job_id, visitor_of(request).actor))
        return _done(context, f"Job {job_id} runs again.", job_id)

    @context.router.action("/jobs/{job_id}/discard", "job.discard", asks=before_discard)
    async def discard(request: Request, job_id: JobId) -> ActionDone:
        """Discard a dead job: it ends as cancelled."""
        await context.fp.run(kernel_job.discard(job_id, visitor_of(request).actor))
        return _done(context, f"Job {job_id} is discarded.", job_id)


async def life(context: ConsoleContext, subject: str) -> list[dict[str, Any]]:
    """Every transition and every refusal of one subject, with the reason's meaning and what to do."""
    return await told(
        context,
        await context.reading.rows(
            "select at, event, actor, token, detail from fencepost.explain(%s)", subject
        ),
    )


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


def _asked(job: Row, verb: str, consequences: Sequence[str]) -> Confirmation:
    of = f"{job['kind']} in {job['queue']}, is {job['state']}."
    return Confirmation(
        f"{verb} job {job['job_id']}?",
        [f"Job {job['job_id']}, {of}", *consequences],
        f"{verb} job {job['job_id']}",
        f"/console/jobs/{job['job_id']}",
    )


def _done(context: ConsoleContext, message: str, job_id: int) -> ActionDone:
    context.live_snapshot.forget()
    return ActionDone(message, f"/console/jobs/{job_id}", {"job_id": job_id})
