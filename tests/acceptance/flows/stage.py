"""Where workers of a flow live and die: an input that grows, sinks, and what an undisturbed run would
give."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, LiteralString

from psycopg import sql

from fencepost.drive.connection import connect_sync
from fencepost.embedded import Database
from fencepost.embedded.deadline import Deadline
from fencepost.testing import Child
from tests.acceptance.flows import crew

SCHEMA: LiteralString = """
    create table arrival (id bigint generated always as identity primary key, key text not null);
    create table effect (value text not null);
    create table fencepost_prepared (gid text primary key, at timestamptz default now());
    grant all on arrival, effect, fencepost_prepared to fencepost_app;
"""
HANG_UP: LiteralString = """
    select pg_terminate_backend(pid, 10000) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_type = 'client backend'
"""
PREPARED: LiteralString = "select gid from pg_prepared_xacts where database = current_database()"
KEYS = 5


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

    def worker(self, sink: str, *, groups: int | None = None, crash: str = "") -> Child:
        child = Child(
            crew.work,
            self.database.url,
            self.database.admin_url,
            self.redis_url,
            sink,
            str(self.folder),
            groups,
            crash=crash,
        )
        return self._open.enter_context(child)

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
        with self.database.connect_admin() as connection:
            connection.execute("insert into arrival (key) select unnest(%s::text[])", (keys,))

    def expected(self) -> Counter[str]:
        """What a run without faults gives: of each key the first, the second, and so on."""
        counts: Counter[str] = Counter()
        values: list[str] = []
        for n in range(self._arrived):
            counts[f"k{n % KEYS}"] += 1
            values.append(f"k{n % KEYS}-{counts[f'k{n % KEYS}']}")
        return Counter(values)

    def effects(self, sink: str) -> Counter[str]:
        if sink == "redis":
            client: Any = connect_sync(self.redis_url, reply_seconds=5)
            try:
                return Counter(client.lrange("effects", 0, -1))
            finally:
                client.close()
        if sink == "files":
            files = self.folder.glob("*.jsonl")
            return Counter(line for file in files for line in file.read_text().split())
        with self.database.connect_admin() as connection:
            return Counter(row[0] for row in connection.execute("select value from effect").fetchall())

    def settle(self, sink: str, within: float = 60) -> None:
        """Wait until there are as many effects as there should be, and compare them."""
        wanted = self.expected()
        try:
            Deadline(within, "all effects").wait(lambda: self.effects(sink).total() >= wanted.total())
        finally:
            found = self.effects(sink)
            assert found == wanted, f"lost {wanted - found}, doubled or strange {found - wanted}"

    def refusals(self) -> int:
        with self.database.connect_admin() as connection:
            [[count]] = connection.execute(
                "select count(*) from fencepost.refusal where noun in ('lease', 'checkpoint')"
            ).fetchall()
            return int(count)
