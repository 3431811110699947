"""A flow: records of a table, counted by key in three key groups, into the rows of another table.

Each output record says which record came in, and its number within its key. So a lost or doubled record shows
in all that follow, and the output is compared with that of a run without faults: in the database, by sets.
The bulk form has more keys and commits a thousand at a time; everything else is the same.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, LiteralString

from fencepost import Fencepost
from fencepost.flows import Flow
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost.testing._flow_windows import WITHIN
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._effects import DOUBLED, LOST
from fencepost_torture._row_counter import RowCounter
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment

GROUPS = 3
BREACHES_MAX = 1000
WORK_MEM = "64MB"

SCHEMA: LiteralString = """
    create table arrival (id bigint primary key, key text not null);
    create table effect (id bigint generated always as identity primary key, value text not null,
                         arrival bigint not null);
    grant all on arrival, effect to fencepost_app;
    create trigger count_effects after insert on effect referencing new table as inserted
      for each statement execute function count_inserted();
"""
ARRIVE: LiteralString = """
    insert into arrival select n, 'k' || n %% %(keys)s
    from generate_series(%(first)s::bigint, %(last)s::bigint) n on conflict do nothing
"""
# The output of a run without faults for all that was asked for: of each key the first, the second, and so on.
COMPARED: LiteralString = """
    select coalesce(a.id, f.arrival), a.value, coalesce(f.times, 0), f.value
    from (select id, key || '-' || row_number() over (partition by key order by id) as value
          from (select n as id, 'k' || n %% %(keys)s as key
                from generate_series(1, %(asked)s::bigint) n) asked) a
    full join (select arrival, count(*) as times, min(value) as value from effect group by arrival) f
      on f.arrival = a.id
    where a.id is null or f.times is distinct from 1 or f.value <> a.value limit %(most)s
"""
BACKWARDS: LiteralString = """
    select key, number, before
    from (select key, number, lag(number) over (partition by key order by id) as before
          from (select id, split_part(value, '-', 1) as key, split_part(value, '-', 2)::bigint as number
                from effect) e) o
    where number < before limit %(most)s
"""


@dataclass(frozen=True)
class FlowSize:
    """The sizes of the flow."""

    keys: int
    helping: int
    settings: Mapping[str, Any]


class Flows:
    """Workers of one flow."""

    name = "flows"
    processes = 2
    uses_redis = True
    bears_clock_jumps = True
    points = (*WITHIN, "flows.forward.before_send", "flows.forward.after_send")
    size = FlowSize(
        keys=5,
        helping=25,
        settings={"interval_seconds": 0.1, "batch": 20, "records_max": 20, "channel_length": 8},
    )

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._asked = 0
        self._meter = RowCounter.on(env, SCHEMA)
        yield {}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(task, self.size))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        env.insist(lambda: _arrive(env, turn, self.size))
        self._asked += self.size.helping

    def account(self, env: SystemEnvironment) -> Account:
        return Account(self._asked, self._meter.read(env))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        with env.database.connect_admin() as admin:
            admin.execute("select set_config('work_mem', %s, false)", (WORK_MEM,))
            admin.execute("analyze arrival, effect")
            asked = {"asked": self._asked, "keys": self.size.keys}
            compared = admin.execute(COMPARED, {**asked, "most": BREACHES_MAX}).fetchall()
            backwards = admin.execute(BACKWARDS, {"most": BREACHES_MAX}).fetchall()
        for arrival, expected, times, found in compared:
            yield _breach(f"record {arrival}", expected, int(times), found)
        for key, number, before in backwards:
            yield Breach("order of a key", key, f"{number} came after {before}")

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return env.entries_left(channels_of("torture"))


class BulkFlows(Flows):
    """The same with a thousand records in each commit, as a busy flow commits."""

    name = "bulk-flows"
    size = FlowSize(
        keys=997,
        helping=10_000,
        settings={"interval_seconds": 0.5, "batch": 5000, "records_max": 20_000, "channel_length": 32},
    )
    open_max = 50_000


class SteadyFlows(BulkFlows):
    """Some hundred records in each commit, and some at any time."""

    name = "steady-flows"
    size = replace(BulkFlows.size, helping=250)
    open_max = 4000


def channels_of(flows: str) -> str:
    """The channels of all their key groups, as a pattern."""
    return f"fencepost:{{flow:{flows}/*}}:channel:*"


def _breach(record: str, expected: str | None, times: int, found: str | None) -> Breach:
    if expected is None:
        return Breach("unrequested", record, f"produced {found}, and was never received")
    if times == 0:
        return Breach(LOST, record, f"was received and never produced {expected}")
    if times > 1:
        return Breach(DOUBLED, record, f"came out {times} times")
    return Breach("as without faults", record, f"came out as {found} instead of {expected}")


def undisturbed(keys: Iterable[str]) -> list[str]:
    """The output of a run without faults: of each key the first, the second, and so on."""
    counts: Counter[str] = Counter()
    values: list[str] = []
    for key in keys:
        counts[key] += 1
        values.append(f"{key}-{counts[key]}")
    return values


async def _work(task: ProcessTask, size: FlowSize) -> None:
    stop = told_to_end()
    async with Fencepost(task.database_url, redis_url=task.redis_url, settings=PATIENT) as fp:
        flow = (
            Flow("torture")
            .source(PostgresTable("arrival"))
            .key_by(lambda row: row["key"], groups=GROUPS)
            .stateful(_count)
            .sink(PostgresRows("effect", ["value", "arrival"]))
        )
        settings = FlowSettings(
            lease_seconds=task.lease_seconds,
            heartbeat_seconds=task.lease_seconds / 5,
            balance_seconds=0.2,
            drain_seconds=3,
            **size.settings,
        )
        await FlowWorker(fp, flow, redis_url=task.redis_url, settings=settings).run(stop)


def _count(state: int | None, row: Any) -> tuple[int, list[tuple[str, int]]]:
    count = (state or 0) + 1
    return count, [(f"{row['key']}-{count}", row["id"])]


def _arrive(env: SystemEnvironment, turn: int, size: FlowSize) -> None:
    first = turn * size.helping + 1
    with env.connect() as connection:
        connection.execute(ARRIVE, {"keys": size.keys, "first": first, "last": first + size.helping - 1})


FLOWS = Flows
BULK_FLOWS = BulkFlows
STEADY_FLOWS = SteadyFlows
