"""Every service that is installed, over HTTP, with the pages for health and metrics: one address."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from importlib import import_module
from typing import Any

from fencepost.app import Fencepost
from fencepost.cli.health import HealthPages
from fencepost.cli.terminal import remark
from fencepost.errors import InvalidInput
from fencepost.jobs.settings import JobSettings
from fencepost.metrics import Metrics
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings
from fencepost.web import background
from fencepost.web.app import make_app
from fencepost.web.http_service import HttpService
from fencepost.web.server import WebServer
from fencepost.web.settings import WebSettings

CONSOLE = "console"
# For files, outgoing connections and pipes. Each part may have a pool beside the one of DATABASE_POOL_MAX.
RESERVED_DESCRIPTORS = 256
PARTS: Mapping[str, str] = {
    "judge": "fencepost.judge.http_service",
    "nonces": "fencepost.nonces.http_service",
    "orders": "fencepost.orders.http_service",
    "players": "fencepost.players.http_service",
}
"""The services: the module of each, which has `make_part(fp: Fencepost) -> Part`, and what it may lack.

By name, because a service may need packages that are not installed; then the others go on without it.
"""


def web_service(
    settings: Settings, place: ServerAddresses, metrics: Metrics, *, only: Collection[str] = ()
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
    parts = [background.make_service(fp), *_parts(fp, only)]
    console = _console(fp, place, web_settings) if not only or CONSOLE in only else None
    # The console has the front page, where there is one.
    routes = {path: page for path, page in pages.routes.items() if path != "/" or console is None}
    parts += [console] if console else []
    app = make_app(parts, web_settings, pages=routes, ground=lambda: fp)
    return WebServer(
        app,
        address=web_settings.address,
        port=web_settings.port,
        limits=web_settings.limits(reserved_descriptors=RESERVED_DESCRIPTORS + 2 * settings.pool_max),
        metrics=metrics,
    )


def _parts(fp: Fencepost, only: Collection[str]) -> list[HttpService]:
    for name in only:
        if name not in {*PARTS, CONSOLE}:
            raise InvalidInput(
                f"There is no service {name!r}. There is: {', '.join([*PARTS, CONSOLE])}.", field="services"
            )
    parts = (_part(name, fp, required=name in only) for name in PARTS if not only or name in only)
    return [part for part in parts if part is not None]


def _console(fp: Fencepost, place: ServerAddresses, web_settings: WebSettings) -> HttpService | None:
    """The pages for people, above the services; without their packages there is the plain status page."""
    try:
        module: Any = import_module("fencepost.console.http_service")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("fencepost"):
            raise
        remark(f"Without the console: it needs {error.name}. Install fencepost[console].")
        return None
    part: HttpService = module.make_service(fp, place.viewer_url, loopback=web_settings.is_loopback)
    return part


def _part(name: str, fp: Fencepost, *, required: bool) -> HttpService | None:
    try:
        module: Any = import_module(PARTS[name])
    except ModuleNotFoundError as error:
        if required or (error.name or "").startswith("fencepost"):
            raise
        remark(f"Without {name}: it needs {error.name}. Install fencepost[{name}].")
        return None
    part: HttpService = module.make_service(fp)
    return part
