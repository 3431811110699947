"""The overview: what happens, how fast, what was refused, and what needs a person."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Query, Request
from pydantic import BaseModel

from fencepost.console.chart import Chart, draw, growth
from fencepost.console.place import Place
from fencepost.console.pulse import event
from fencepost.console.reading import Row
from fencepost.console.role import Role
from fencepost.console.sheet import Sheet
from fencepost.console.streams import EventStream

Span = Literal["hour", "day"]
STEPS: Mapping[Span, tuple[timedelta, timedelta]] = {
    "hour": (timedelta(hours=1), timedelta(minutes=1)),
    "day": (timedelta(days=1), timedelta(minutes=15)),
}


class OverviewQuery(BaseModel):
    span: Span = "hour"


def add_pages(place: Place) -> None:
    @place.desk.page("/overview", "overview.html", "Overview")
    async def overview(request: Request, query: Annotated[OverviewQuery, Query()]) -> Sheet:
        """The whole system: figures of this moment, and the last hour or day."""
        seen = await place.pulse.newest()
        since, step = _window(query.span)
        rows = filled(
            await place.reading.rows(
                "select * from fencepost.console_series(%s::timestamptz, %s::interval)", since, step
            ),
            since,
            step,
        )
        return Sheet(
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
        seen = await place.pulse.newest()
        return EventStream(
            place.pulse, event("look", {**seen.figures, "needs": seen.needs, "queues": seen.queues})
        )

    place.desk.raw("/api/events", events, needs=Role.VIEWER, kind="text/event-stream")


def _window(span: Span, now: datetime | None = None) -> tuple[datetime, timedelta]:
    """Steps begin at full ones, so that a minute stays the same minute while one watches."""
    length, step = STEPS[span]
    moment = now or datetime.now(UTC)
    whole = moment - (moment - datetime(2000, 1, 1, tzinfo=UTC)) % step
    return whole - length, step


def filled(rows: Sequence[Row], since: datetime, step: timedelta) -> list[Row]:
    """One row for each step up to the last; a step that nobody counted has no figures."""
    by_time = {row["at"]: row for row in rows}
    last = max(by_time, default=since)
    count = int((last - since) / step) + 1
    return [by_time.get(at, {"at": at}) for at in (since + number * step for number in range(count))]


def charts(rows: Sequence[Row], step: timedelta) -> list[Chart]:
    times = [row["at"] for row in rows]
    seconds = step.total_seconds()

    def figures(name: str, *, per_second: bool = False) -> list[float | None]:
        return [_figure(row.get(name), seconds if per_second else 1) for row in rows]

    return [
        draw(
            "Jobs ended a second",
            "",
            times,
            {
                "finished": figures("finished", per_second=True),
                "dead": figures("dead", per_second=True),
                "cancelled": figures("cancelled", per_second=True),
            },
        ),
        draw(
            "From submission to start",
            "s",
            times,
            {"p95": figures("wait_p95_seconds"), "median": figures("wait_p50_seconds")},
        ),
        draw(
            "From start to end",
            "s",
            times,
            {"p95": figures("run_p95_seconds"), "median": figures("run_p50_seconds")},
        ),
        draw(
            "Jobs waiting and running",
            "",
            times,
            {"waiting": figures("waiting"), "running": figures("running")},
        ),
        draw("Age of the oldest that is due", "s", times, {"oldest": figures("oldest_due_seconds")}),
        draw("Workers seen", "", times, {"workers": figures("workers")}),
        draw("Refusals by reason", "", times, growth([row.get("refused") for row in rows])),
    ]


def _figure(value: Any, divisor: float) -> float | None:
    return None if value is None else float(value) / divisor
