"""One server for all mutants, everything collected once, and a process for each mutant.

pytest collects in the parent and sets nothing up there. A child is a fork: it runs a choice of the tests
against a template whose function was exchanged, and says which of them failed first.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.fixtures import SubRequest

from fencepost.embedded import Database, PostgresServer, ValkeyServer
from fencepost.kernel.migrate import migrate
from fencepost_torture._cpu_time import slowness
from tests.conftest import FAST_SETTINGS
from tests.tmp_dirs import server_directory

TEMPLATE = "fencepost_template"
SERVER_SETTINGS: dict[str, str | int] = {
    **FAST_SETTINGS,
    "track_functions": "all",
    # A mutant that loops or waits for ever is ended, and so seen.
    "statement_timeout": "60s",
}
# A mutant that waits for ever is ended when a test has had so many times what it takes.
HANG_TIMES = 3
PASSED = "passed"
HUNG = "hung"


@dataclass(frozen=True)
class Workspace:
    """The servers, and the template that every test's database is a copy of."""

    template: Database
    valkey: ValkeyServer

    def exchange(self, definition: str) -> None:
        """Replace a function in the template; what cannot be parsed raises."""
        with self.template.connect_admin() as admin:
            admin.execute(definition.encode())

    def sweep(self) -> None:
        """Remove what a child left: it does not tear its session down."""
        with Database(self.template.server, "postgres").connect_admin() as admin:
            names = admin.execute(
                "select datname from pg_database where datname not in ('postgres', %s) and not datistemplate",
                (TEMPLATE,),
            ).fetchall()
        for (name,) in names:
            Database(self.template.server, name).drop()


@contextlib.contextmanager
def open_workspace() -> Generator[Workspace]:
    with (
        PostgresServer(server_directory(), settings=SERVER_SETTINGS, ephemeral=True) as server,
        ValkeyServer(server_directory(), ephemeral=True) as valkey,
    ):
        template = Database(server, TEMPLATE)
        template.create()
        migrate(template.admin_url)
        template.create_logins()
        yield Workspace(template, valkey)


class Standing:
    """The fixtures that stand already: no test starts a server of the run's own."""

    def __init__(self, workspace: Workspace) -> None:
        self._values: dict[str, Any] = {
            "postgres": workspace.template.server,
            "template_database": workspace.template,
            "valkey": workspace.valkey,
        }

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: SubRequest) -> Any | None:
        value = self._values.get(fixturedef.argname)
        if value is not None:
            fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
        return value


class FirstFailure:
    """Ends the run at the first failure, and remembers it."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


class Hourglass:
    """Ends the process when one test takes far longer than it did when nothing was wrong.

    By the machine's pace: who is late because of others is not hung.
    """

    def __init__(self, seconds: Mapping[str, float], at_least: float) -> None:
        self._seconds = seconds
        self._at_least = at_least

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        allowed = (self._at_least + HANG_TIMES * self._seconds.get(item.nodeid, 0.0)) * slowness()
        # A thread: the tests' own timeouts use the signal, and a loop that never ends leaves it its turn.
        timer = threading.Timer(allowed, os._exit, (0,))
        timer.daemon = True
        timer.start()
        try:
            return (yield)
        finally:
            timer.cancel()


def run_tests(
    session: pytest.Session, items: Sequence[pytest.Item], failure: FirstFailure | None = None
) -> None:
    """In a child: one test after another, until one fails if a failure is asked for."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if failure is not None and failure.test:
            return


def in_a_child(work: Callable[[], str], *, within: float) -> str:
    """What the work says, from a fork of this process; HUNG if it does not come to an end."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _be_quiet()
            os.close(reading)
            os.write(writing, work().encode())
        finally:
            # Whatever was raised must not unwind the parent's blocks: they would stop its servers.
            os._exit(0)
    os.close(writing)
    answer, ended = _listen(reading, child, time.monotonic() + within)
    if not ended:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return answer or HUNG


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _listen(reading: int, child: int, give_up: float) -> tuple[str, bool]:
    """The child's word and whether it has ended. A test's timeout ends it without a word."""
    os.set_blocking(reading, False)
    said = b""
    try:
        while time.monotonic() < give_up:
            with contextlib.suppress(BlockingIOError):
                said += os.read(reading, 65536)
            if os.waitpid(child, os.WNOHANG)[0]:
                with contextlib.suppress(BlockingIOError):
                    said += os.read(reading, 65536)
                return said.decode(), True
            # Its pipe does not tell its end: servers that it started may hold it open.
            time.sleep(0.01)
        return said.decode(), False
    finally:
        os.close(reading)
