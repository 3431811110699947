"""The overview: throughput, latency, refusals, and what needs an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, BeforeValidator

from fencepost.errors import InvalidInput
from fencepost_server.console._chart import Chart, Figures, draw, growth, largest
from fencepost_server.console._jobs import SUGGESTED_MAX
from fencepost_server.console._live_snapshot import event
from fencepost_server.console._read_pool import Row
from fencepost_server.console._role import Role
from fencepost_server.console._streams import EventStream
from fencepost_server.console.context import ConsoleContext, Name, wanted
from fencepost_server.console.page_data import PageData
from fencepost_server.web.words import say

Span = Literal["hour", "day", "week"]
LENGTHS: Mapping[Span, timedelta] = {
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(days=7),
}
POINTS_MAX = 96
"""The most points of a line: what a chart of this width can show."""
_STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 5, 15, 60, 120, 360))
_ORIGIN = datetime(2000, 1, 1, tzinfo=UTC)
KEPT = timedelta(days=8)


def _unless_empty(value: object) -> object:
    """A form sends every field; an empty one means no value. A field of a day and a time has no zone: UTC."""
    if isinstance(value, str):
        return (
            (value if value[10:].count("-") or "+" in value or "Z" in value else f"{value}Z")
            if value
            else None
        )
    return value


MaybeInstant = Annotated[AwareDatetime | None, BeforeValidator(_unless_empty)]


class OverviewQuery(BaseModel):
    """The charts of a span until now, or from `since` to `until`; of all jobs, a queue, a kind or both."""

    span: Span = "hour"
    since: MaybeInstant = None
    until: MaybeInstant = None
    queue: Name | None = None
    kind: Name | None = None

    def filters(self) -> dict[str, Any]:
        return {name: value for name, value in self.model_dump(mode="json").items() if value}


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/overview", "overview.html", "Overview")
    async def overview(request: Request, query: Annotated[OverviewQuery, Query()]) -> PageData:
        """The whole system: current figures, and the last hour or day."""
        seen = await context.live_snapshot.newest()
        since, until, step = window(query, datetime.now(UTC))
        queue, kind = wanted(query.queue), wanted(query.kind)
        if queue or kind:
            found = await context.reading.rows(
                "select * from fencepost.console_part_series(%s::text, %s::text, %s::timestamptz,"
                " %s::timestamptz, %s::interval)",
                queue,
                kind,
                since,
                until,
                step,
            )
        else:
            found = await context.reading.rows(
                "select * from fencepost.console_series(%s::timestamptz, %s::interval)", since, step
            )
        rows = filled([row for row in found if row["at"] < until], since, until, step)
        return PageData(
            {
                "span": None if query.since or query.until else query.span,
                "filters": query.filters(),
                "since": since,
                "until": until,
                "queues": [one["queue"] for one in seen.queues][:SUGGESTED_MAX],
                "kinds": seen.kinds,
                "at": seen.at,
                "figures": seen.figures,
                "needs": seen.needs,
                "refusals": [one for one in seen.refusals if one["refused"]],
                "series": rows,
                "charts": _charts(query, rows, step) if request.url.path.startswith("/console") else None,
            },
            "series",
            ("refusals", "needs"),
        )

    async def events(request: Request) -> EventStream:
        """Figures as they change: server-sent events named `look`."""
        seen = await context.live_snapshot.newest()
        return EventStream(
            context.live_snapshot, event("look", {**seen.figures, "needs": seen.needs, "queues": seen.queues})
        )

    context.router.raw("/api/events", events, needs=Role.VIEWER, kind="text/event-stream")


def window(query: OverviewQuery, now: datetime) -> tuple[datetime, datetime, timedelta]:
    """From when until when, and the step. Steps are aligned: a minute stays the same while a page is open."""
    until = min(query.until or now, now)
    since = query.since or until - LENGTHS[query.span]
    if since >= until:
        raise InvalidInput("since must be before until.", field="since")
    since = max(since, now - KEPT)
    step = next((one for one in _STEPS if (until - since) / one <= POINTS_MAX), _STEPS[-1])
    return since - (since - _ORIGIN) % step, until, step


def filled(rows: Sequence[Row], since: datetime, until: datetime, step: timedelta) -> list[Row]:
    """One row for each step up to the last; a step that was not counted has no figures."""
    by_time = {row["at"]: row for row in rows}
    last = max([*by_time, since])
    count = int((min(last, until) - since) / step) + 1
    return [by_time.get(at, {"at": at}) for at in (since + number * step for number in range(count))]


def _charts(query: OverviewQuery, rows: Sequence[Row], step: timedelta) -> list[Chart]:
    of = " ".join(part for part in (query.queue, query.kind) if part)
    return part_charts(rows, step, of) if of else charts(rows, step)


def part_charts(rows: Sequence[Row], step: timedelta, of: str) -> list[Chart]:
    """The charts of a queue, a kind or both: what is kept of them."""
    return [replace(one, title=f"{one.title}, {of}") for one in charts(rows, step)[:3]]


def charts(rows: Sequence[Row], step: timedelta) -> list[Chart]:
    times = [row["at"] for row in rows]
    seconds = step.total_seconds()

    def figures(name: str, *, per_second: bool = False) -> list[float | None]:
        return [_figure(row.get(name), seconds if per_second else 1) for row in rows]

    def percentiles(name: str) -> dict[str, Figures]:
        return {say("p95"): figures(f"{name}_p95_seconds"), say("median"): figures(f"{name}_p50_seconds")}

    ended = {name: figures(name, per_second=True) for name in ("finished", "dead", "cancelled")}
    held = {name: figures(name) for name in ("waiting", "running")}
    sent = {say("sent"): figures("delivered", per_second=True)}
    refused = growth([row.get("refused") for row in rows])
    return [
        draw("Jobs: finished per second", "", times, ended),
        draw("Jobs: from submission to start", "s", times, percentiles("wait")),
        draw("Jobs: from start to end", "s", times, percentiles("run")),
        draw("Jobs: waiting and running", "", times, held),
        draw("Jobs: age of the oldest due job", "s", times, {say("oldest"): figures("oldest_due_seconds")}),
        draw("Jobs: workers alive", "", times, {say("workers"): figures("workers")}),
        draw("Outbox and orders: delivered a second", "", times, sent),
        draw("Outbox and orders: from put to delivered", "s", times, percentiles("delivery")),
        draw("Outbox and orders: lag", "s", times, {say("oldest"): figures("outbox_lag_seconds")}),
        draw("Refusals by reason", "", times, largest(refused)),
    ]


def _figure(value: Any, divisor: float) -> float | None:
    return None if value is None else float(value) / divisor
