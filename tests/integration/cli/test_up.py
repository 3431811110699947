"""`fencepost up` as a process of its own: started, looked at, stopped, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from tests.integration.cli.conftest import Answer

OURS = ("DATABASE_URL", "REDIS_URL", "MIGRATION_DATABASE_URL", "FENCEPOST_CONFIG", "METRICS_PORT")
# Only a hang takes that long: a busy machine must not look like one.
HANG_SECONDS = 240
HAND_OVER = "import sys; from fencepost.cli._app import main; sys.argv[0] = 'fencepost'; main()"


class Up:
    """A running `fencepost up --json`, and what it announced."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        self.process = start(directory, environ, "up", "--json")
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.announced: dict[str, Any] = json.loads(line)

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urlopen(self.announced["url"] + path, timeout=HANG_SECONDS) as response:  # noqa: S310 - Our own address.
                return response.status, response.read().decode()
        except HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def end(self, how: signal.Signals) -> tuple[int, str]:
        self.process.send_signal(how)
        _, err = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, err


def start(directory: Path, environ: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HAND_OVER, *arguments],
        cwd=directory,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def processes_of(directory: Path) -> list[str]:
    """The command lines of every process that mentions the directory."""
    lines: list[str] = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line:
            lines.append(line)
    return lines


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fencepost-up-") as path:
        yield Path(path)


@pytest.fixture
def environ() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS}


@pytest.fixture
def up(directory: Path, environ: dict[str, str]) -> Iterator[Callable[..., Up]]:
    started: list[Up] = []

    def begin(**more: str) -> Up:
        started.append(Up(directory, environ | more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture
def status(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Answer]:
    """`fencepost status`, said in the directory."""
    monkeypatch.chdir(directory)
    for name in OURS:
        monkeypatch.delenv(name, raising=False)

    def look(*options: str) -> Answer:
        code = run(("status", *options))
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return look


def test_up_serves_and_ctrl_c_leaves_nothing(
    up: Callable[..., Up], directory: Path, environ: dict[str, str], status: Callable[..., Answer]
) -> None:
    running = up()
    assert running.get("/healthz") == (200, "ok\n")
    assert running.get("/readyz") == (200, '{"postgresql": "ok", "redis": "ok"}\n')
    assert "Log in" in running.get("/")[1]
    assert "fencepost_database_reachable 1.0" in running.get("/metrics")[1]
    assert "fencepost_service@" in running.announced["database"], "services run as the application role"

    looked = status("--json")
    assert (looked.code, looked.json["queues"]) == (ExitCode.OK, [])

    second = start(directory, environ, "up")
    _, err = second.communicate(timeout=60)
    assert second.returncode == ExitCode.IN_USE
    assert "is in use by" in err
    assert "Traceback" not in err
    assert running.get("/healthz")[0] == 200, "the second start did not disturb the first"

    code, said = running.end(signal.SIGINT)
    # Before it, perhaps, that the judge is weaker here than it would be as root.
    assert (code, said.endswith("Stopping.\nStopped. Nothing is left running.\n")) == (ExitCode.OK, True)
    assert "Traceback" not in said
    assert processes_of(directory) == []
    looked = status()
    assert looked.code == ExitCode.UNREACHABLE
    assert "no `fencepost up` runs in .fencepost" in looked.err


def test_what_dies_is_started_again_and_a_killed_up_leaves_nothing_but_its_data(
    up: Callable[..., Up], directory: Path, status: Callable[..., Answer]
) -> None:
    """To start the whole system is what takes time here, so one system lives through both."""
    first = up(LOG_FORMAT="json")
    postmaster = directory / ".fencepost/postgres/data/postmaster.pid"
    os.kill(int(postmaster.read_text().split()[0]), signal.SIGKILL)
    Deadline(60, "the system is ready again").wait(lambda: first.get("/readyz")[0] == 200)
    _, said = first.end(signal.SIGKILL)
    # The services lost their connections at that moment too, and may say so first.
    events = [json.loads(line)["event"] for line in said.splitlines() if line.startswith("{")]
    assert "server ended; starting it again" in events
    Deadline(60, "no process of the killed system is left").wait(lambda: not processes_of(directory))
    looked = status()
    assert looked.code == ExitCode.UNREACHABLE
    assert "The `fencepost up` in .fencepost has ended. Start it again." in looked.err

    second = up()
    assert second.get("/readyz")[0] == 200
    assert second.end(signal.SIGTERM)[0] == ExitCode.OK
    assert processes_of(directory) == []


def test_up_uses_the_servers_of_the_settings_and_is_ready_without_redis_but_not_without_postgres(
    up: Callable[..., Up], directory: Path, database: Database
) -> None:
    # Each service, one after the other, waits for a connection to a database that is gone before it stops.
    running = up(DATABASE_URL=database.url, REDIS_URL="redis://127.0.0.1:1/0", DATABASE_POOL_WAIT_SEC="0.5")
    assert not (directory / ".fencepost").exists(), "nothing is kept here for servers that run elsewhere"
    status, body = running.get("/readyz")
    assert (status, json.loads(body)["postgresql"]) == (200, "ok")
    assert "Connection refused" in json.loads(body)["redis"]
    database.drop()
    status, body = running.get("/readyz")
    assert status == 503
    assert "does not exist" in json.loads(body)["postgresql"]
    assert "fencepost_database_reachable 0.0" in running.get("/metrics")[1]
    assert running.get("/healthz")[0] == 200
    assert running.end(signal.SIGINT)[0] == ExitCode.OK
