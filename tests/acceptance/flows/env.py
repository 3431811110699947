"""Where workers of a flow live and die: an input that grows, sinks, and what an undisturbed run would
give."""

import asyncio
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString

from psycopg import sql
from redis.exceptions import ResponseError

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Child
from fencepost.testing._errors import ChildFailed
from tests.acceptance.flows import kafka_model, worker_processes
from tests.acceptance.flows.effects import ByKey, Effects, by_key, count_of
from tests.receivers import service
from tests.reused_databases import furnish

SCHEMA: LiteralString = """
    create table arrival (id bigint generated always as identity primary key, key text not null);
    create table effect (id bigint generated always as identity primary key, value text not null);
    create table total (key text primary key, value bigint not null);
    create table fencepost_prepared (gid text primary key, at timestamptz default now());
    create table fencepost_frontier (resource text primary key, number bigint not null);
    grant all on arrival, effect, total, fencepost_prepared, fencepost_frontier to fencepost_app;
"""
HANG_UP: LiteralString = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
PREPARED: LiteralString = "select gid from pg_prepared_xacts where database = current_database()"
KEYS = 5
# A hang, and no slowness: a busy machine starts three workers in a minute.
HANG_SECONDS = 200


class FlowsEnv:
    """One flow, into one sink or several (`files+redis`)."""

    def __init__(self, database: Database, redis_url: str, folder: Path) -> None:
        self.database = database
        self.redis_url = redis_url
        self._folder = folder
        self._arrived = 0
        self._seen = 0
        self._open = ExitStack()
        self.sinks: Sequence[str] = ()
        self._source = "table"
        self._groups: int | None = None
        self._again: int | None = None

    def set_up(self) -> None:
        furnish(self.database, SCHEMA + kafka_model.SCHEMA)

    def play(
        self, sinks: str, *, source: str | None = None, groups: int | None = None, again: int | None = None
    ) -> None:
        """Which flow it is; with `again`, a second stage has that many key groups."""
        self.sinks = sinks.split("+")
        self._source = source or worker_processes.SINKS[self.sinks[0]].source
        self._groups, self._again = groups, again
        http, executed = self._open.enter_context(service()) if "http" in self.sinks else ("", {})
        self._place = worker_processes.Place(self.database.admin_url, str(self._folder), http)
        worker_processes.arrivals(str(self._folder)).mkdir(exist_ok=True)
        with closing(sqlite3.connect(**worker_processes.sqlite_of(str(self._folder)))) as connection:
            connection.execute("create table if not exists effect (value text not null)")
        self._effects = Effects(self.database, self._redis, self._folder, executed)

    def worker(self, *, crash: str = "") -> Child:
        child = Child(
            worker_processes.work,
            self.database.url,
            self.redis_url,
            self._source,
            list(self.sinks),
            self._groups,
            list(self._place),
            self._again,
            crash=crash,
        )
        return self._open.enter_context(child)

    def companions(self, count: int) -> list[Child]:
        """More workers, when the first one has taken the source: it is to be the one that forwards."""
        if count:
            Deadline(HANG_SECONDS, "the source is taken").wait(self._is_source_taken)
        return [self.worker() for _ in range(count)]

    def feed_until(self, wait: Callable[..., None]) -> None:
        """Records arrive until a worker has come to where it is to end, whatever its share is. More and more
        rarely: where a commit takes seconds, some would be under way at every moment."""
        within, end = 1.0, time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            try:
                return wait(within=within)
            except (ChildFailed, TimeoutError):
                self.arrive(10)
                within *= 1.2
        return wait(within=within)

    def _is_source_taken(self) -> bool:
        with self.database.connect_admin() as connection:
            return bool(connection.execute(_FORWARDS).fetchall())

    def close(self) -> None:
        """Workers are killed wherever they are, and what they had prepared would outlive them."""
        self._open.close()
        with self.database.connect_admin() as connection:
            connection.execute(HANG_UP)
            for [gid] in connection.execute(PREPARED).fetchall():
                connection.execute(sql.SQL("rollback prepared {}").format(sql.Literal(gid)))

    def arrive(self, count: int) -> None:
        keys = [f"k{n % KEYS}" for n in range(self._arrived, self._arrived + count)]
        self._arrived += count
        if self._source == "three":
            for source, some in zip(
                ("table", "stream", "folder"), (keys[::3], keys[1::3], keys[2::3]), strict=True
            ):
                self._arrive(source, some)
        else:
            self._arrive(self._source, keys)

    def _arrive(self, source: str, keys: Sequence[str]) -> None:
        if source == "folder":
            # Aside, and then by its name: a file is never seen half.
            aside = self._folder / f"{self._arrived}"
            aside.write_text("".join(f"{key}\n" for key in keys))
            aside.replace(worker_processes.arrivals(str(self._folder)) / aside.name)
            return
        if source != "table":
            with self._redis() as client:
                for key in keys:
                    client.xadd("arrivals", {"data": key})
            return
        with self.database.connect_admin() as connection:
            connection.execute("insert into arrival (key) select unnest(%s::text[])", (keys,))

    def expected(self, sink: str) -> ByKey:
        """What a run without faults gives: of each key the first, the second, and so on."""
        counts = Counter(f"k{n % KEYS}" for n in range(self._arrived))
        keeps = worker_processes.SINKS[sink].keeps
        return {
            key: [count] if keeps == "last" else list(range(1, count + 1)) for key, count in counts.items()
        }

    def effects(self, sink: str) -> ByKey:
        return by_key(self._effects.of(sink), worker_processes.SINKS[sink].keeps)

    @contextmanager
    def _redis(self) -> Generator[Any]:
        client: Any = connect_sync(self.redis_url, reply_seconds=5)
        try:
            yield client
        finally:
            client.close()

    def lose_all_but_the_source(self) -> None:
        with self._redis() as client:
            for key in client.keys("*"):
                if key != "arrivals":
                    client.delete(key)

    def wait_for_progress(self) -> None:
        """Wait until the first sink has more than when this was called before."""
        sink, seen = self.sinks[0], self._seen

        def is_further() -> bool:
            self._seen = count_of(self.effects(sink))
            return self._seen > seen

        Deadline(HANG_SECONDS, f"more is in {sink}").wait(is_further)

    def lose_channels(self) -> None:
        """Redis loses what is on the way between the units of the flow."""
        with self._redis() as client:
            for key in client.scan_iter("fencepost:{flow:*"):
                client.delete(key)

    def regroup(self, groups: int) -> None:
        """Divide the flow's state anew; no worker runs it."""
        asyncio.run(self._regroup(groups))
        self._groups = groups

    async def _regroup(self, groups: int) -> None:
        savepoint = f"to-{groups}"
        async with Fencepost(self.database.url) as fp:
            await fp.flows.savepoint("workers", savepoint, within=0)
            await fp.flows.regroup("workers", savepoint, groups)

    def settle(self, within: float = HANG_SECONDS, *, in_order: bool = True) -> None:
        """Wait until the effects are as they should be, or are too many; and nothing is left to
        acknowledge."""
        if self._source == "group":
            # What a zombie has shown as pending meanwhile goes with the next commit.
            self.feed_until(self._wait_until_nothing_is_pending)
        for sink in self.sinks:
            wanted = self.expected(sink)
            found: ByKey = {}

            def is_over(sink: str = sink, wanted: ByKey = wanted) -> bool:
                nonlocal found
                found = self.effects(sink)
                if not in_order:
                    found = {key: sorted(numbers) for key, numbers in found.items()}
                return found == wanted or count_of(found) > count_of(wanted)

            try:
                Deadline(within, f"all effects are in {sink}").wait(is_over)
            finally:
                assert found == wanted, _told(wanted, found)

    def _wait_until_nothing_is_pending(self, within: float) -> None:
        def holds() -> bool:
            with self._redis() as client, suppress(ResponseError):
                return bool(client.xpending("arrivals", "workers")["pending"] == 0)
            return False  # Nothing was read yet, so there is no group.

        Deadline(within, "nothing is pending in the source").wait(holds)

    def refusals(self) -> int:
        with self.database.connect_admin() as connection:
            [[count]] = connection.execute(
                "select count(*) from fencepost.refusal where noun in ('lease', 'checkpoint')"
            ).fetchall()
            return int(count)


def _told(wanted: ByKey, found: ByKey) -> str:
    """What differs, by key."""
    told: list[str] = []
    for key in sorted({*wanted, *found}):
        want, have = wanted.get(key, []), found.get(key, [])
        if want != have:
            lost, more = Counter(want) - Counter(have), Counter(have) - Counter(want)
            what = f"lost {sorted(lost)}, doubled or strange {sorted(more.elements())}"
            told.append(f"{key}: {what if lost or more else f'in another order: {have}'}")
    return "; ".join(told)


_FORWARDS: LiteralString = "select 1 from fencepost.lease where resource like 'flow:workers/source/%'"
