"""The console as an HTTP service: its routes, its read pool, and the loops that take snapshots and count."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import APIRouter

from fencepost.client import Fencepost
from fencepost.errors import SettingsError
from fencepost.kernel.migrate import require
from fencepost.loop import Loop
from fencepost.metrics import MetricSet, counter
from fencepost_server.console import (
    _batches as batches,
)
from fencepost_server.console import (
    _dead_letters as dead_letters,
)
from fencepost_server.console import (
    _flows as flows,
)
from fencepost_server.console import (
    _job_actions as job_actions,
)
from fencepost_server.console import (
    _jobs as jobs,
)
from fencepost_server.console import (
    _leases as leases,
)
from fencepost_server.console import (
    _login as login,
)
from fencepost_server.console import (
    _outbox as outbox,
)
from fencepost_server.console import (
    _overview as overview,
)
from fencepost_server.console import (
    _queues as queues,
)
from fencepost_server.console import (
    _reports as reports,
)
from fencepost_server.console import (
    _schedules as schedules,
)
from fencepost_server.console import (
    _users as users,
)
from fencepost_server.console import (
    _webhooks as webhooks,
)
from fencepost_server.console import (
    _workers as workers,
)
from fencepost_server.console import (
    _workflows as workflows,
)
from fencepost_server.console._auth import ConsoleAuth
from fencepost_server.console._live_snapshot import LiveSnapshot
from fencepost_server.console._minutes import roll
from fencepost_server.console._page_templates import make_templates
from fencepost_server.console._read_pool import ReadPool
from fencepost_server.console._role import ACCOUNTS
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.console.context import ConsoleContext
from fencepost_server.console.listing import Lists
from fencepost_server.console.plugin_pages import plugin_pages
from fencepost_server.console.router import API, PAGES, ConsoleRouter
from fencepost_server.web.authorization import OPEN
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.words import load_catalogue

ROLL_SECONDS = 10.0
# Half an hour of the past in one statement: a first start on a large database blocks nothing.
MISSING_MINUTES = 30
OWN_AUTH_PATHS = ("/", PAGES, API)
"""Below these paths the console authenticates requests, and not SecurityMiddleware."""


def make_service(
    fp: Fencepost, viewer_url: str, *, loopback: bool, settings: ConsoleSettings | None = None
) -> HttpService:
    """`viewer_url` is a login of the read-only role; `loopback` says that only this machine can reach the
    server."""
    settings = settings or ConsoleSettings.load()
    context = make_context(fp, viewer_url, settings)
    router = make_router(context)
    return HttpService(
        "console",
        router,
        lambda: running(context, loopback=loopback),
        own_auth_paths=OWN_AUTH_PATHS,
        has_accounts=lambda: fp.run(ACCOUNTS.has_users()),
        access={
            **{(method, path): OPEN for path in login.OPEN_PATHS for method in ("GET", "POST")},
            **{route: f"console {role.word}" for route, role in context.router.roles.items()},
            login.LOGOUT: "console viewer",
            login.THEME: "console viewer",
        },
    )


def make_context(fp: Fencepost, viewer_url: str, settings: ConsoleSettings) -> ConsoleContext:
    reading = ReadPool(
        settings.read_database_url or fp.settings.standby_database_url or viewer_url,
        pool_max=settings.read_pool_max,
        statement_seconds=settings.statement_seconds,
        connect_seconds=fp.settings.connect_seconds,
    )
    live_snapshot = LiveSnapshot(
        reading, look_seconds=settings.look_seconds, streams_max=settings.streams_max
    )
    templates = make_templates(load_catalogue(settings.language, settings.words))
    router = ConsoleRouter(fp, ConsoleAuth(fp, settings), templates, reading.age)
    return ConsoleContext(router, reading, Lists(reading, settings.scan_max), fp, live_snapshot, settings)


def make_router(context: ConsoleContext) -> APIRouter:
    for module in (
        overview,
        queues,
        jobs,
        batches,
        workflows,
        schedules,
        dead_letters,
        leases,
        outbox,
        webhooks,
        flows,
        reports,
        users,
        workers,
        login,
    ):
        module.add_pages(context)
    for module in (queues, job_actions, workflows, schedules, webhooks, flows, users, workers):
        module.add_actions(context)
    for pages in plugin_pages().values():
        pages.add(context)
    router = APIRouter()
    router.include_router(context.router.api)
    router.include_router(context.router.pages)
    return router


class ConsoleMetrics(MetricSet):
    loop_errors = counter(
        "fencepost_console_loop_errors", "Ticks of the console's loops that failed.", labels=("loop",)
    )


@asynccontextmanager
async def running(context: ConsoleContext, *, loopback: bool) -> AsyncGenerator[None]:
    """Open everything that the console needs; raises an error that says what is missing."""
    for name in ("accounts", "console", "webhooks"):
        require(context.fp.database_url, name)
    vouched = context.settings.oidc_issuer is not None
    if not loopback and not vouched and not await context.fp.run(ACCOUNTS.has_admin()):
        raise SettingsError(
            "HTTP_ADDRESS can be reached by others, and the console has no administrator yet. Make one with "
            "`fencepost console user NAME --role admin`, or listen on loopback."
        )
    await context.router.auth.open()
    errors = ConsoleMetrics.on(context.fp.metrics).loop_errors

    async def count() -> float:
        return 0.2 if await context.fp.run(roll(MISSING_MINUTES)) else ROLL_SECONDS

    async with AsyncExitStack() as closing:
        await closing.enter_async_context(context.reading.running())
        for name, tick in (("console-live", context.live_snapshot.tick), ("console-minutes", count)):
            loop = Loop(name, tick, errors)
            loop.start()
            closing.push_async_callback(loop.stop)
        yield
