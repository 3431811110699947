"""Paper: templates with every value escaped, and the headers that keep a page to itself."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlencode

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fencepost.console import chart
from fencepost.console.role import Role, Visitor
from fencepost.console.sheet import jsonable

HERE = Path(__file__).parent
STATIC = HERE / "static"
NO_FIGURE = "none"
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
)
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


def policy(nonce: str) -> str:
    """Scripts only with this answer's nonce, the rest only from here, and nothing inline."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


class Stationery:
    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            moment=moment, span=span, number=number, document=document, quoted=quoted
        )
        names = cast("dict[str, Any]", self._environment.globals)
        names.update(link=link, chart_width=chart.WIDTH, chart_height=chart.HEIGHT)

    def page(
        self,
        request: Request,
        template: str,
        facts: Mapping[str, Any],
        *,
        visitor: Visitor | None,
        form_token: str = "",
        notice: str | None = None,
        status: int = 200,
    ) -> HTMLResponse:
        nonce = secrets.token_urlsafe(16)
        body = self._environment.get_template(template).render(
            facts,
            visitor=visitor,
            form_token=form_token,
            notice=notice,
            nonce=nonce,
            here=request.url.path,
            query=request.url.query,
            navigation=[
                (address, name) for address, name, needed in NAVIGATION if visitor and visitor.may(needed)
            ],
            may_operate=visitor is not None and visitor.may(Role.OPERATOR),
            may_administer=visitor is not None and visitor.may(Role.ADMIN),
        )
        return HTMLResponse(body, status, headers={**HEADERS, "Content-Security-Policy": policy(nonce)})


def moment(value: datetime | str | None) -> Markup:
    """A time that the viewer's browser shows in his zone; the exact instant is in its title."""
    if value is None:
        return Markup('<span class="none">never</span>')
    when = datetime.fromisoformat(value) if isinstance(value, str) else value
    exact = when.isoformat()
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact,
        exact,
        when.strftime("%Y-%m-%d %H:%M:%S UTC" if not when.utcoffset() else "%Y-%m-%d %H:%M:%S %z"),
    )


def span(value: float | timedelta | None) -> str:
    if value is None:
        return NO_FIGURE
    seconds = value.total_seconds() if isinstance(value, timedelta) else float(value)
    return chart.duration(max(0.0, seconds))


def number(value: float | None) -> str:
    return NO_FIGURE if value is None else f"{value:,}"


def document(value: Any) -> str:
    """A JSON document for people."""
    return json.dumps(jsonable(value), ensure_ascii=False, indent=2)


def quoted(value: Any) -> str:
    """A name as one part of a path."""
    return quote(str(value), safe="")


def link(path: str, **parameters: Any) -> str:
    """A path with the parameters that have a value."""
    given = {name: value for name, value in parameters.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
