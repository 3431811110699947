"""Flows whose sinks commit in phases: files by rename, rows by two-phase commit; and rows in another
database.

Each output record says which record came in, and its number within its key. So a lost or doubled record shows
in all that follow, and every sink is compared with the output of a run without faults. No sink is in Redis,
which may be wiped at any time: it has only what is in transit.

Each process has a flow of its own. So it reaches every crash point soon after the leases of the process
before it have expired. Until then it only waits: many such processes are cheap.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, LiteralString

from fencepost import Fencepost
from fencepost.flows import Flow
from fencepost.flows._settings import FlowSettings
from fencepost.flows._worker import FlowWorker
from fencepost.flows.sinks._rejecting import Rejections
from fencepost.flows.sinks._sink import CheckpointId, Prepared
from fencepost.flows.sinks._sink_types import TwoPhaseCommitSink
from fencepost.flows.sinks.external_postgres import ExternalPostgres
from fencepost.flows.sinks.files import JsonLines
from fencepost.flows.sinks.two_phase_postgres import TwoPhasePostgres
from fencepost.flows.sources.postgres import PostgresTable
from fencepost.kernel.call import Json
from fencepost.logs import configure_logging
from fencepost.testing import Breach
from fencepost.testing._flow_windows import BETWEEN, TWO_PHASES, WITHIN
from fencepost_torture._child_setup import PATIENT, told_to_end
from fencepost_torture._effects import DOUBLED, LOST, in_order
from fencepost_torture._row_counter import RowCounter
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment
from fencepost_torture.systems._flows import channels_of

GROUPS = 1
KEYS_EACH = 3
HELPING_EACH = 2
SETTINGS: Mapping[str, Any] = {
    "interval_seconds": 0.1,
    "batch": 20,
    "records_max": 20,
    "channel_length": 8,
    "balance_seconds": 0.2,
}
RECOVERY = tuple(
    f"flows.recover.{where}"
    for where in ("before_abort", "before_finish", "between_finishes", "after_finish")
)
FAULTS = ("preparing", "finishing")
Found = Sequence[tuple[int, str]]
"""The content of a sink, in its order: which record came in, and what came out."""

# Rows in the external database are upserted, so that a second write would not show: each write is recorded.
SCHEMA: LiteralString = """
    create table arrival (id bigint primary key, key bigint not null);
    create table effect (id bigint generated always as identity primary key, arrival bigint not null,
                         value text not null);
    create table result (arrival bigint primary key, value text not null);
    create table delivery (id bigint generated always as identity primary key, arrival bigint not null,
                           value text not null);
    create table fencepost_prepared (gid text primary key, at timestamptz default now());
    create table fencepost_frontier (resource text primary key, number bigint not null);
    grant all on arrival, effect, result, delivery, fencepost_prepared, fencepost_frontier to fencepost_app;
    create function note_delivery() returns trigger language plpgsql security definer as $f$
    begin
      insert into public.delivery (arrival, value) values (new.arrival, new.value);
      return null;
    end $f$;
    create trigger note_deliveries after insert or update on result
      for each row execute function note_delivery();
    create trigger count_deliveries after insert on delivery referencing new table as inserted
      for each statement execute function count_inserted();
"""
ARRIVE: LiteralString = """
    insert into arrival select n, n %% %(keys)s
    from generate_series(%(first)s::bigint, %(last)s::bigint) n on conflict do nothing
"""
EFFECTS: LiteralString = "select arrival, value from effect order by id"
RESULTS: LiteralString = "select arrival, value from result order by arrival"
DELIVERIES: LiteralString = "select arrival, value from delivery order by id"
OPEN: LiteralString = """
    select 'checkpoint ' || resource || '#' || number, 'is ' || status from fencepost.checkpoint
    where status in ('begun', 'stored')
    union all select 'transaction ' || gid, 'is prepared' from pg_prepared_xacts
    where database = current_database()
"""


class Sinks:
    """Workers, each of its own flow into two sinks."""

    name = "sinks"
    processes = 5
    uses_redis = True
    bears_clock_jumps = True
    points = (
        *(point for point in (*TWO_PHASES, BETWEEN) if point not in WITHIN),
        "flows.forward.after_begin",
        *RECOVERY,
    )

    def load(self) -> None:
        """Everything is loaded with this module."""

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        self._asked = 0
        self._meter = RowCounter.on(env, SCHEMA)
        yield {"flows": self.processes, "files": str(_files(env))}

    def serve(self, task: ProcessTask) -> None:
        configure_logging(level="error", form="json")
        asyncio.run(_work(task))

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        helping = HELPING_EACH * self.processes
        first = turn * helping + 1
        what = {"keys": self._keys, "first": first, "last": first + helping - 1}
        env.insist(lambda: _arrive(env, what))
        self._asked += helping

    def account(self, env: SystemEnvironment) -> Account:
        """By the sink that is last: what it has, the other one has already."""
        return Account(self._asked, self._meter.read(env))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        everything = undisturbed(self._asked, self._keys)
        in_files = {arrival: value for arrival, value in everything.items() if self._is_in_files(arrival)}
        in_rows = {arrival: value for arrival, value in everything.items() if arrival not in in_files}
        yield from compared("files", in_files, _lines(_files(env)))
        yield from compared("prepared rows", in_rows, _pairs(env, EFFECTS))
        yield from compared("rows elsewhere", everything, _pairs(env, RESULTS))
        yield from compared("deliveries elsewhere", everything, _pairs(env, DELIVERIES))

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        for what, how in env.rows(OPEN):
            yield Breach("left behind", what, how)
        yield from env.entries_left(channels_of("sinks-*"))
        for path in _files(env).rglob("*"):
            if path.is_file() and path.parent != _files(env):
                yield Breach("left behind", path.name, "is staged")

    @property
    def _keys(self) -> int:
        return KEYS_EACH * self.processes

    def _is_in_files(self, arrival: int) -> bool:
        """Every other flow writes files, and the rest write rows by two-phase commit."""
        return arrival % self._keys % self.processes % 2 == 0


class SinkFaults:
    """Makes a sink fail twice in the life of a process, each time with half a commit done.

    The task restarts and recovers what it has left itself: so a process with an order to end there gets
    there, whatever the process before it has left.
    """

    def __init__(self, boot: int) -> None:
        first, second = FAULTS if boot % 2 else reversed(FAULTS)
        self._coming = deque((None, first, None, second))
        self._now: str | None = None

    def change(self) -> None:
        """Called with each commit."""
        self._now = self._coming.popleft() if self._coming else None

    def fail_if(self, faults: str) -> None:
        if self._now == faults:
            self._now = None
            raise OSError(f"The sink fails while {faults}.")


class FlakySink(TwoPhaseCommitSink[Any, Any]):
    """Wraps a sink: it fails where `faults` says."""

    faults: SinkFaults

    async def prepare(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Prepared:
        prepared = await super().prepare(checkpoint, handle, values)
        self.faults.change()
        self.faults.fail_if("preparing")
        return prepared

    async def finish(self, checkpoint: CheckpointId, handle: Json, values: Sequence[Any]) -> Rejections:
        self.faults.fail_if("finishing")
        return await super().finish(checkpoint, handle, values)


class FlakyFiles(FlakySink, JsonLines):
    """Files on a disk that fails so."""

    def __init__(self, directory: str, faults: SinkFaults) -> None:
        super().__init__(directory)
        self.faults = faults


class FlakyRows(FlakySink, TwoPhasePostgres):
    """Rows in a database that fails so."""

    def __init__(self, url: str, faults: SinkFaults) -> None:
        super().__init__(url, "effect", ["arrival", "value"])
        self.faults = faults


def undisturbed(asked: int, keys: int) -> Mapping[int, str]:
    """The output of a run without faults: of each key the first, the second, and so on."""
    counts: Counter[int] = Counter()
    values: dict[int, str] = {}
    for arrival in range(1, asked + 1):
        key = arrival % keys
        counts[key] += 1
        values[arrival] = f"{key}-{counts[key]}"
    return values


def compared(sink: str, expected: Mapping[int, str], found: Found) -> Iterable[Breach]:
    """Every record reached the sink once, with the right value, and in the order of its key."""
    times = Counter(arrival for arrival, _ in found)
    for arrival in expected.keys() - times.keys():
        yield Breach(LOST, f"record {arrival}", f"came in and never came to the {sink}")
    for arrival, count in times.items():
        if arrival not in expected:
            yield Breach("unrequested", f"record {arrival}", f"is in the {sink}, and never came in")
        elif count > 1:
            yield Breach(DOUBLED, f"record {arrival}", f"came to the {sink} {count} times")
    for arrival, value in found:
        if value != expected.get(arrival, value):
            what = f"came to the {sink} as {value} instead of {expected[arrival]}"
            yield Breach("as without faults", f"record {arrival}", what)
    yield from in_order("order of a key", (_numbered(sink, value) for _, value in found))


def _numbered(sink: str, value: str) -> tuple[str, int]:
    key, _, number = value.partition("-")
    return f"{key} in the {sink}", int(number)


def _files(env: SystemEnvironment) -> Path:
    return env.directory / "files"


def _pairs(env: SystemEnvironment, query: LiteralString) -> Found:
    return [(arrival, value) for arrival, value in env.rows(query)]


def _lines(directory: Path) -> Found:
    """A key belongs to one task, whose files are named by the numbers of its checkpoints."""
    return [
        (arrival, value)
        for file in sorted(directory.glob("*.jsonl"))
        for arrival, value in map(json.loads, file.read_text().splitlines())
    ]


async def _work(task: ProcessTask) -> None:
    stop = told_to_end()
    settings = FlowSettings(
        lease_seconds=task.lease_seconds,
        heartbeat_seconds=task.lease_seconds / 5,
        drain_seconds=3,
        **SETTINGS,
    )
    async with Fencepost(task.database_url, redis_url=task.redis_url, settings=PATIENT) as fp:
        await FlowWorker(fp, _flow(task), redis_url=task.redis_url, settings=settings).run(stop)


def _flow(task: ProcessTask) -> Flow:
    """The last sink gets its rows when the first has its own."""
    number, flows = task.place, task.more["flows"]
    name, url, faults = f"sinks-{number}", task.database_url, SinkFaults(task.boot)
    counted = (
        Flow(name)
        .source(PostgresTable("arrival"))
        .filter(lambda row: row["key"] % flows == number)
        .key_by(lambda row: row["key"], groups=GROUPS)
        .stateful(_count)
    )
    return Flow(name).also(
        counted.sink(FlakyRows(url, faults) if number % 2 else FlakyFiles(task.more["files"], faults)),
        counted.sink(ExternalPostgres(url, "result", ["arrival"], ["value"])),
    )


def _count(state: int | None, row: Any) -> tuple[int, list[tuple[int, str]]]:
    count = (state or 0) + 1
    return count, [(row["id"], f"{row['key']}-{count}")]


def _arrive(env: SystemEnvironment, what: Mapping[str, int]) -> None:
    with env.connect() as connection:
        connection.execute(ARRIVE, what)


SINKS = Sinks
