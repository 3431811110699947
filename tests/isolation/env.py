"""Plays scenarios on a real database, in every interleaving that the database allows.

The search is by replay: a run is played from the beginning with a given list of choices, and at each later
point the first session that can go on does. Every other session that could have gone on there is a run still
to be played. A session whose statement waits for a lock cannot go on, so interleavings that no client could
bring about are not counted.

The scenarios lease for an hour of the stage's clock. The kernel ends a session that idles inside a fence for
half its lease, and that in real time: a machine that stands still for a while must not fail a test.
"""

import contextlib
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from fencepost.embedded import Database
from tests.isolation.performance import Connection, Performance, Player
from tests.isolation.scenario import Choice, Run, Scenario, Violation


def prepare(database: Database) -> None:
    """Make the database fit for interleavings."""
    with database.connect_admin() as connection:
        connection.execute(_file("stage.sql"))
        # A deadlock is a failure: there is no reason to wait a second for the news of it.
        setting = sql.SQL("alter database {} set deadlock_timeout = '50ms'")
        connection.execute(setting.format(sql.Identifier(database.name)))


def prepare_pauses(database: Database) -> None:
    """Make places inside the kernel's functions at which a session can be stopped."""
    with database.connect_admin() as connection:
        connection.execute(_file("pauses.sql"))


def _file(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


@dataclass(frozen=True)
class IsolationEnv:
    """A prepared database with connections for the sessions, and one that watches."""

    watcher: Connection
    connections: tuple[Connection, ...]
    threads: Executor

    @classmethod
    @contextlib.contextmanager
    def open(cls, database: Database, sessions: int = 3) -> Generator["IsolationEnv"]:
        with contextlib.ExitStack() as stack:
            threads = stack.enter_context(ThreadPoolExecutor(sessions))
            watcher = _connect(database.admin_url, stack)
            yield cls(watcher, tuple([_connect(database.url, stack) for _ in range(sessions)]), threads)

    @property
    def is_fit(self) -> bool:
        """Whether every session is where a run begins: not so after one that was broken off."""
        sessions = (self.watcher, *self.connections)
        return all(session.info.transaction_status == TransactionStatus.IDLE for session in sessions)

    def explore_all(self, scenarios: Iterable[Scenario]) -> list[Run]:
        return [run for scenario in scenarios for run in self.explore(scenario)]

    def explore(self, scenario: Scenario, opening: tuple[str, ...] = ()) -> list[Run]:
        """Play and judge every interleaving that begins with these choices; raises the first Violation."""
        runs: list[Run] = []
        to_play = [opening]
        while to_play:
            choices = to_play.pop()
            run = self.play(scenario, choices)
            if user_errors := list(scenario.judge(run)):
                raise Violation(scenario, run, user_errors)
            runs.append(run)
            to_play += _other_choices(run, len(choices))
        return runs

    def play(self, scenario: Scenario, choices: Sequence[str] = ()) -> Run:
        """Play one interleaving: the given choices, then always the first session that can go on.

        After a Violation in its middle the stage is of no use any more: its sessions hold who knows what.
        """
        self._set_up(scenario)
        performance = Performance(scenario, self._cast(scenario), self.watcher)
        try:
            self._perform(performance, iter(choices))
        except Exception:
            performance.abandon()
            for connection in self.connections:
                connection.close()
            raise
        return performance.seen(self._state(scenario))

    def _perform(self, performance: Performance, choices: Iterator[str]) -> None:
        while possible := performance.possible():
            chosen = next(choices, possible[0])
            assert chosen in possible, (
                f"{chosen} could go on before, and cannot now: the scenario is not determined"
            )
            performance.go_on(Choice(chosen, possible))

    def _cast(self, scenario: Scenario) -> dict[str, Player]:
        assert len(scenario.sessions) <= len(self.connections)
        pairs = zip(scenario.sessions, self.connections, strict=False)
        return {session.name: Player(session, connection, self.threads) for session, connection in pairs}

    def _set_up(self, scenario: Scenario) -> None:
        self.watcher.execute("select isolation.reset()")
        for statement in scenario.given:
            self.connections[0].execute(statement)

    def _state(self, scenario: Scenario) -> tuple[str, ...]:
        cursor = self.watcher.execute(scenario.state)
        return tuple(str(row[0]) for row in cursor.fetchall())


class EnvDatabase:
    """A stage that stays open from test to test, and is opened anew after one that has left it unfit.

    A session that has played before has its functions compiled and its plans made: to begin anew in each test
    costs the server as much as the test.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._open = contextlib.ExitStack()
        self._env: IsolationEnv | None = None

    def env(self) -> IsolationEnv:
        if self._env is None or not self._env.is_fit:
            self.close()
            self._env = self._open.enter_context(IsolationEnv.open(self._database))
        return self._env

    def close(self) -> None:
        self._open.close()


def _connect(url: str, stack: contextlib.ExitStack) -> Connection:
    connection = psycopg.connect(url, autocommit=True)
    stack.callback(connection.close)
    return connection


def _other_choices(run: Run, given: int) -> list[tuple[str, ...]]:
    """What was possible after the given choices and was not chosen, each as the choices that lead there."""
    chosen = [choice.chosen for choice in run.choices]
    return [
        (*chosen[:place], other)
        for place, choice in enumerate(run.choices)
        if place >= given
        for other in choice.possible
        if other != choice.chosen
    ]
