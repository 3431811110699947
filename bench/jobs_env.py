"""The environment of bench-jobs: one durable PostgreSQL and one Valkey, a fresh database for each library.

The roles of a library run as processes of its own environment and get a JSON document; `peers/runner.py` is
the other side of this protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.bench_server import SETTINGS, make_log_files
from bench.jobs_peers import CannotTakePart, Environment, Peer
from bench.peers.results_store import ResultsStore
from bench.processor import family_seconds, own_seconds, parent_of
from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from fencepost.redis_streams.connection import connect_sync

ANSWER_SECONDS_MAX = 900
FAREWELL_SECONDS = 5
EFFECTS = (
    "create table public.effect (id bigint generated always as identity primary key, job text, who text)"
)
EMPTY, MIGRATED = "effects_only", "effects_and_fencepost"
# Statements are counted in the server's log, by database: the wheel's PostgreSQL has no pg_stat_statements.
LOGGED: dict[str, str | int] = {"log_line_prefix": "%d|", "max_connections": 300}


@dataclass(frozen=True, slots=True)
class Servers:
    """The two servers that all libraries use, one after another."""

    postgres: PostgresServer
    valkey: ValkeyServer
    numbers: count[int] = field(default_factory=lambda: count(1))

    def make_templates(self) -> None:
        """The initial content of a database: the table of effects, and for Fencepost its schema."""
        empty, migrated = Database(self.postgres, EMPTY), Database(self.postgres, MIGRATED)
        empty.create()
        with empty.connect_admin() as connection:
            connection.execute(EFFECTS)
            connection.execute("grant all on public.effect to public")
        migrated.create(template=EMPTY)
        migrate(migrated.admin_url)
        migrated.create_logins()

    def database_for(self, peer: Peer) -> Database:
        """A new database, empty except for the table of effects; Fencepost's is migrated. Redis is wiped."""
        database = Database(self.postgres, f"{peer.name}_{next(self.numbers)}")
        database.create(template=MIGRATED if peer.is_ours else EMPTY)
        self.valkey.flush()
        return database

    def keep_redis_durable(self, durable: bool) -> None:
        """Every command on disk before its reply, or nothing on disk at all."""
        redis: Any = connect_sync(self.valkey.url, reply_seconds=30)
        redis.config_set("appendfsync", "always" if durable else "everysec")
        redis.config_set("appendonly", "yes" if durable else "no")
        # The first file is written in the background, and nothing is durable before it exists.
        while redis.info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.05)
        redis.close()


@contextmanager
def servers() -> Generator[Servers]:
    with (
        tempfile.TemporaryDirectory(prefix="fencepost-bench-") as directory,
        PostgresServer(Path(directory, "pg"), settings={**SETTINGS, **LOGGED}, ephemeral=True) as postgres,
        ValkeyServer(Path(directory, "valkey"), ephemeral=True) as valkey,
    ):
        make_log_files(postgres)
        pair = Servers(postgres, valkey)
        pair.make_templates()
        yield pair


class ProcessPart:
    """A process of a library, with its child processes."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    @property
    def pids(self) -> list[int]:
        """Every process in its session, the main one first."""
        return [self._process.pid, *sorted(_session(self._process.pid) - {self._process.pid})]

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def require_alive(self) -> None:
        if self._process.poll() is not None:
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["without a word"]
            raise CannotTakePart(f"its worker ended: {lines[-1][:200]}")

    def resident_bytes(self) -> int:
        """The resident memory of all its processes; shared pages count for each."""
        return sum(_resident_bytes(pid) for pid in self.pids)

    def cpu_seconds(self) -> float:
        """The CPU time of all its processes."""
        return sum(own_seconds(pid) for pid in self.pids)

    def end(self) -> None:
        """Terminate it, and then kill what is left."""
        self.thaw()
        with suppress(ProcessLookupError):
            self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(FAREWELL_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, signum: signal.Signals) -> None:
        # One by one: a library may put its children into process groups of their own.
        for pid in _session(self._process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signum)


@dataclass(frozen=True, slots=True)
class Entrant:
    """One library on its database."""

    peer: Peer
    database: Database
    redis_url: str
    folder: Path
    addresses: Mapping[str, str] = field(default_factory=dict[str, str])
    """Where the server of a library is that brings its own."""

    @property
    def results(self) -> ResultsStore:
        return ResultsStore(self.folder)

    def prepare(self) -> None:
        """Create what the library needs in its database; Fencepost's has it already."""
        if not self.peer.is_ours:
            self.call("prepare")

    def call(self, part: str, **order: Any) -> dict[str, Any]:
        """Run one role to its end; returns its last output."""
        try:
            ended = subprocess.run(
                self._command(part, order),
                env=_environment(),
                capture_output=True,
                text=True,
                check=False,
                timeout=ANSWER_SECONDS_MAX,
            )
        except subprocess.TimeoutExpired as error:
            raise CannotTakePart(f"{part} did not end within {ANSWER_SECONDS_MAX} s") from error
        if ended.returncode != 0:
            lines = ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"]
            raise CannotTakePart(f"{part} failed: {lines[-1][:200]}")
        lines = ended.stdout.strip().splitlines()
        answer: dict[str, Any] = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        return answer

    @contextmanager
    def worker(self, name: str = "A", **order: Any) -> Generator[ProcessPart]:
        """A worker process, in a session of its own so that all its children can be found."""
        log = self.folder / f"worker-{name}.log"
        with log.open("a") as output:
            process = subprocess.Popen(
                self._command("work", {"worker": name, **order}),
                env=_environment(),
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        part = ProcessPart(process, log)
        try:
            yield part
        finally:
            part.end()

    def effects(self, job: str) -> list[str]:
        """Which workers wrote the effect of a job, in order."""
        with self.database.connect_admin() as connection:
            rows = connection.execute("select who from public.effect where job = %s order by id", (job,))
            return [who for (who,) in rows]

    def clear_up(self) -> None:
        """Vacuum now, as autovacuum would later."""
        with self.database.connect_admin() as connection:
            connection.execute("vacuum")

    def commits(self) -> int:
        """Transactions that have written so far: each has taken a transaction id.

        The server's statistics would lag: an idle session reports its last second up to ten seconds later.
        """
        with psycopg.connect(self.database.server.url(), autocommit=True) as connection:
            rows = connection.execute(
                "select pg_snapshot_xmax(pg_current_snapshot())::text::bigint"
            ).fetchall()
            return int(rows[0][0])

    def server_seconds(self) -> float:
        """The CPU time that PostgreSQL has used so far, for all of its databases."""
        with psycopg.connect(self.database.server.url(), autocommit=True) as connection:
            return family_seconds(parent_of(connection.info.backend_pid))

    @contextmanager
    def statements_logged(self) -> Generator[StatementLog]:
        """Inside the block, new connections have their statements written to the server's log."""
        self._log_statements(sql.Literal("all"))
        try:
            yield StatementLog(self.database.server.log, self.database.name)
        finally:
            self._log_statements(sql.Literal("none"))

    def _log_statements(self, which: sql.Literal) -> None:
        with psycopg.connect(self.database.server.url(), autocommit=True) as connection:
            name = sql.Identifier(self.database.name)
            connection.execute(sql.SQL("alter database {} set log_statement = {}").format(name, which))

    def _command(self, part: str, order: dict[str, Any]) -> Sequence[str | Path]:
        # Peers own their database, as their documentation has it; Fencepost runs as a service does.
        address = self.database.url if self.peer.is_ours else self.database.admin_url
        told = {
            "postgres_url": address,
            "admin_url": self.database.admin_url,
            "redis_url": self.redis_url,
            "results": str(self.folder),
            **self.addresses,
            **order,
        }
        return [Environment(self.peer).python, self.peer.runner, part, json.dumps(told)]


@dataclass(slots=True)
class StatementLog:
    """The server's log, read from the last position."""

    path: Path
    database: str
    position: int = 0

    def skip(self) -> None:
        self.position = self.path.stat().st_size

    def count(self) -> int:
        """Statements of the database since `skip`."""
        beginnings = tuple(f"{self.database}|LOG:  {kind}".encode() for kind in ("statement:", "execute "))
        with self.path.open("rb") as log:
            log.seek(self.position)
            return sum(line.startswith(beginnings) for line in log)


def _environment() -> dict[str, str]:
    """With compiled modules kept, as on a server: compiling them at each start takes memory and time."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _session(leader: int) -> set[int]:
    """The processes of a session."""
    found: set[int] = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            if int(fields[3]) == leader and fields[0] != "Z":
                found.add(int(path.parent.name))
    return found


def _resident_bytes(pid: int) -> int:
    try:
        pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
