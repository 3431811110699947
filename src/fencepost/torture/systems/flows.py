"""A flow: records of a table, counted by key in three key groups, into the rows of another table.

Each record that comes out says the how-manieth of its key it is. So one that was lost or doubled shows in all
that follow, and the output is compared with what a run without faults gives.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, LiteralString

from fencepost import Fencepost
from fencepost.flows import Flow
from fencepost.flows.settings import FlowSettings
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.flows.worker import FlowWorker
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost.testing.flow_windows import WITHIN
from fencepost.torture.effects import exactly_once, in_order
from fencepost.torture.manners import PATIENT, told_to_end
from fencepost.torture.stage import Account, Errand, Stage

KEYS = 5
GROUPS = 3
HELPING = 25

SCHEMA: LiteralString = """
    create table arrival (id bigint primary key, key text not null);
    create table effect (id bigint generated always as identity primary key, value text not null);
    grant all on arrival, effect to fencepost_app;
"""


class Flows:
    """Workers of one flow."""

    name = "flows"
    processes = 2
    uses_redis = True
    bears_clock_jumps = True
    points = (*WITHIN, "flows.forward.before_send", "flows.forward.after_send")

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, stage: Stage) -> Generator[Mapping[str, Any]]:
        with stage.database.connect_admin() as admin:
            admin.execute(SCHEMA)
        self._asked = 0
        yield {}

    def serve(self, errand: Errand) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(errand))

    def ask(self, stage: Stage, turn: int) -> None:
        ids = list(range(turn * HELPING + 1, (turn + 1) * HELPING + 1))
        stage.insist(lambda: _arrive(stage, ids))
        self._asked += HELPING

    def account(self, stage: Stage) -> Account:
        return Account(self._asked, int(stage.value("select count(*) from effect")))

    def judge(self, stage: Stage) -> Iterable[Breach]:
        arrived = [key for (key,) in stage.rows("select key from arrival order by id")]
        found = [value for (value,) in stage.rows("select value from effect order by id")]
        yield from exactly_once(undisturbed(arrived), found)
        yield from in_order("order of a key", [_parts(value) for value in found])

    def remains(self, stage: Stage) -> Iterable[Breach]:
        return ()


def undisturbed(keys: Iterable[str]) -> list[str]:
    """What a run without faults gives: of each key the first, the second, and so on."""
    counts: Counter[str] = Counter()
    values: list[str] = []
    for key in keys:
        counts[key] += 1
        values.append(f"{key}-{counts[key]}")
    return values


def _parts(value: str) -> tuple[str, int]:
    key, _, number = value.rpartition("-")
    return key, int(number)


async def _work(errand: Errand) -> None:
    stop = told_to_end()
    async with Fencepost(errand.database_url, redis_url=errand.redis_url, settings=PATIENT) as fp:
        flow = (
            Flow("torture")
            .source(PostgresTable("arrival"))
            .key_by(lambda row: row["key"], groups=GROUPS)
            .stateful(_count)
            .sink(PostgresRows("effect", ["value"]))
        )
        settings = FlowSettings(
            lease_seconds=errand.lease_seconds,
            heartbeat_seconds=errand.lease_seconds / 5,
            interval_seconds=0.1,
            batch=20,
            records_max=20,
            balance_seconds=0.2,
            drain_seconds=3,
            channel_length=8,
        )
        await FlowWorker(fp, flow, redis_url=errand.redis_url, settings=settings).run(stop)


def _count(state: int | None, row: Any) -> tuple[int, list[str]]:
    count = (state or 0) + 1
    return count, [f"{row['key']}-{count}"]


def _arrive(stage: Stage, ids: list[int]) -> None:
    with stage.connect() as connection:
        connection.execute(
            "insert into arrival select n, 'k' || n %% %s from unnest(%s::bigint[]) n on conflict do nothing",
            (KEYS, ids),
        )


FLOWS = Flows
