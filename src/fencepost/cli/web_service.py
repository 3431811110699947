"""Every service that is installed, over HTTP, with the pages for health and metrics: one address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from fencepost.cli.health import HealthPages
from fencepost.cli.terminal import remark
from fencepost.errors import InvalidInput
from fencepost.house import Fencepost
from fencepost.jobs.settings import JobSettings
from fencepost.metrics import Metrics
from fencepost.settings import Settings
from fencepost.web.app import make_app
from fencepost.web.part import Part
from fencepost.web.server import WebServer
from fencepost.web.settings import WebSettings
from fencepost.whereabouts import Whereabouts

PARTS: Mapping[str, str] = {
    "judge": "fencepost.judge.part",
    "nonces": "fencepost.nonces.part",
    "orders": "fencepost.orders.part",
    "players": "fencepost.players.part",
}
"""The services: the module of each, which has `make_part(fp: Fencepost) -> Part`, and what it may lack.

By name, because a service may need packages that are not installed; then the others go on without it.
"""


def web_service(
    settings: Settings, place: Whereabouts, metrics: Metrics, *, only: Collection[str] = ()
) -> WebServer:
    """All services, or only those named."""
    web_settings = WebSettings.load()
    fp = Fencepost(
        place.service_url,
        redis_url=place.redis_url,
        settings=settings,
        job_settings=JobSettings.load(),
        metrics=metrics,
    )
    pages = HealthPages(place, metrics, connect_seconds=settings.connect_seconds)
    app = make_app(_parts(fp, only), web_settings, pages=pages.routes, ground=lambda: fp)
    return WebServer(app, address=web_settings.address, port=web_settings.port)


def _parts(fp: Fencepost, only: Collection[str]) -> list[Part]:
    for name in only:
        if name not in PARTS:
            raise InvalidInput(
                f"There is no service {name!r}. There is: {', '.join(PARTS)}.", field="services"
            )
    parts = (_part(name, fp, required=name in only) for name in PARTS if not only or name in only)
    return [part for part in parts if part is not None]


def _part(name: str, fp: Fencepost, *, required: bool) -> Part | None:
    try:
        module: Any = import_module(PARTS[name])
    except ModuleNotFoundError as error:
        if required or (error.name or "").startswith("fencepost"):
            raise
        remark(f"Without {name}: it needs {error.name}. Install fencepost[{name}].")
        return None
    part: Part = module.make_part(fp)
    return part
