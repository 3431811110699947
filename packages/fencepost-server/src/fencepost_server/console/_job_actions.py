"""Decisions about jobs, one by one and for those that were selected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import Request

from fencepost.errors import NotFound
from fencepost.kernel import job as kernel_job
from fencepost.kernel import job_queries
from fencepost_server.console._jobs import JobId
from fencepost_server.console._read_pool import Row
from fencepost_server.console.bulk_actions import Act, BulkActions, Choice, Number, add_bulk_actions
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import ActionDone
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import brief
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say


class JobQuestions:
    """What a person confirms, for each action."""

    def __init__(self, context: ConsoleContext) -> None:
        self._reading = context.reading

    async def _known(self, job_id: int) -> Row:
        row = await self._reading.row(
            "select job_id, kind, queue, state, owner, attempt, tries, tries_max, error"
            " from fencepost.jobs where job_id = %s",
            job_id,
        )
        if row is None:
            raise NotFound(
                say("There is no job {job_id}: it never existed, or it was pruned.", job_id=job_id)
            )
        return row

    async def cancel(self, request: Request, job_id: int) -> Confirmation:
        job = await self._known(job_id)
        if job["state"] == "running":
            holder = say("{owner}, which runs attempt {attempt},", owner=job["owner"], attempt=job["attempt"])
            ends = say("{holder} is asked to stop; its result is refused.", holder=holder)
        else:
            ends = "It ends as cancelled at once and does not run."
        return _asked(job, "Cancel", [ends, "It can be run again from its page."])

    async def discard(self, request: Request, job_id: int) -> Confirmation:
        job = await self._known(job_id)
        died = say(
            "It died after {tries}: {error}",
            tries=counted(job["tries"], "try", "tries"),
            error=brief(job["error"]),
        )
        return _asked(job, "Discard", [died, "It ends as cancelled, and is no dead letter any more."])

    async def retry(self, request: Request, job_id: int) -> Confirmation | None:
        job = await self._known(job_id)
        if job["state"] not in ("dead", "cancelled"):
            return None
        again = say(
            "It runs again from the beginning, with {tries_max}.",
            tries_max=counted(job["tries_max"], "try", "tries"),
        )
        return _asked(
            job, "Run", [again, "What its earlier attempts did outside the database may happen again."]
        )


def add_actions(context: ConsoleContext) -> None:
    questions = JobQuestions(context)

    async def states(_: Request, ids: Sequence[int]) -> Mapping[int, str]:
        rows = await context.reading.rows(
            "select job_id, state from fencepost.jobs where job_id = any (%s)", list(ids)
        )
        return {row["job_id"]: row["state"] for row in rows}

    def each(how: str) -> Act:
        async def act(job_id: int, request: Request, _: str) -> None:
            await _settle_one(context, how, job_id, visitor_of(request).actor)

        return act

    choices = {
        "cancel": Choice(
            verb="Cancel",
            done="cancelled or asked to stop",
            consequence="Waiting jobs end at once; running ones are asked to stop and their results refused.",
            act=each("cancel"),
            fits=("pending", "dispatched", "running"),
        ),
        "run": Choice(
            verb="Run",
            done="run now",
            consequence="Waiting jobs are due now; dead and cancelled ones run again, with all their tries.",
            act=each("run"),
            fits=("pending", "dispatched", "dead", "cancelled"),
        ),
        "discard": Choice(
            verb="Discard",
            done="discarded",
            consequence="They end as cancelled, and are no dead letters any more.",
            act=each("discard"),
            fits=("dead",),
        ),
    }
    add_bulk_actions(
        context,
        BulkActions(
            table="jobs",
            action="job.settle",
            one="job",
            many="jobs",
            back="/console/jobs",
            choices=choices,
            states=states,
            key=Number,
        ),
    )

    @context.router.action("/jobs/{job_id}/cancel", "job.cancel", asks=questions.cancel)
    async def cancel(request: Request, job_id: JobId) -> ActionDone:
        """A waiting job ends at once; a running one is asked to stop, and its finish is refused."""
        answered = await context.fp.run(kernel_job.cancel(job_id, visitor_of(request).actor))
        words = (
            say("is cancelled")
            if answered == "cancelled"
            else say("was asked to stop; it will end as cancelled")
        )
        return _done(context, say("Job {job_id} {words}.", job_id=job_id, words=words), job_id)

    @context.router.action("/jobs/{job_id}/retry", "job.retry", asks=questions.retry)
    async def retry(request: Request, job_id: JobId) -> ActionDone:
        """Run it now: a waiting job at once, a dead or cancelled one from the beginning."""
        again = await run_now(context, job_id, visitor_of(request).actor)
        told = say("runs again, with all its tries") if again else say("is due now")
        return _done(context, say("Job {job_id} {told}.", job_id=job_id, told=told), job_id)

    @context.router.action("/jobs/{job_id}/replay", "job.replay", asks=questions.retry)
    async def replay(request: Request, job_id: JobId) -> ActionDone:
        """Run a dead job again; its attempts are counted from the beginning."""
        await context.fp.run(kernel_job.replay(job_id, visitor_of(request).actor))
        return _done(context, say("Job {job_id} runs again.", job_id=job_id), job_id)

    @context.router.action("/jobs/{job_id}/discard", "job.discard", asks=questions.discard)
    async def discard(request: Request, job_id: JobId) -> ActionDone:
        """Discard a dead job: it ends as cancelled."""
        await context.fp.run(kernel_job.discard(job_id, visitor_of(request).actor))
        return _done(context, say("Job {job_id} is discarded.", job_id=job_id), job_id)


async def _settle_one(context: ConsoleContext, how: str, job_id: int, actor: str) -> None:
    if how == "cancel":
        await context.fp.run(kernel_job.cancel(job_id, actor))
    elif how == "discard":
        await context.fp.run(kernel_job.discard(job_id, actor))
    else:
        await run_now(context, job_id, actor)


async def run_now(context: ConsoleContext, job_id: int, actor: str) -> bool:
    """A waiting job is due at once; a dead or cancelled one runs from the beginning. Answers which."""
    seen = await context.fp.run(job_queries.look(job_id))
    match None if seen is None else seen.state:
        case ("dead" | "cancelled") as state:
            await context.fp.run(kernel_job.replay(job_id, actor, expected=state))
            return True
        case _:
            await context.fp.run(job_queries.hurry(job_id, actor))
            return False


def _asked(job: Row, verb: str, consequences: Sequence[str]) -> Confirmation:
    of = say("{kind} in {queue}, is {state}.", kind=job["kind"], queue=job["queue"], state=job["state"])
    return Confirmation(
        say("{verb} job {job_id}?", verb=verb, job_id=job["job_id"]),
        [say("Job {job_id}, {of}", job_id=job["job_id"], of=of), *consequences],
        say("{verb} job {job_id}", verb=verb, job_id=job["job_id"]),
        f"/console/jobs/{job['job_id']}",
    )


def _done(context: ConsoleContext, message: str, job_id: int) -> ActionDone:
    context.live_snapshot.forget()
    return ActionDone(message, f"/console/jobs/{job_id}", {"job_id": job_id})
