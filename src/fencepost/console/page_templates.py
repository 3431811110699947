"""The console's paper: its pages by name, and what its charts and documents need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastapi import Request

from fencepost.console import chart
from fencepost.console.page_data import jsonable
from fencepost.console.role import Role, Visitor
from fencepost.web.http_service import pages_for
from fencepost.web.templating import RenderedPage, Templates

JUDGE = "/judge"
NAVIGATION: tuple[tuple[str, str, Role], ...] = (
    ("/console", "Overview", Role.VIEWER),
    ("/console/queues", "Queues", Role.VIEWER),
    ("/console/jobs", "Jobs", Role.VIEWER),
    ("/console/dead", "Dead letters", Role.VIEWER),
    ("/console/schedules", "Schedules", Role.VIEWER),
    ("/console/leases", "Leases", Role.VIEWER),
    ("/console/outbox", "Outbox", Role.VIEWER),
    ("/console/orders", "Orders", Role.VIEWER),
    ("/console/players", "Players", Role.VIEWER),
    ("/console/nonces", "Nonces", Role.VIEWER),
    ("/console/flows", "Flows", Role.VIEWER),
    ("/console/refusals", "Refusals", Role.VIEWER),
    ("/console/reports", "Reports", Role.VIEWER),
    ("/console/users", "Users", Role.ADMIN),
    ("/console/audit", "Audit", Role.ADMIN),
    (JUDGE, "Judge", Role.VIEWER),
)


def make_templates() -> Templates:
    return Templates(
        RenderedPage(home="/console", name="Fencepost", script="console.js"),
        Path(__file__).parent,
        filters={"document": document},
        bar=chart.bar,
        figure=chart.figure,
        chart_width=chart.WIDTH,
        chart_height=chart.HEIGHT,
    )


def navigation(request: Request, visitor: Visitor | None) -> list[tuple[str, str]]:
    return pages_for(visitor.may if visitor else None, request, NAVIGATION, {JUDGE: "judge"})


def document(value: Any) -> str:
    """A JSON document for people."""
    return json.dumps(jsonable(value), ensure_ascii=False, indent=2)
