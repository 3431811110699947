"""The running servers for other tools: `fencepost url`, `psql` and `grant`; and every line as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from fastapi import FastAPI

from fencepost import Fencepost, Job, JobFailed
from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Clock
from fencepost_server.web._server import WebServer
from tests.integration.cli.conftest import Answer
from tests.integration.cli.test_up import HAND_OVER, HANG_SECONDS, OURS

Command = Callable[..., Answer]


@pytest.fixture
def fencepost(
    empty_directory: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Command:
    """A command as the services' role; its migrations are the owner's."""
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("MIGRATION_DATABASE_URL", database.admin_url)

    def call(*arguments: str) -> Answer:
        code = run(arguments)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call


def test_url_prints_the_addresses(fencepost: Command, database: Database) -> None:
    assert fencepost("url").out == f"{database.url}\n"
    assert fencepost("url", "owner").out == f"{database.admin_url}\n"
    assert fencepost("url", "--json").json["database"] == database.url
    assert fencepost("url", "http").code == ExitCode.NOT_FOUND


def test_url_without_a_running_system_says_so(
    empty_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["url"]) == ExitCode.UNREACHABLE
    assert "no `fencepost up` runs" in capsys.readouterr().err


@pytest.mark.parametrize(("role", "group"), [("service", "fencepost_app"), ("viewer", "fencepost_read")])
def test_psql_speaks_to_the_running_database(
    database: Database, role: str, group: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment = os.environ | {"DATABASE_URL": database.viewer_url if role == "viewer" else database.url}
    query = f"select pg_has_role('{group}', 'member')"
    told = subprocess.run(
        [sys.executable, "-c", HAND_OVER, "psql", "--as", role, "--", "-Atc", query],
        check=False,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert (told.returncode, told.stdout, told.stderr) == (0, "t\n", "")


def test_granted_tables_can_be_used_with_their_sequences(fencepost: Command, database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute("create schema shop")
        admin.execute('create table shop."Order" (id bigserial primary key, what text)')
        admin.execute("create table image (id bigint generated always as identity, what text)")
    told = fencepost("grant", 'shop."Order"', "image")
    assert told.code == ExitCode.OK, told.err
    assert told.out.splitlines() == [
        "table shop.Order: granted to fencepost_app and fencepost_read",
        "table public.image: granted to fencepost_app and fencepost_read",
    ]
    with database.connect() as service:
        service.execute("""insert into shop."Order" (what) values ('x')""")
        service.execute("""update shop."Order" set what = 'y'""")
        service.execute("insert into image (what) values ('x')")
        service.execute("update image set what = 'y'")
    with psycopg.connect(database.viewer_url, autocommit=True) as viewer:
        assert viewer.execute("select what from image").fetchall() == [("y",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            viewer.execute("delete from image")


def test_nothing_is_granted_when_one_table_is_none_or_not_the_users(
    fencepost: Command, database: Database
) -> None:
    with database.connect_admin() as admin:
        admin.execute("create table image (what text)")
    assert fencepost("grant", "image", "nothing").code == ExitCode.NOT_FOUND
    refused = fencepost("grant", "image", "fencepost.job")
    assert (refused.code, "go around them" in refused.err) == (ExitCode.PROBLEM, True)
    with database.connect() as service, pytest.raises(psycopg.errors.InsufficientPrivilege):
        service.execute("select from image")


async def test_a_job_that_may_not_use_a_table_says_which_command_grants_it(database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute("create table image (what text)")
    fp = Fencepost(database.url)

    @fp.job("images", tries=1)
    async def draw(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("insert into image values (1)")

    async with fp:
        worker = fp.jobs.worker()
        submitted = await draw.enqueue()
        working = asyncio.create_task(worker.run())
        with pytest.raises(JobFailed, match="fencepost grant image"):
            await fp.jobs.result(submitted, within=60)
        worker.stop()
        await working


def test_a_queue_that_never_was_is_not_paused(fencepost: Command, database: Database) -> None:
    missing = fencepost("jobs", "pause", "maill")
    assert missing.code == ExitCode.NOT_FOUND
    assert "There is no queue maill" in missing.out
    assert fencepost("jobs", "resume", "maill").code == ExitCode.NOT_FOUND
    with database.connect() as service:
        assert service.execute("select count(*) from fencepost.queue_status").fetchone() == (0,)
    assert fencepost("jobs", "pause", "letters", "--new").code == ExitCode.OK
    assert fencepost("jobs", "resume", "letters").code == ExitCode.OK


def test_a_job_that_is_due_later_does_not_wait_a_negative_time(
    fencepost: Command, database: Database, clock: Clock
) -> None:
    with database.connect() as service:
        service.execute(
            "select fencepost.job_submit('mail', 'send', '{}', 1, fencepost.clock() + '1 hour', 5,"
            " '1 minute', null, null, null, '{}')"
        )
    [queue] = fencepost("status", "--json").json["queues"]
    assert queue["oldest_waiting_seconds"] == 0
    clock.advance(3660)
    [queue] = fencepost("status", "--json").json["queues"]
    assert 60 <= queue["oldest_waiting_seconds"] < 3600


def test_the_default_port_is_taken_when_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr("fencepost_server.web._server.DEFAULT_PORT", port)
    first, second = (WebServer(FastAPI(), address="127.0.0.1", port=None) for _ in range(2))
    first.start()
    try:
        assert first.url == f"http://127.0.0.1:{port}"
        second.start()
        assert second.url != first.url
    finally:
        second.stop()
        first.stop()


TASKS = """
import os
import warnings
from fencepost import Fencepost, Job

fp = Fencepost.from_env()

@fp.job("noise", tries=1)
async def noisy(job: Job) -> None:
    warnings.warn("a warning of Python")
    raise ValueError("on purpose")

@fp.job("noise", kind="fatal", tries=1)
async def fatal(job: Job) -> None:
    os._exit(3)
"""


def test_every_line_is_json_when_the_log_is(tmp_path: Path) -> None:
    """Also of the supervisor that starts a worker again, and of a server that ended."""
    (tmp_path / "tasks.py").write_text(TASKS)
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= {"LOG_FORMAT": "json", "HTTP_PORT": "0", "PYTHONWARNINGS": "default"}
    with (tmp_path / "stderr").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", HAND_OVER, "up", "--app", "tasks"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        announced = json.loads(process.stdout.readline())
        with psycopg.connect(announced["database"], autocommit=True) as connection:
            for kind in ("noisy", "fatal"):
                connection.execute(
                    "select fencepost.job_submit('noise', %s, '{}', 1, null, 1, '1 minute', null, null, null,"
                    " '{}')",
                    (kind,),
                )
        _wait_for(tmp_path / "stderr", "worker process ended")
        note = json.loads((tmp_path / ".fencepost/running.json").read_text())
        assert announced["url"] == note["endpoint_url"]
        postmaster = tmp_path / ".fencepost/postgres/data/postmaster.pid"
        os.kill(int(postmaster.read_text().split()[0]), signal.SIGKILL)
        _wait_for(tmp_path / "stderr", "server ended; starting it again")
    finally:
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=HANG_SECONDS)
    lines = [*rest.splitlines(), *(tmp_path / "stderr").read_text().splitlines()]
    events = [json.loads(line)["event"] for line in lines if "event" in json.loads(line)]
    assert "Stopped. Nothing is left running." in events
    assert any("a warning of Python" in event for event in events)


def _wait_for(file: Path, words: str) -> None:
    Deadline(HANG_SECONDS, f"the log has {words!r}").wait(lambda: words in file.read_text())
