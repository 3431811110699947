"""Where one system plays: its database, the wires to it, and what its callers write down."""

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
from fencepost_torture.cpu_time import CpuTime
from fencepost_torture.operation_log import OperationLog

T = TypeVar("T")

LEASE_SECONDS = 2.0
INSIST_SECONDS = 60.0
"""In time that the machine had for us, and for hangs only: who is killed or frozen is back long before."""


@dataclass(frozen=True, slots=True)
class ProcessTask:
    """What a process is told: plain values, because it is another process."""

    system: str
    place: int
    boot: int
    database_url: str
    redis_url: str
    operation_log: str
    lease_seconds: float
    more: Mapping[str, Any]
    clock: str = ""
    """The file of the wall clock that the process goes by; none for the machine's."""


@dataclass(frozen=True, slots=True)
class Account:
    """How much was asked for, and how much of it is done."""

    asked: int
    done: int

    @property
    def open(self) -> int:
        return max(0, self.asked - self.done)


@dataclass
class SystemEnvironment:
    """One system's place in a run. The processes and the askers come through the proxies, we do not.

    Where no fault of the network can come, they come straight to the servers: a proxy takes more of the
    machine than what it is there for.
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
    """Of the server itself, where nobody comes through the proxies."""
    ambiguous: int = 0
    """Calls of the askers whose outcome they could not know at first."""
    restored: list[float] = field(default_factory=list[float])
    """When a backup took the database's place, by the clock of the chronicle."""
    operation_log: OperationLog = field(init=False)
    admin_url: str = field(init=False)
    url: str = field(init=False)
    redis_url: str = field(init=False)

    def __post_init__(self) -> None:
        # A server that is down has no address, and comes back to the one that it had.
        self.admin_url = self.database.admin_url
        self.url = self.postgres_wire.url if self.redis_address is None else self.database.url
        self.redis_url = self.redis_address or self.redis_wire.url
        self._looking = threading.Lock()
        self._reached = False
        self._admin: psycopg.Connection[tuple[Any, ...]] | None = None
        self._asker: psycopg.Connection[tuple[Any, ...]] | None = None
        self.operation_log = OperationLog(self.directory / "chronicle.jsonl")

    def rows(self, query: LiteralString, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """What the database holds, read past the wire. Waits for a server that is away."""
        return self._insist(lambda: self._rows(query, parameters), lambda: False)

    def value(self, query: LiteralString, parameters: Sequence[Any] = ()) -> Any:
        return self.rows(query, parameters)[0][0]

    def entries_left(self, streams: str) -> Iterable[Breach]:
        """Of streams in Redis, by a pattern: what was read and is done with is not there any more."""
        client: Any = connect_sync(self.redis_wire.url, reply_seconds=5)
        with closing(client):
            for stream in client.scan_iter(streams, _type="stream"):
                if entries := int(client.xlen(stream)):
                    yield Breach("left behind", stream, f"has {entries} entries")

    def insist(self, act: Callable[[], T]) -> T:
        """Again and again until the server answers. Only for what may be done twice.

        Where the server was reached, nobody knows what became of a try that failed. In flight: one that
        looked lost is still open.
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
        """As an asker, by the wire. A half-open wire answers nothing, so nobody waits for ever."""
        connection = psycopg.connect(self.url, connect_timeout=3, application_name="torture-asker")
        self._reached = True
        return connection

    @contextmanager
    def asking(self) -> Generator[psycopg.Connection[tuple[Any, ...]]]:
        """One transaction of the asker, on a connection that is kept as long as it is good."""
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
        """The file of the wall clock of whoever is at that place, where those can jump."""
        return self.directory / f"clock-{place}"

    def hang_up(self) -> None:
        """Nobody asks any more."""
        if self._asker is not None:
            self._asker.close()

    def close(self) -> None:
        self.hang_up()
        if self._admin is not None:
            self._admin.close()
        self.operation_log.close()

    def _rows(self, query: LiteralString, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        # One connection for all who look: a new one for each look took more than the look itself.
        with self._looking:
            if self._admin is None or self._admin.closed:
                self._admin = psycopg.connect(self.admin_url, autocommit=True, connect_timeout=3)
            try:
                return self._admin.execute(query, parameters).fetchall()
            except psycopg.OperationalError:
                self._admin.close()
                raise


class System(Protocol):
    """What can be tortured. One value of it lives in the run, another in each process.

    A system of your own has these members, and is named by its place: `--systems shop.torture:SHOP`. One that
    judges by its database alone may also say `bears_restores = True`.
    """

    name: str
    processes: int
    points: Sequence[str]
    uses_redis: bool
    bears_clock_jumps: bool

    def load(self) -> None:
        """Import what `serve` needs, so that a process that is forked has it."""

    def open(self, stage: SystemEnvironment) -> AbstractContextManager[Mapping[str, Any]]:
        """Make tables and whatever stands beside the system; what each process is told of it."""
        ...

    def serve(self, errand: ProcessTask) -> None:
        """The life of one process, until SIGTERM."""

    def ask(self, stage: SystemEnvironment, turn: int) -> None:
        """One helping of work; returns when it is certain that it was asked for, once."""

    def account(self, stage: SystemEnvironment) -> Account: ...

    def judge(self, stage: SystemEnvironment) -> Iterable[Breach]:
        """Every promise that the history breaks; called when everything is done and everybody gone."""
        ...

    def remains(self, stage: SystemEnvironment) -> Iterable[Breach]:
        """What the living must still clear away by themselves when all is done: entries, handles."""
        ...
