"""Thousands of clients that begin requests and never finish them: others are answered meanwhile."""

from __future__ import annotations

import json
import logging
import os
import resource
import select
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel.drivers import run
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._role import ACCOUNTS, Role

HAND_OVER = "import sys; from fencepost.cli._app import main; sys.argv[0] = 'fencepost'; main()"
ROOT = Path(__file__).parents[3]
LOG_BYTES_MAX = 200_000


@dataclass
class Served:
    url: str
    pid: int
    log: Path
    token: str

    def answer_seconds(self, path: str) -> float:
        """How long a client waits that comes now, with a connection of its own."""
        began = time.perf_counter()
        answer = httpx.get(
            self.url + path, headers={"authorization": f"Bearer {self.token}"}, timeout=30, trust_env=False
        )
        assert answer.status_code == 200, answer.text
        return time.perf_counter() - began

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


@contextmanager
def served(database: Database, folder: Path, **settings: str) -> Generator[Served]:
    """`fencepost serve` with the console, as a process of its own."""
    secret = ACCOUNTS.token_prefix + new_secret()
    with psycopg.connect(database.url, autocommit=True) as connection:
        run(connection, ACCOUNTS.set_user("ada", Role.ADMIN, None, "test", by_service=False))
        run(
            connection,
            ACCOUNTS.make_token(secret, "ada", "test", Role.ADMIN, lifetime_seconds=3600, actor="test"),
        )
    environ = {name: value for name, value in os.environ.items() if not name.startswith("HTTP_")}
    environ |= {"DATABASE_URL": database.url, "CONSOLE_READ_DATABASE_URL": database.viewer_url, **settings}
    log = folder / "log"
    with (
        log.open("wb") as err,
        subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, "serve", "--services", "console", "--port", "0", "--json"],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, log.read_text()
            yield Served(json.loads(line)["url"], process.pid, log, secret)
        finally:
            process.terminate()


@contextmanager
def slow_clients(
    url: str, count: int, *, per_second: float, first_address: int
) -> Generator[subprocess.Popen[str]]:
    port = urlsplit(url).port
    command = [sys.executable, "-m", "tests.integration.web.slow_clients"]
    with subprocess.Popen(
        [*command, str(port), str(count), str(per_second), str(first_address)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()


def under_way(crowds: list[subprocess.Popen[str]]) -> bool:
    """Whether a crowd has not connected yet."""
    waiting = [crowd.stdout for crowd in crowds if crowd.stdout is not None]
    return len(select.select(waiting, [], [], 0)[0]) < len(crowds)


def test_slow_clients_hold_no_caller_up(database: Database, tmp_path: Path) -> None:
    limits = {"HTTP_CONNECTIONS_MAX": "200", "HTTP_CONNECTIONS_PER_ADDRESS": "100"}
    with (
        served(database, tmp_path, **limits) as server,
        slow_clients(server.url, 600, per_second=300, first_address=1) as crowd,
    ):
        before = server.descriptors
        Deadline(60, "all have connected").wait(lambda: not under_way([crowd]))
        for _ in range(5):
            server.answer_seconds("/readyz")
            server.answer_seconds("/console")
        assert server.descriptors < before + 200 + 64 + 20
    assert server.log.stat().st_size < LOG_BYTES_MAX
    assert "Traceback" not in server.log.read_text()


@pytest.mark.full
def test_twenty_thousand_slow_clients(database: Database, tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 5200:
        pytest.skip(f"a process may open {hard} files here; the server needs 5,200")
    with served(database, tmp_path) as server, ExitStack() as stack:
        # The first answers load templates and open pools.
        server.answer_seconds("/readyz")
        server.answer_seconds("/console")
        crowds = [
            stack.enter_context(slow_clients(server.url, 5000, per_second=250, first_address=number + 1))
            for number in range(4)
        ]
        times: list[float] = []
        while under_way(crowds) or len(times) < 100:
            times += [server.answer_seconds("/readyz"), server.answer_seconds("/console")]
        figures = (
            f"{len(times)} answers, half within {median(times):.3f} s, the slowest after {max(times):.3f} s"
        )
        logging.getLogger(__name__).info(figures)
        assert max(times) < 1.0, figures
    assert server.log.stat().st_size < LOG_BYTES_MAX
    assert "Traceback" not in server.log.read_text()
