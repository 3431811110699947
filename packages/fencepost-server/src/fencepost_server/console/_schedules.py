"""Schedules: what fires when, what each submitted, and changes at run time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Path, Query, Request
from pydantic import BaseModel, BeforeValidator, Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.schedule import Missed
from fencepost_server.console._cron_words import in_words
from fencepost_server.console._jobs import life
from fencepost_server.console.context import ConsoleContext, Limit, Name, following
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import quoted
from fencepost_server.web.questions import Confirmation

MISSED = ("once", "all", "skip")
ScheduleName = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
Word = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
PAGE = "/console/schedules"


def _unless_empty(value: object) -> object:
    """A form sends every field; an empty one leaves it as it is."""
    return None if value == "" else value


MaybeWord = Annotated[Word | None, BeforeValidator(_unless_empty)]
MaybeMissed = Annotated[Missed | None, BeforeValidator(_unless_empty)]
MaybeDocument = Annotated[str | None, Field(max_length=65_536), BeforeValidator(_unless_empty)]
MaybeMoment = Annotated[datetime | None, BeforeValidator(_unless_empty)]


class ScheduleQuery(BaseModel):
    after: Name | None = None
    limit: Limit = 200


class HistoryQuery(BaseModel):
    before: MaybeMoment = None
    limit: Limit = 50


class ChangeSchedule(BaseModel):
    model_config = {"extra": "forbid"}

    expression: MaybeWord = None
    zone: MaybeWord = None
    missed: MaybeMissed = None
    arguments: MaybeDocument = None
    """A JSON object."""


class NewSchedule(BaseModel):
    model_config = {"extra": "forbid"}

    name: Word
    expression: Word
    kind: Word
    queue: Word
    zone: Word = "UTC"
    missed: Missed = "once"
    arguments: MaybeDocument = None
    """A JSON object."""


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/schedules", "schedules.html", "Schedules")
    async def schedules(request: Request, query: Annotated[ScheduleQuery, Query()]) -> PageData:
        """The schedules that submit jobs, retired ones too."""
        rows = await context.reading.rows(
            "select * from fencepost.schedules where name > %s order by name limit %s",
            query.after or "",
            query.limit,
        )
        facts = {
            "schedules": [{**row, "words": in_words(row["expression"], row["zone"])} for row in rows],
            "next_after": following(rows, "name", query.limit),
            "filters": {"limit": query.limit if query.limit != 200 else None},
            "missed": MISSED,
        }
        return PageData(facts, rows="schedules")

    @context.router.page("/schedules/{name}", "schedule.html", "Schedule")
    async def schedule(
        request: Request, name: ScheduleName, query: Annotated[HistoryQuery, Query()]
    ) -> PageData:
        """One schedule: the jobs that it submitted, and what was decided about it."""
        row = await context.reading.row("select * from fencepost.schedules where name = %s", name)
        if row is None:
            raise NotFound(f"There is no schedule {name}.")
        jobs = await context.reading.rows(
            "select tick, fired_at, job_id, actor, state, final_status"
            " from fencepost.schedule_history(%s::text, %s::timestamptz, %s::integer)",
            name,
            query.before,
            query.limit,
        )
        facts = {
            "title": f"Schedule {name}",
            "schedule": {**row, "words": in_words(row["expression"], row["zone"])},
            "jobs": jobs,
            "next_before": following(jobs, "tick", query.limit),
            "filters": {"limit": query.limit if query.limit != 50 else None},
            "life": await life(context, f"schedule:{name}"),
            "missed": MISSED,
        }
        return PageData(facts, "jobs", ("life",))


def add_actions(context: ConsoleContext) -> None:
    schedules = context.fp.schedules

    def asked(verb: str, consequence: str) -> Callable[..., Awaitable[Confirmation]]:
        async def ask(request: Request, name: str) -> Confirmation:
            stored = await schedules.get(name)
            when = f"{stored.expression} ({in_words(stored.expression, stored.zone)})"
            return Confirmation(
                f"{verb} schedule {name}?",
                [f"Schedule {name} submits {stored.kind} to {stored.queue}: {when}.", consequence],
                f"{verb} {name}",
                f"{PAGE}/{quoted(name)}",
            )

        return ask

    @context.router.action("/schedules", "schedule.add")
    async def add(request: Request, body: NewSchedule) -> ActionDone:
        """Add a schedule. It stays until it is removed, whatever the code declares."""
        added = await schedules.add(
            body.name,
            body.expression,
            body.kind,
            queue=body.queue,
            zone=body.zone,
            missed=body.missed,
            arguments=_document(body.arguments),
            actor=visitor_of(request).actor,
        )
        return ActionDone(f"{body.name} is added.", PAGE, {"next_tick": added.next_tick.isoformat()})

    @context.router.action("/schedules/{name}/change", "schedule.change")
    async def change(request: Request, name: ScheduleName, body: ChangeSchedule) -> ActionDone:
        """Change a schedule. The change counts, also after a deployment, until it is reset."""
        stored = await schedules.get(name)
        # A form sends what was not touched, too: that is no change.
        changed = await schedules.change(
            name,
            expression=None if body.expression == stored.expression else body.expression,
            zone=None if body.zone == stored.zone else body.zone,
            missed=None if body.missed == stored.missed else body.missed,
            arguments=_document(body.arguments),
            actor=visitor_of(request).actor,
        )
        return ActionDone(f"{name} is changed.", PAGE, {"next_tick": changed.next_tick.isoformat()})

    @context.router.action(
        "/schedules/{name}/reset",
        "schedule.reset",
        asks=asked("Reset", "All changes made at run time are lost: what the code declares counts."),
    )
    async def reset(request: Request, name: ScheduleName) -> ActionDone:
        """Undo the changes: what the code declares counts again."""
        await schedules.reset(name, actor=visitor_of(request).actor)
        return ActionDone(f"{name} is as its code declares it.", PAGE)

    @context.router.action(
        "/schedules/{name}/remove",
        "schedule.remove",
        asks=asked("Remove", "It fires no more. Its jobs and their history stay."),
    )
    async def remove(request: Request, name: ScheduleName) -> ActionDone:
        """Remove a schedule that no live worker declares."""
        await schedules.remove(name, actor=visitor_of(request).actor)
        return ActionDone(f"{name} is removed.", PAGE)

    @context.router.action("/schedules/{name}/revive", "schedule.revive")
    async def revive(request: Request, name: ScheduleName) -> ActionDone:
        """Bring a retired schedule back, although no live worker declares it."""
        await schedules.revive(name, actor=visitor_of(request).actor)
        return ActionDone(f"{name} fires again.", PAGE)

    @context.router.action("/schedules/{name}/run", "schedule.run")
    async def run(request: Request, name: ScheduleName) -> ActionDone:
        """Submit the schedule's job now. Its ticks go on as they were."""
        job = await schedules.run_now(name, actor=visitor_of(request).actor)
        done = (
            f"{name} submitted job {job.job_id}." if job.created else f"Job {job.job_id} was there already."
        )
        return ActionDone(done, PAGE, {"job_id": job.job_id})

    @context.router.action(
        "/schedules/{name}/pause",
        "schedule.pause",
        asks=asked("Pause", "Its ticks are skipped until it is resumed."),
    )
    async def pause(request: Request, name: ScheduleName) -> ActionDone:
        """Skip the schedule's ticks while it is paused."""
        await schedules.pause(name, actor=visitor_of(request).actor)
        return ActionDone(f"{name} is paused.", PAGE)

    @context.router.action("/schedules/{name}/resume", "schedule.resume")
    async def resume(request: Request, name: ScheduleName) -> ActionDone:
        """Resume the schedule."""
        await schedules.resume(name, actor=visitor_of(request).actor)
        return ActionDone(f"{name} fires again.", PAGE)


def _document(text: str | None) -> dict[str, Any] | None:
    """The arguments of a form: an object, or nothing."""
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"arguments is no JSON: {error}.", field="arguments") from None
    if not isinstance(parsed, dict):
        raise InvalidInput('arguments must be an object, such as {"scope": "eu"}.', field="arguments")
    return cast("dict[str, Any]", parsed)
