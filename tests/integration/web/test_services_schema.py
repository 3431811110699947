"""Every service has a schema of its own, and starts on none that does not fit."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.errors import FencepostError, SchemaTooNew, SchemaTooOld
from fencepost.flows._graph import Flow
from fencepost.flows.sinks.postgres import OutboxSink
from fencepost.flows.sources.outbox import OutboxChannel
from fencepost.kernel.migrate import component
from fencepost_orders.service import Orders
from fencepost_players.service import Players


async def run_orders(fp: Fencepost) -> None:
    async with Orders(fp, {}).running():
        pass


async def run_a_flow(fp: Fencepost) -> None:
    stop = asyncio.Event()
    stop.set()
    await fp.flows.worker(Flow("post").source(OutboxChannel("in")).sink(OutboxSink("out"))).run(stop)


async def run_players(fp: Fencepost) -> None:
    async with Players(fp).running():
        pass


SERVICES: dict[str, Callable[[Fencepost], Awaitable[None]]] = {
    "orders": run_orders,
    "flows": run_a_flow,
    "players": run_players,
}


@pytest.mark.parametrize(
    ("ahead", "error", "remedy"),
    [(-1, SchemaTooOld, "fencepost migrate"), (2, SchemaTooNew, "Upgrade this process")],
    ids=["behind", "ahead"],
)
@pytest.mark.parametrize("name", SERVICES)
async def test_a_service_does_not_start_on_a_schema_that_does_not_fit(
    database: Database, name: str, ahead: int, error: type[FencepostError], remedy: str
) -> None:
    wanted = component(name).version
    with database.connect_admin() as admin:
        admin.execute("delete from fencepost.migration where component = %s", (name,))
        admin.execute(
            "insert into fencepost.migration (component, version, name, digest) values (%s, %s, '', '')",
            (name, wanted + ahead),
        )
    async with Fencepost(database.url) as fp:
        with pytest.raises(error, match=f"schema version {wanted + ahead} of {name}.*{remedy}"):
            await SERVICES[name](fp)
