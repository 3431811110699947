"""Roles: which process executes which work. A service's work is the role with the service's name.

`fencepost serve` answers requests and executes nothing; `--with` or HTTP_ROLES adds roles to it. `fencepost
run` executes roles without serving. `fencepost up` has every role, for development. The handlers of an
application are run by `fencepost worker`, flows by `fencepost flows run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import replace
from typing import cast

from fencepost.cli.health import HealthPages
from fencepost.cli.shutdown import Shutdown
from fencepost.cli.terminal import answer, answer_json, logs_json, remark
from fencepost.client import Fencepost
from fencepost.errors import InvalidInput
from fencepost.gc_tuning import freeze_collected_objects
from fencepost.logs import configure_logging
from fencepost.metrics_server import MetricsServer
from fencepost.plugin import load, plugins
from fencepost.tracing import export_traces
from fencepost_server.web import _background as background
from fencepost_server.web.http_service import HttpService

EVERY_ROLE = "all"
LOOK_SECONDS = 0.2


def words_of(text: str | None) -> tuple[str, ...]:
    """The names in a list with commas between them."""
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def with_work(services: Sequence[HttpService], roles: Collection[str]) -> list[HttpService]:
    """The services; those whose roles are named execute their work while they are open."""
    known = [service.name for service in services if service.working is not None]
    for role in roles:
        if role not in {*known, EVERY_ROLE}:
            raise InvalidInput(
                f"Unknown role {role!r}. There is: {', '.join(known)}, {EVERY_ROLE}.", field="roles"
            )
    chosen = known if EVERY_ROLE in roles else roles
    return [
        replace(service, running=service.running_and_working) if service.name in chosen else service
        for service in services
    ]


def run_roles(roles: Collection[str], *, as_json: bool) -> None:
    """Execute the work of these roles in this process, until a stop is requested. Serves no requests but
    those for health and metrics."""
    fp = Fencepost.from_env()
    configure_logging(level=fp.settings.log_level, form=fp.settings.log_format)
    export_traces("+".join(roles))
    services = _services(fp, roles)
    ending = Shutdown()
    with ending.listening(), ExitStack() as closing:
        endpoint = MetricsServer(
            HealthPages.of(fp).routes, address=fp.settings.metrics_address, port=fp.settings.metrics_port
        )
        endpoint.start()
        closing.callback(endpoint.stop)
        asyncio.run(_run(fp, services, ending, endpoint.url, as_json=as_json))
    remark("Stopped.")


async def _run(
    fp: Fencepost, services: Iterable[HttpService], ending: Shutdown, url: str, *, as_json: bool
) -> None:
    async with fp, AsyncExitStack() as opened:
        names = [service.name for service in services]
        for service in services:
            await opened.enter_async_context(service.running_and_working())
        freeze_collected_objects()
        if as_json or logs_json():
            answer_json({"roles": names, "owner": fp.owner, "url": url}, indent=None)
        else:
            answer(f"{fp.owner} executes {', '.join(names)}; metrics at {url}/metrics")
            remark("Ctrl-C or SIGTERM stops it.")
        while not await asyncio.to_thread(ending.wait, LOOK_SECONDS):
            pass
        remark("Stopping.")


def _services(fp: Fencepost, roles: Collection[str]) -> list[HttpService]:
    made = {name: plugin.http_service for name, plugin in plugins().items() if plugin.http_service}
    services: list[HttpService] = []
    for role in [*made, background.WEBHOOKS] if EVERY_ROLE in roles else dict.fromkeys(roles):
        if role == background.WEBHOOKS:
            services.append(background.make_service(fp))
        elif role in made:
            services.append(cast("HttpService", load(made[role])(fp)))
        else:
            known = ", ".join([*made, background.WEBHOOKS])
            raise InvalidInput(f"Unknown role {role!r}. Installed: {known}.", field="roles")
        if services[-1].working is None and EVERY_ROLE not in roles:
            raise InvalidInput(
                f"{role} executes nothing by itself: `fencepost serve` does all that it needs.", field="roles"
            )
    return [service for service in services if service.working is not None]
