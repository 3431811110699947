"""The overview: throughput, latency, refusals, and what needs an operator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel

from fencepost_server.console._chart import Chart, Figures, draw, growth, largest
from fencepost_server.console._live_snapshot import event
from fencepost_server.console._read_pool import Row
from fencepost_server.console._role import Role
from fencepost_server.console._streams import EventStream
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.page_data import PageData

Span = Literal["hour", "day"]
STEPS: Mapping[Span, tuple[timedelta, timedelta]] = {
    "hour": (timedelta(hours=1), timedelta(minutes=1)),
    "day": (timedelta(days=1), timedelta(minutes=15)),
}


class OverviewQuery(BaseModel):
    span: Span = "hour"


def add_pages(context: ConsoleContext) -> None:
    @context.router.page("/overview", "overview.html", "Overview")
    async def overview(request: Request, query: Annotated[OverviewQuery, Query()]) -> PageData:
        """The whole system: current figures, and the last hour or day."""
        seen = await context.live_snapshot.newest()
        since, step = _window(query.span)
        rows = filled(
            await context.reading.rows(
                "select * from fencepost.console_series(%s::timestamptz, %s::interval)", since, step
            ),
            since,
            step,
        )
        return PageData(
            {
                "span": query.span,
                "figures": seen.figures,
                "needs": seen.needs,
                "refusals": [one for one in seen.refusals if one["refused"]],
                "series": rows,
                "charts": charts(rows, step) if request.url.path.startswith("/console") else None,
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


def _window(span: Span, now: datetime | None = None) -> tuple[datetime, timedelta]:
    """Steps are aligned, so that a minute stays the same minute while a page is open."""
    length, step = STEPS[span]
    moment = now or datetime.now(UTC)
    whole = moment - (moment - datetime(2000, 1, 1, tzinfo=UTC)) % step
    return whole - length, step


def filled(rows: Sequence[Row], since: datetime, step: timedelta) -> list[Row]:
    """One row for each step up to the last; a step that was not counted has no figures."""
    by_time = {row["at"]: row for row in rows}
    last = max(by_time, default=since)
    count = int((last - since) / step) + 1
    return [by_time.get(at, {"at": at}) for at in (since + number * step for number in range(count))]


def charts(rows: Sequence[Row], step: timedelta) -> list[Chart]:
    times = [row["at"] for row in rows]
    seconds = step.total_seconds()

    def figures(name: str, *, per_second: bool = False) -> list[float | None]:
        return [_figure(row.get(name), seconds if per_second else 1) for row in rows]

    def percentiles(name: str) -> dict[str, Figures]:
        return {"p95": figures(f"{name}_p95_seconds"), "median": figures(f"{name}_p50_seconds")}

    ended = {name: figures(name, per_second=True) for name in ("finished", "dead", "cancelled")}
    held = {name: figures(name) for name in ("waiting", "running")}
    sent = {"sent": figures("delivered", per_second=True)}
    refused = growth([row.get("refused") for row in rows])
    return [
        draw("Jobs: finished per second", "", times, ended),
        draw("Jobs: from submission to start", "s", times, percentiles("wait")),
        draw("Jobs: from start to end", "s", times, percentiles("run")),
        draw("Jobs: waiting and running", "", times, held),
        draw("Jobs: age of the oldest due job", "s", times, {"oldest": figures("oldest_due_seconds")}),
        draw("Jobs: workers alive", "", times, {"workers": figures("workers")}),
        draw("Outbox and orders: delivered a second", "", times, sent),
        draw("Outbox and orders: from put to delivered", "s", times, percentiles("delivery")),
        draw("Outbox and orders: lag", "s", times, {"oldest": figures("outbox_lag_seconds")}),
        draw("Refusals by reason", "", times, largest(refused)),
    ]


def _figure(value: Any, divisor: float) -> float | None:
    return None if value is None else float(value) / divisor
