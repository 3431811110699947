"""Dead letters: by cause, with a preview before many are run again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, Field

from fencepost.kernel import dead_letter, schedule
from fencepost_server.console._live_snapshot import CAUSES_MAX, dead_causes
from fencepost_server.console.context import ConsoleContext, Name, wanted
from fencepost_server.console.page_data import ActionDone, PageData
from fencepost_server.console.router import visitor_of
from fencepost_server.web.formatting import link
from fencepost_server.web.questions import Confirmation, counted
from fencepost_server.web.words import say

# The most that one request settles: the page continues with the next batch by itself, and can be stopped.
BATCH_MAX = 500
SAMPLE_MAX = 20


class CauseQuery(BaseModel):
    queue: Name | None = None
    kind: Name | None = None
    cause: Name | None = None


class PreviewQuery(CauseQuery):
    before: AwareDatetime | None = None


class Settle(BaseModel):
    """Which dead letters are selected: those that match the filter and that were dead at `before`."""

    model_config = {"extra": "forbid"}

    how: Literal["replay", "discard"]
    queue: Name | None = None
    kind: Name | None = None
    cause: Name | None = None
    before: AwareDatetime
    limit: Annotated[int, Field(ge=1, le=BATCH_MAX)] = BATCH_MAX


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/dead", "dead.html", "Dead letters")
    async def dead(request: Request, query: Annotated[CauseQuery, Query()]) -> PageData:
        """Dead letters grouped by their cause of death."""
        queue, kind, cause = wanted(query.queue), wanted(query.kind), wanted(query.cause)
        if queue or kind or cause:
            causes = await dead_causes(context.reading, queue, kind, cause)
        else:
            # Every viewer asks this: one snapshot answers all of them.
            causes = (await context.live_snapshot.newest()).causes
        return PageData(
            {
                "causes": causes,
                "most": CAUSES_MAX,
                "filters": {name: value for name, value in query.model_dump().items() if value},
            },
            rows="causes",
        )

    @context.router.page("/dead/preview", "dead_preview.html", "Run again?")
    async def preview(request: Request, query: Annotated[PreviewQuery, Query()]) -> PageData:
        """How many dead letters a filter matches now, and the first of them. Changes nothing."""
        # A replay that continues means what was dead when it began.
        now: datetime = await context.fp.run(schedule.clock()) if query.before is None else query.before
        meant = dead_letter.Filter(wanted(query.queue), wanted(query.kind), wanted(query.cause), now)
        count = await context.fp.run(dead_letter.count(meant))
        ids = await context.fp.run(dead_letter.page(meant, limit=SAMPLE_MAX))
        sample = await context.reading.rows(
            "select job_id, queue, kind, cause, left(error, 300) as error, tries, finished_at"
            " from fencepost.dead_letters where job_id = any (%s) order by job_id",
            ids,
        )
        return PageData(
            {
                "count": count,
                "before": now,
                "sample": sample,
                "filters": query.model_dump(exclude_none=True, exclude={"before"}),
                "batch": BATCH_MAX,
            },
            rows="sample",
        )

    async def before_settle(request: Request, body: Settle) -> Confirmation:
        meant = dead_letter.Filter(wanted(body.queue), wanted(body.kind), wanted(body.cause), body.before)
        count = await context.fp.run(dead_letter.count(meant))
        now = min(count, body.limit)
        jobs = counted(now, "dead letter")
        if body.how == "replay":
            told = say("{jobs} run again, each with all its tries.", jobs=jobs)
            answer = say("Replay {now}", now=f"{now:,}")
        else:
            told = say("{jobs} end as cancelled. They can be run again one by one.", jobs=jobs)
            answer = say("Discard {now}", now=f"{now:,}")
        of = [
            f"{name} {value}"
            for name, value in (("queue", body.queue), ("kind", body.kind), ("cause", body.cause))
            if value
        ]
        scope = say(
            "Selected: {what}; {count} in all.",
            what=", ".join(of) or say("every queue, kind and cause"),
            count=f"{count:,}",
        )
        filters = {"queue": body.queue, "kind": body.kind, "cause": body.cause}
        back = link("/console/dead/preview", **filters, before=body.before.isoformat())
        return Confirmation(
            say("{answer} of {count} dead letters?", answer=answer, count=f"{count:,}"),
            [told, scope],
            answer,
            back,
        )

    @context.router.action("/dead/settle", "dead.settle", asks=before_settle)
    async def settle(request: Request, body: Settle) -> ActionDone:
        """Replay or discard what matches the filter, at most `limit` of them. Repeated, it takes none
        twice."""
        meant = dead_letter.Filter(wanted(body.queue), wanted(body.kind), wanted(body.cause), body.before)
        ids = await context.fp.run(dead_letter.page(meant, limit=body.limit))
        settled = await context.fp.run(dead_letter.settle(ids, body.how, visitor_of(request).actor))
        remaining = await context.fp.run(dead_letter.count(meant))
        context.live_snapshot.forget()
        word = "replayed" if body.how == "replay" else "discarded"
        done = sum(one.outcome == word for one in settled)
        told = say(
            "{done} {word}, {what} refused, {remaining} of these left.",
            done=done,
            word=word,
            what=len(settled) - done,
            remaining=remaining,
        )
        filters = {
            "queue": body.queue,
            "kind": body.kind,
            "cause": body.cause,
            "before": body.before.isoformat(),
        }
        back = link("/console/dead/preview", **filters) if remaining else "/console/dead"
        facts = {"settled": done, "refused": len(settled) - done, "remaining": remaining}
        return ActionDone(told, back, facts)
