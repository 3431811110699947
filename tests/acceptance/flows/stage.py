"""Where workers of a flow live and die: an input that grows, sinks, and what an undisturbed run would
give."""

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, LiteralString

from psycopg import sql

from fencepost.drive.connection import connect_sync
from fencepost.embedded import Database
from fencepost.embedded.deadline import Deadline
from fencepost.flows.sinks.files import arrow_library
from fencepost.testing import Child
from fencepost.testing.errors import ChildFailed
from tests.acceptance.flows import crew

SCHEMA: LiteralString = """
    create table arrival (id bigint generated always as identity primary key, key text not null);
    create table effect (value text not null);
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
# These keep the last value of each key; all others keep every value.
KEYED = ("upsert", "elsewhere")


class Stage:
    def __init__(self, database: Database, redis_url: str, folder: Path) -> None:
        self.database = database
        self.redis_url = redis_url
        self.folder = folder
        self._arrived = 0
        self._open = ExitStack()

    def set_up(self) -> None:
        with self.database.connect_admin() as connection:
            connection.execute(SCHEMA)

    def worker(
        self, sink: str, *, source: str = "table", groups: int | None = None, crash: str = ""
    ) -> Child:
        child = Child(
            crew.work,
            self.database.url,
            self.database.admin_url,
            self.redis_url,
            source,
            sink,
            str(self.folder),
            groups,
            crash=crash,
        )
        return self._open.enter_context(child)

    def companions(self, sink: str, groups: int | None, count: int) -> list[Child]:
        """More workers, when the first one has taken the source: it is to be the one that forwards."""
        if count:
            Deadline(HANG_SECONDS, "the source is taken").wait(self._is_source_taken)
        return [self.worker(sink, groups=groups) for _ in range(count)]

    def feed_until(self, wait: Callable[..., None]) -> None:
        """Records arrive until a worker has come to where it is to end, whatever its share is."""
        for _ in range(HANG_SECONDS):
            try:
                return wait(within=1)
            except (ChildFailed, TimeoutError):
                self.arrive(10)
        return wait(within=1)

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

    def arrive(self, count: int, source: str = "table") -> None:
        keys = [f"k{n % KEYS}" for n in range(self._arrived, self._arrived + count)]
        self._arrived += count
        if source == "stream":
            with self._redis() as client:
                for key in keys:
                    client.xadd("arrivals", {"data": key})
            return
        with self.database.connect_admin() as connection:
            connection.execute("insert into arrival (key) select unnest(%s::text[])", (keys,))

    def expected(self, sink: str) -> Counter[str]:
        """What a run without faults gives: of each key the first, the second, and so on."""
        counts: Counter[str] = Counter()
        values: list[str] = []
        for n in range(self._arrived):
            counts[f"k{n % KEYS}"] += 1
            values.append(f"k{n % KEYS}-{counts[f'k{n % KEYS}']}")
        return Counter(values[-KEYS:] if sink in KEYED else values)

    def effects(self, sink: str) -> Counter[str]:
        return Counter(self._values(sink))

    def _values(self, sink: str) -> list[str]:
        if sink.startswith("redis"):
            with self._redis() as client:
                if sink == "redis-stream":
                    return [fields["data"] for _, fields in client.xrange("effects")]
                return list(client.lrange("effects", 0, -1))
        if sink == "files":
            return [line for file in self.folder.glob("*.jsonl") for line in file.read_text().split()]
        if sink == "parquet":
            tables = [arrow_library("pyarrow.parquet").read_table(f) for f in self.folder.glob("*.parquet")]
            return [row["value"] for table in tables for row in table.to_pylist()]
        with self.database.connect_admin() as connection:
            return [row[0] for row in connection.execute(_EFFECTS[sink]).fetchall()]

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

    def settle(self, sink: str, within: float = HANG_SECONDS) -> None:
        """Wait until the effects are as they should be, or are too many."""
        wanted = self.expected(sink)

        def is_over() -> bool:
            found = self.effects(sink)
            return found == wanted or found.total() > wanted.total()

        try:
            Deadline(within, "all effects").wait(is_over)
        finally:
            found = self.effects(sink)
            assert found == wanted, f"lost {wanted - found}, doubled or strange {found - wanted}"

    def refusals(self) -> int:
        with self.database.connect_admin() as connection:
            [[count]] = connection.execute(
                "select count(*) from fencepost.refusal where noun in ('lease', 'checkpoint')"
            ).fetchall()
            return int(count)


_FORWARDS: LiteralString = "select 1 from fencepost.lease where resource like 'flow:crew/source/%'"
_EFFECTS: Mapping[str, LiteralString] = {
    "rows": "select value from effect",
    "prepared": "select value from effect",
    "upsert": "select key || '-' || value from total",
    "elsewhere": "select key || '-' || value from total",
    "outbox": "select payload #>> '{}' from fencepost.outbox where channel = 'effects'",
}
