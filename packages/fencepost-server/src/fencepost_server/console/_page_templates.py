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
from fencepost_server.web.words import Catalogue

JUDGE = "/judge"
NAVIGATION: tuple[tuple[str, str, Role, str], ...] = (
    ("/console", "Overview", Role.VIEWER, "Work"),
    ("/console/queues", "Queues", Role.VIEWER, "Work"),
    ("/console/jobs", "Jobs", Role.VIEWER, "Work"),
    ("/console/batches", "Batches", Role.VIEWER, "Work"),
    ("/console/workflows", "Workflows", Role.VIEWER, "Work"),
    ("/console/schedules", "Schedules", Role.VIEWER, "Work"),
    ("/console/workers", "Workers", Role.VIEWER, "Work"),
    ("/console/dead", "Dead letters", Role.VIEWER, "Work"),
    ("/console/refusals", "Refusals", Role.VIEWER, "Guarantees"),
    ("/console/leases", "Leases", Role.VIEWER, "Guarantees"),
    ("/console/checkpoints", "Checkpoints", Role.VIEWER, "Guarantees"),
    ("/console/reports", "Reports", Role.VIEWER, "Guarantees"),
    ("/console/outbox", "Outbox", Role.VIEWER, "Systems"),
    ("/console/webhooks", "Webhooks", Role.VIEWER, "Systems"),
    ("/console/flows", "Flows", Role.VIEWER, "Systems"),
    (JUDGE, "Judge", Role.VIEWER, "Systems"),
    ("/console/account", "Your account", Role.VIEWER, "Admin"),
    ("/console/users", "Users", Role.ADMIN, "Admin"),
    ("/console/audit", "Audit", Role.ADMIN, "Admin"),
)
PLUGINS_AFTER = "/console/webhooks"
"""The pages of plugins follow this one in the navigation."""


def make_templates(catalogue: Catalogue | None = None) -> Templates:
    return Templates(
        RenderedPage(home="/console", name="Fencepost", script="console.js", themes=True, palette=True),
        Path(__file__).parent,
        more=[pages.templates for pages in plugin_pages().values()],
        filters={"document": document},
        catalogue=catalogue,
        bar=chart.bar,
        figure=chart.figure,
        chart_width=chart.WIDTH,
        chart_height=chart.HEIGHT,
        timeline_width=timeline.WIDTH,
        swim_lanes=swim_lanes.draw_now,
    )


def navigation(request: Request, visitor: Visitor | None) -> list[tuple[str, str, str]]:
    """Address, name and group of each page that the visitor may open."""
    groups = {address: group for address, _, _, group in all_pages()}
    pages = [(address, name, role) for address, name, role, _ in all_pages()]
    shown = pages_for(visitor.may if visitor else None, request, pages, {JUDGE: "judge"})
    return [(address, name, groups[address]) for address, name in shown]


def all_pages() -> tuple[tuple[str, str, Role, str], ...]:
    """The navigation, including the first page of each plugin."""
    brought = [(pages.address, pages.title, Role.VIEWER, "Systems") for pages in plugin_pages().values()]
    context = [address for address, *_ in NAVIGATION].index(PLUGINS_AFTER) + 1
    return (*NAVIGATION[:context], *brought, *NAVIGATION[context:])


def document(value: Any) -> str:
    """A JSON document, formatted for reading."""
    return json.dumps(jsonable(value), ensure_ascii=False, indent=2)
