"""Every installed service over HTTP, with the pages for health and metrics, at one address."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

from fencepost.cli.health import HealthPages
from fencepost.client import Fencepost
from fencepost.errors import InvalidInput
from fencepost.jobs.settings import JobSettings
from fencepost.metrics import Metrics
from fencepost.plugin import load, plugins
from fencepost.server_addresses import ServerAddresses
from fencepost.settings import Settings
from fencepost_server._callers import Callers
from fencepost_server.console._http_service import make_service as make_console
from fencepost_server.roles import with_work
from fencepost_server.web import _background as background
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

CONSOLE = "console"
# For files, outgoing connections and pipes. Each service may have a pool beside the one of DATABASE_POOL_MAX.
RESERVED_DESCRIPTORS = 256


def web_service(
    settings: Settings,
    addresses: ServerAddresses,
    metrics: Metrics,
    *,
    only: Collection[str] = (),
    roles: Collection[str] = (),
) -> WebServer:
    """All services, or only those named. It executes the work of these roles, and no other."""
    web_settings = WebSettings.load()
    fp = Fencepost(
        addresses.service_url,
        redis_url=addresses.redis_url,
        settings=settings,
        job_settings=JobSettings.load(),
        metrics=metrics,
    )
    pages = HealthPages(addresses, metrics, connect_seconds=settings.connect_seconds)
    services = with_work([background.make_service(fp), *_services(fp, only)], roles)
    with_console = not only or CONSOLE in only
    if with_console:
        services.append(make_console(fp, addresses.viewer_url, loopback=web_settings.is_loopback))
    # The console, where installed, serves the front page.
    routes = {path: page for path, page in pages.routes.items() if path != "/" or not with_console}
    app = make_app(
        services, web_settings, pages=routes, opened_first=lambda: fp, authenticate=Callers(fp).authenticate
    )
    return WebServer(
        app,
        address=web_settings.address,
        port=web_settings.port,
        limits=web_settings.limits(reserved_descriptors=RESERVED_DESCRIPTORS + 2 * settings.pool_max),
        metrics=metrics,
    )


def _services(fp: Fencepost, only: Collection[str]) -> list[HttpService]:
    """The HTTP services of the installed plugins, or only those that are named."""
    known = {name: plugin.http_service for name, plugin in plugins().items() if plugin.http_service}
    for name in only:
        if name not in {*known, CONSOLE}:
            raise InvalidInput(
                f"Unknown service {name!r}. Installed: {', '.join([*known, CONSOLE])}.", field="services"
            )
    chosen = (reference for name, reference in known.items() if not only or name in only)
    return [cast("HttpService", load(reference)(fp)) for reference in chosen]
