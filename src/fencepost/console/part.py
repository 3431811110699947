"""The console as a part of the house: its routes, its eyes, and the loops that look and count."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import APIRouter

from fencepost.console import (
    dead,
    entrance,
    flows,
    jobs,
    leases,
    nonces,
    orders,
    outbox,
    overview,
    people,
    players,
    reports,
    users,
)
from fencepost.console.desk import API, PAGES, Desk
from fencepost.console.doors import Doors
from fencepost.console.place import Place
from fencepost.console.pulse import Pulse
from fencepost.console.reading import Reading
from fencepost.console.settings import ConsoleSettings
from fencepost.console.stationery import make_stationery
from fencepost.errors import SettingsError
from fencepost.house import Fencepost
from fencepost.kernel.migrate import require
from fencepost.loop import Loop
from fencepost.web.part import Part

ROLL_SECONDS = 10.0
# Half an hour of the past in one statement: a first start on a large database holds nothing up.
MISSING_MINUTES = 30
DOORS = ("/", PAGES, API)
"""Below these the console asks who is there, and not the guard."""


def make_part(
    fp: Fencepost, viewer_url: str, *, loopback: bool, settings: ConsoleSettings | None = None
) -> Part:
    """`viewer_url` is a login of the read-only role; `loopback` says that nobody else can reach us."""
    settings = settings or ConsoleSettings.load()
    place = make_place(fp, viewer_url, settings)
    return Part(
        "console",
        make_router(place),
        lambda: running(place, loopback=loopback),
        own_doors=DOORS,
        has_accounts=lambda: fp.run(people.has_users()),
    )


def make_place(fp: Fencepost, viewer_url: str, settings: ConsoleSettings) -> Place:
    reading = Reading(
        settings.read_database_url or viewer_url,
        pool_max=settings.read_pool_max,
        statement_seconds=settings.statement_seconds,
        connect_seconds=fp.settings.connect_seconds,
    )
    pulse = Pulse(reading, look_seconds=settings.look_seconds, streams_max=settings.streams_max)
    return Place(Desk(fp, Doors(fp, settings), make_stationery()), reading, fp, pulse, settings)


def make_router(place: Place) -> APIRouter:
    for module in (
        overview,
        jobs,
        dead,
        leases,
        outbox,
        orders,
        players,
        nonces,
        flows,
        reports,
        users,
        entrance,
    ):
        module.add_pages(place)
    for module in (jobs, orders, flows, users):
        module.add_actions(place)
    router = APIRouter()
    router.include_router(place.desk.api)
    router.include_router(place.desk.pages)
    return router


@asynccontextmanager
async def running(place: Place, *, loopback: bool) -> AsyncGenerator[None]:
    """Everything that the console needs, or an error that says what it lacks."""
    require(place.fp.database_url, "console")
    vouched = place.settings.oidc_issuer is not None
    if not loopback and not vouched and not await place.fp.run(people.has_admin()):
        raise SettingsError(
            "HTTP_ADDRESS can be reached by others, and the console has no administrator yet. Make one with "
            "`fencepost console user NAME --role admin`, or listen on loopback."
        )
    await place.desk.doors.open()
    errors = place.fp.metrics.counter(
        "fencepost_console_loop_errors", "Ticks of the console's loops that failed.", labels=("loop",)
    )

    async def roll() -> float:
        return 0.2 if await place.fp.run(people.roll(MISSING_MINUTES)) else ROLL_SECONDS

    async with AsyncExitStack() as closing:
        await closing.enter_async_context(place.reading.running())
        for name, tick in (("console-pulse", place.pulse.tick), ("console-roll", roll)):
            loop = Loop(name, tick, errors)
            loop.start()
            closing.push_async_callback(loop.stop)
        yield
