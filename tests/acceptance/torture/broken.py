"""Systems of a user's own: each breaks a promise, or the run, in a way of its own."""

import signal
import threading
import time
from collections.abc import Generator, Iterable, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from fencepost.redis_streams.connection import connect_sync
from fencepost.testing import Breach
from fencepost_torture._child_setup import until_told_to_end
from fencepost_torture._effects import exactly_once
from fencepost_torture._system_environment import Account, ProcessTask, SystemEnvironment


class Forgetful:
    """Asks for three things; its process does nothing, and two of them are said to be done."""

    name = "forgetful"
    processes = 1
    points = ()
    uses_redis = False
    bears_clock_jumps = True

    def load(self) -> None: ...

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        yield {}

    def serve(self, task: ProcessTask) -> None:
        until_told_to_end().wait()

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        threading.Event().wait(0.05)

    def account(self, env: SystemEnvironment) -> Account:
        return Account(3, 3)

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        return exactly_once(["a", "b", "c"], ["a", "c"])

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        return ()


LEFTOVERS = """
    create table litter (id int);
    select fencepost.lease_acquire('printer', 'nobody', '1 hour');
    select fencepost.job_submit('q', 'k', '{}');
    select fencepost.job_claim_next('q', 1, 'nobody', 1, '1 hour');
"""


class Untidy:
    """Does nothing but one thing while there are faults; and never clears anything away."""

    name = "untidy"
    processes = 1
    points = ()
    uses_redis = False
    bears_clock_jumps = True

    def load(self) -> None: ...

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with env.database.connect_admin() as admin:
            admin.execute(LEFTOVERS)
            admin.execute("begin; insert into litter values (1); prepare transaction 'litter'")
        client: Any = connect_sync(env.redis_url, reply_seconds=5)
        with closing(client), psycopg.connect(env.admin_url, autocommit=True) as forgotten:
            client.ping()
            forgotten.execute("select 1")
            self._calm = False
            yield {}

    def serve(self, task: ProcessTask) -> None:
        until_told_to_end().wait()

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        threading.Event().wait(0.05)

    def account(self, env: SystemEnvironment) -> Account:
        return Account(1000, 1000 if self._calm else 1)

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        return ()

    def remains(self, env: SystemEnvironment) -> Iterable[Breach]:
        """Not asked for before the faults are over."""
        self._calm = True
        return ()


class Deaf(Forgetful):
    """Says that it is there, and does not end when it is asked to."""

    name = "deaf"

    def serve(self, task: ProcessTask) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path(task.operation_log).touch()
        threading.Event().wait()


class GivesUp(Forgetful):
    """Its callers have no answer, soon after the faults have begun."""

    name = "gives-up"

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        if turn > 20:
            raise RuntimeError("nobody answers")
        super().ask(env, turn)


TAKE = "update wish set taken_until = %(until)s where taken_until < %(now)s returning id"
DONE = "insert into effect values (%(id)s)"


class GoesByItsWatch(Forgetful):
    """Judges by its own clock that another has had a request for long enough, and does it again."""

    name = "goes-by-its-watch"
    processes = 2

    @contextmanager
    def open(self, env: SystemEnvironment) -> Generator[Mapping[str, Any]]:
        with env.database.connect_admin() as admin:
            admin.execute("create table wish (id int, taken_until float8 default 0)")
            admin.execute("create table effect (id int)")
            admin.execute("grant select, insert, update on wish, effect to fencepost_app")
        yield {}

    def serve(self, task: ProcessTask) -> None:
        stop = until_told_to_end()
        with psycopg.connect(task.database_url, autocommit=True) as connection:
            while not stop.wait(0.01):
                times = {"now": time.time(), "until": time.time() + 600}
                # Together, or a connection that breaks in between loses a wish by no fault of the watch.
                with connection.transaction():
                    for (wish,) in connection.execute(TAKE, times).fetchall():
                        connection.execute(DONE, {"id": wish})

    def ask(self, env: SystemEnvironment, turn: int) -> None:
        super().ask(env, turn)
        with env.asking() as connection:
            connection.execute("insert into wish values (%s)", (turn,))

    def account(self, env: SystemEnvironment) -> Account:
        return Account(env.value("select count(*) from wish"), env.value("select count(*) from effect"))

    def judge(self, env: SystemEnvironment) -> Iterable[Breach]:
        asked, done = (
            [str(number) for (number,) in env.rows(rows)]
            for rows in ("select id from wish", "select id from effect")
        )
        return exactly_once(asked, done)
