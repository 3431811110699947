"""Schedules: what fires when, what each submitted, and changes at run time."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, cast

from fastapi import Path, Query, Request
from pydantic import BaseModel, BeforeValidator, Field

from fencepost.errors import InvalidInput, NotFound
from fencepost.kernel.schedule import Missed
from fencepost_server.console._cron_words import in_words
from fencepost_server.console._jobs import life
from fencepost_server.console.bulk_actions import BulkActions, Choice, add_bulk_actions
from fencepost_server.console.context import ConsoleContext, Limit, Name
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import quoted
from fencepost_server.web.questions import Confirmation
from fencepost_server.web.words import say

MISSED = ("once", "all", "skip")
_SCHEDULES = Listing(
    table="schedules",
    sql="select * from fencepost.schedules where name > coalesce(%(after)s::text, '')"
    " order by name limit %(limit)s",
    key=("name",),
    positions=("after",),
    is_descending=False,
    columns={
        "name": "text",
        "expression": "text",
        "zone": "text",
        "queue": "text",
        "kind": "text",
        "next_tick": "timestamptz",
        "last_tick": "timestamptz",
        "paused_at": "timestamptz",
    },
    searched=("name", "expression", "queue", "kind"),
)
_HISTORY = Listing(
    table="jobs",
    sql="select tick, fired_at, job_id, actor, state, final_status"
    " from fencepost.schedule_history(%(name)s::text, %(before)s::timestamptz, %(limit)s::integer)",
    key=("tick",),
    positions=("before",),
    is_descending=True,
    columns={"tick": "timestamptz", "job_id": "bigint", "state": "text", "actor": "text"},
)
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


class ScheduleQuery(ListQuery):
    after: Name | None = None
    limit: Limit = 50


class HistoryQuery(ListQuery):
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
        page = await context.lists.read(_SCHEDULES, query, query.limit)
        facts = {
            "schedules": [{**row, "words": in_words(row["expression"], row["zone"])} for row in page.rows],
            **page.next,
            "filters": {
                "part": query.part or None,
                "limit": query.limit if query.limit != 50 else None,
            },
            "missed": MISSED,
        }
        return PageData(facts, "schedules", lists={"schedules": page.state})

    @context.router.page("/schedules/{name}", "schedule.html", "Schedule")
    async def schedule(
        request: Request, name: ScheduleName, query: Annotated[HistoryQuery, Query()]
    ) -> PageData:
        """One schedule: the jobs that it submitted, and what was decided about it."""
        row = await context.reading.row("select * from fencepost.schedules where name = %s", name)
        if row is None:
            raise NotFound(say("There is no schedule {name}.", name=name))
        jobs = await context.lists.read(_HISTORY, query, query.limit, {"name": name})
        facts = {
            "title": say("Schedule {name}", name=name),
            "schedule": {**row, "words": in_words(row["expression"], row["zone"])},
            "jobs": jobs.rows,
            **jobs.next,
            "filters": {"limit": query.limit if query.limit != 50 else None},
            "life": await life(context, f"schedule:{name}"),
            "missed": MISSED,
        }
        return PageData(facts, "jobs", ("life",), {"jobs": jobs.state})


def _add_bulk_actions(context: ConsoleContext) -> None:
    schedules = context.fp.schedules

    async def states(_: Request, names: Sequence[str]) -> Mapping[str, str]:
        rows = await context.reading.rows(
            "select name, case when retired_at is not null then 'retired' when paused_at is not null"
            " then 'paused' else 'open' end as state from fencepost.schedules where name = any (%s)",
            list(names),
        )
        return {row["name"]: row["state"] for row in rows}

    async def run(name: str, request: Request, _: str) -> None:
        await schedules.run_now(name, actor=visitor_of(request).actor)

    async def pause(name: str, request: Request, _: str) -> None:
        await schedules.pause(name, actor=visitor_of(request).actor)

    async def resume(name: str, request: Request, _: str) -> None:
        await schedules.resume(name, actor=visitor_of(request).actor)

    choices = {
        "run": Choice(
            verb="Run",
            done="run",
            consequence="Each submits its job now. Their ticks go on as they were.",
            act=run,
            fits=("open", "paused"),
        ),
        "pause": Choice(
            verb="Pause",
            done="paused",
            consequence="Their ticks are skipped until they are resumed.",
            act=pause,
            fits=("open",),
        ),
        "resume": Choice(
            verb="Resume",
            done="resumed",
            consequence="They fire again.",
            act=resume,
            fits=("paused",),
        ),
    }
    actions = BulkActions(
        table="schedules",
        action="schedule.settle",
        one="schedule",
        many="schedules",
        back=PAGE,
        choices=choices,
        states=states,
    )
    add_bulk_actions(context, actions)


def add_actions(context: ConsoleContext) -> None:
    _add_bulk_actions(context)
    schedules = context.fp.schedules

    def asked(verb: str, consequence: str) -> Callable[..., Awaitable[Confirmation]]:
        async def ask(request: Request, name: str) -> Confirmation:
            stored = await schedules.get(name)
            when = f"{stored.expression} ({in_words(stored.expression, stored.zone)})"
            return Confirmation(
                say("{verb} schedule {name}?", verb=verb, name=name),
                [
                    say(
                        "Schedule {name} submits {kind} to {queue}: {when}.",
                        name=name,
                        kind=stored.kind,
                        queue=stored.queue,
                        when=when,
                    ),
                    consequence,
                ],
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
        return ActionDone(
            say("{name} is added.", name=body.name), PAGE, {"next_tick": added.next_tick.isoformat()}
        )

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
        return ActionDone(
            say("{name} is changed.", name=name), PAGE, {"next_tick": changed.next_tick.isoformat()}
        )

    @context.router.action(
        "/schedules/{name}/reset",
        "schedule.reset",
        asks=asked("Reset", "All changes made at run time are lost: what the code declares counts."),
    )
    async def reset(request: Request, name: ScheduleName) -> ActionDone:
        """Undo the changes: what the code declares counts again."""
        await schedules.reset(name, actor=visitor_of(request).actor)
        return ActionDone(say("{name} is as its code declares it.", name=name), PAGE)

    @context.router.action(
        "/schedules/{name}/remove",
        "schedule.remove",
        asks=asked("Remove", "It fires no more. Its jobs and their history stay."),
    )
    async def remove(request: Request, name: ScheduleName) -> ActionDone:
        """Remove a schedule that no live worker declares."""
        await schedules.remove(name, actor=visitor_of(request).actor)
        return ActionDone(say("{name} is removed.", name=name), PAGE)

    @context.router.action("/schedules/{name}/revive", "schedule.revive")
    async def revive(request: Request, name: ScheduleName) -> ActionDone:
        """Bring a retired schedule back, although no live worker declares it."""
        await schedules.revive(name, actor=visitor_of(request).actor)
        return ActionDone(say("{name} fires again.", name=name), PAGE)

    @context.router.action("/schedules/{name}/run", "schedule.run")
    async def run(request: Request, name: ScheduleName) -> ActionDone:
        """Submit the schedule's job now. Its ticks go on as they were."""
        job = await schedules.run_now(name, actor=visitor_of(request).actor)
        done = (
            say("{name} submitted job {job_id}.", name=name, job_id=job.job_id)
            if job.created
            else say("Job {job_id} was there already.", job_id=job.job_id)
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
        return ActionDone(say("{name} is paused.", name=name), PAGE)

    @context.router.action("/schedules/{name}/resume", "schedule.resume")
    async def resume(request: Request, name: ScheduleName) -> ActionDone:
        """Resume the schedule."""
        await schedules.resume(name, actor=visitor_of(request).actor)
        return ActionDone(say("{name} fires again.", name=name), PAGE)


def _document(text: str | None) -> dict[str, Any] | None:
    """The arguments of a form: an object, or nothing."""
    if text is None:
        return None
    try:
        parsed = json.loads(text)
    except ValueError as error:
        raise InvalidInput(say("arguments is no JSON: {error}.", error=error), field="arguments") from None
    if not isinstance(parsed, dict):
        raise InvalidInput('arguments must be an object, such as {"scope": "eu"}.', field="arguments")
    return cast("dict[str, Any]", parsed)
