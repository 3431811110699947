"""The environment of one system: its database, the proxies to it, and the operation log of its callers."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString, Protocol, TypeVar

import psycopg

from fencepost import InFlight
from fencepost.embedded import Database
from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Breach, Clock, Proxy
from fencepost_torture._cpu_time import CpuTime
from fencepost_torture._operation_log import OperationLog

T = TypeVar("T")

LEASE_SECONDS = 2.0
INSIST_SECONDS = 60.0
"""In CPU time, and for hangs only: a process that is killed or frozen is back long before."""


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """What a process is given: plain values, because they go to another process."""

    system: str
    place: int
    boot: int
    database_url: str
    redis_url: str
    operation_log: str
    lease_seconds: float
    more: Mapping[str, Any]
    clock: str = ""
    """The file of the process's wall clock; empty for the machine's."""


@dataclass(frozen=True, slots=True)
class Account:
    """How much was asked for, and how much of it is done."""

    asked: int
    done: int

    @property
    def open(self) -> int:
        """Effects that were asked for and are not done."""
        return max(0, self.asked - self.done)


@dataclass
class SystemEnvironment:
    """One system's environment in a run. Its processes and load generator connect through the proxies, the
    run itself does not.

    Without network faults they connect straight to the servers: a proxy takes more CPU time than the work
    that it relays.
    """

    name: str
    database: Database
    postgres_wire: Proxy
    redis_wire: Proxy
    clock: Clock
    directory: Path
    chance: random.Random
    lease_seconds: float = LEASE_SECONDS
    redis_address: str | None = None
    """The address of the server itself, where the proxies are not used."""
    ambiguous: int = 0
    """Calls of the load generator whose outcome was unknown at first."""
    restored: list[float] = field(default_factory=list[float])
    """When a backup replaced the database, by the clock of the operation log."""
    operation_log: OperationLog = field(init=False)
    admin_url: str = field(init=False)
    url: str = field(init=False)
    redis_url: str = field(init=False)

    def __post_init__(self) -> None:
        # A server that is down has no address, and gets the same one when it comes back.
        self.admin_url = self.database.admin_url
        self.url = self.postgres_wire.url if self.redis_address is None else self.database.url
        self.redis_url = self.redis_address or self.redis_wire.url
        self._looking = threading.Lock()
        self._reached = False
        self._admin: psycopg.Connection[tuple[Any, ...]] | None = None
        self._asker: psycopg.Connection[tuple[Any, ...]] | None = None
        self.operation_log = OperationLog(self.directory / "operations.jsonl")

    def rows(self, query: LiteralString, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows of a query, read past the proxy. Waits for a server that is down."""
        return self._insist(lambda: self._rows(query, parameters), lambda: False)

    def value(self, query: LiteralString, parameters: Sequence[Any] = ()) -> Any:
        """The first column of the first row."""
        return self.rows(query, parameters)[0][0]

    def entries_left(self, streams: str) -> Iterable[Breach]:
        """Entries in the Redis streams that match the pattern: those that are done must have been removed."""
        client: Any = connect_sync(self.redis_wire.url, reply_seconds=5)
        with closing(client):
            for stream in client.scan_iter(streams, _type="stream"):
                if entries := int(client.xlen(stream)):
                    yield Breach("left behind", stream, f"has {entries} entries")

    def insist(self, act: Callable[[], T]) -> T:
        """Repeats `act` until the server answers. Only for what may be done twice.

        Where the server was reached, the outcome of a try that failed is unknown. InFlight: a try that looked
        lost is still open.
        """

        def attempt() -> T:
            self._reached = False
            return act()

        return self._insist(attempt, lambda: self._reached)

    def _insist(self, act: Callable[[], T], was_ambiguous: Callable[[], bool]) -> T:
        clock = CpuTime()
        while True:
            began = time.monotonic()
            try:
                return act()
            except (psycopg.OperationalError, psycopg.InterfaceError, InFlight):
                self.ambiguous += was_ambiguous()
                clock.count(time.monotonic() - began)
                if clock.seconds > INSIST_SECONDS:
                    raise
                clock.sleep(0.05)

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """Connects as the load generator, by the proxy, with a timeout: a half-open proxy never answers."""
        connection = psycopg.connect(self.url, connect_timeout=3, application_name="torture-asker")
        self._reached = True
        return connection

    @contextmanager
    def asking(self) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
        """One transaction of the load generator, on a connection that is kept while it works."""
        if self._asker is None or self._asker.closed:
            self._asker = self.connect()
        asker, self._reached = self._asker, False
        try:
            with asker.transaction():
                self._reached = True
                yield asker
        except (psycopg.OperationalError, psycopg.InterfaceError):
            asker.close()
            raise

    def clock_of(self, place: int) -> Path:
        """The file of the wall clock of the process at that place, where those can jump."""
        return self.directory / f"clock-{place}"

    def hang_up(self) -> None:
        """Close the load generator's connection."""
        if self._asker is not None:
            self._asker.close()

    def close(self) -> None:
        """Close its connections and its log."""
        self.hang_up()
        if self._admin is not None:
            self._admin.close()
        self.operation_log.close()

    def _rows(self, query: LiteralString, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        # One connection for all reads: a new one for each took longer than the read itself.
        with self._looking:
            if self._admin is None or self._admin.closed:
                self._admin = psycopg.connect(self.admin_url, autocommit=True, connect_timeout=3)
            try:
                return self._admin.execute(query, parameters).fetchall()
            except psycopg.OperationalError:
                self._admin.close()
                raise


class System(Protocol):
    """A system that can be tortured. One instance is in the run, another in each process.

    A system of your own has these members, and is given as `--systems shop.torture:SHOP`. One that is checked
    by its database alone may also set `bears_restores = True`.
    """

    name: str
    processes: int
    points: Sequence[str]
    uses_redis: bool
    bears_clock_jumps: bool

    def load(self) -> None:
        """Import what `serve` needs, so that a forked process has it."""

    def open(self, env: SystemEnvironment) -> AbstractContextManager[Mapping[str, Any]]:
        """Create tables and whatever runs beside the system; yields what each process is given in `more`."""
        ...

    def serve(self, task: ProcessTask) -> None:
        """Run one process, until SIGTERM."""

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        """Ask for one batch of work; returns when it is certain that it was asked for, exactly once."""

    def account(self, env: SystemEnvironment) -> Account:
        """How many effects were asked for, done, lost and doubled."""
        ...

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        """Every guarantee that the history breaks; called when work and processes have ended."""
        ...

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        """What running processes must still clear away by themselves when all is done: entries, handles."""
        ...
