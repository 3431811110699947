"""The console's templates: its pages by name, and the helpers of its charts and documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import Request

from fencepost_server.console import _chart as chart
from fencepost_server.console import _swim_lanes as swim_lanes
from fencepost_server.console import _timeline as timeline
from fencepost_server.console._role import Role, Visitor
from fencepost_server.console.page_data import jsonable
from fencepost_server.console.plugin_pages import plugin_pages
from fencepost_server.web.http_service import pages_for
from fencepost_server.web.templating import RenderedPage, Templates

JUDGE = "/judge"
NAVIGATION: tuple[tuple[str, str, Role], ...] = (
    ("/console", "Overview", Role.VIEWER),
    ("/console/queues", "Queues", Role.VIEWER),
    ("/console/workers", "Workers", Role.VIEWER),
    ("/console/jobs", "Jobs", Role.VIEWER),
    ("/console/workflows", "Workflows", Role.VIEWER),
    ("/console/dead", "Dead letters", Role.VIEWER),
    ("/console/schedules", "Schedules", Role.VIEWER),
    ("/console/leases", "Leases", Role.VIEWER),
    ("/console/outbox", "Outbox", Role.VIEWER),
    ("/console/webhooks", "Webhooks", Role.VIEWER),
    ("/console/flows", "Flows", Role.VIEWER),
    ("/console/refusals", "Refusals", Role.VIEWER),
    ("/console/reports", "Reports", Role.VIEWER),
    ("/console/users", "Users", Role.ADMIN),
    ("/console/audit", "Audit", Role.ADMIN),
    (JUDGE, "Judge", Role.VIEWER),
)
PLUGINS_AFTER = "/console/webhooks"
"""The pages of plugins follow this one in the navigation."""


def make_templates() -> Templates:
    return Templates(
        RenderedPage(home="/console", name="Fencepost", script="console.js"),
        Path(__file__).parent,
        more=[pages.templates for pages in plugin_pages().values()],
        filters={"document": document},
        bar=chart.bar,
        figure=chart.figure,
        chart_width=chart.WIDTH,
        chart_height=chart.HEIGHT,
        timeline_width=timeline.WIDTH,
        swim_lanes=swim_lanes.draw_now,
        lane_width=swim_lanes.WIDTH,
        lane_label=swim_lanes.LABEL,
    )


def navigation(request: Request, visitor: Visitor | None) -> list[tuple[str, str]]:
    return pages_for(visitor.may if visitor else None, request, all_pages(), {JUDGE: "judge"})


def all_pages() -> tuple[tuple[str, str, Role], ...]:
    """The navigation, including the first page of each plugin."""
    brought = [(pages.address, pages.title, Role.VIEWER) for pages in plugin_pages().values()]
    context = [address for address, _, _ in NAVIGATION].index(PLUGINS_AFTER) + 1
    return (*NAVIGATION[:context], *brought, *NAVIGATION[context:])


def document(value: Any) -> str:
    """A JSON document, formatted for reading."""
    return json.dumps(jsonable(value), ensure_ascii=False, indent=2)
