"""`fencepost demo`: it fills a running system, removes what it made, and leaves everything else alone."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from fencepost import plugin
from fencepost.cli._app import run
from fencepost.cli.demo import DemoContext, DemoPart, _command
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import drivers
from fencepost.kernel import job as kernel_job
from fencepost.redis_streams.connection import connect_sync
from tests.integration.cli.conftest import Answer
from tests.integration.cli.test_up import HANG_SECONDS, Up, directory, environ, processes_of, start, up

__all__ = ["directory", "environ", "up"]
END_SECONDS = 30
"""On a busy machine; on a quiet one it takes less than one."""
KINDS = {
    "jobs": {"finished", "dead", "retried", "scheduled", "schedules", "late writes refused"},
    "flow": {"flows", "commits"},
    "judge": {"submissions"},
    "nonces": {"signers", "nonces"},
    "orders": {"sent", "fills"},
    "players": {"players", "changes"},
}
# Rows of leases stay, because a token never goes back. The others belong to the system and not to the demo.
KEPT = {
    "lease",
    "lineage_mark",
    "event",
    "job_worker",
    "sleeper",
    "judge_worker",
    "console_minute",
    "console_minute_part",
    "job_schedule_release",
}


class Demo:
    """A running `fencepost demo --json`, and what it has said."""

    def __init__(self, directory: Path, environ: dict[str, str], *arguments: str) -> None:
        self.process = start(directory, environ, "demo", "--json", *arguments)
        self.counts: dict[str, dict[str, int]] = {}
        self.said: list[dict[str, Any]] = []

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        event: dict[str, Any] = json.loads(line)
        self.said.append(event)
        self.counts |= {event["part"]: event["counts"]} if "counts" in event else {}
        return event

    def has(self, part: str) -> bool:
        return all(self.counts.get(part, {}).get(kind) for kind in KINDS[part])

    def end(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGTERM)
        _, err = self.process.communicate(timeout=END_SECONDS)
        return self.process.returncode, err


def command(directory: Path, environ: dict[str, str], *arguments: str) -> Answer:
    process = start(directory, environ, "demo", *arguments)
    out, err = process.communicate(timeout=HANG_SECONDS)
    return Answer(process.returncode, out, err)


def rows_of(url: str) -> dict[str, int]:
    """How many rows each table has."""
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "select relname from pg_class where relnamespace = 'fencepost'::regnamespace and relkind = 'r'"
        ).fetchall()
        counts = {
            name: connection.execute(
                sql.SQL("select count(*) from fencepost.{}").format(sql.Identifier(name))
            ).fetchone()
            for (name,) in names
            if name not in KEPT and not name.startswith("account")
        }
        counts["event"] = connection.execute(
            "select count(*) from fencepost.event where noun <> 'lease'"
        ).fetchone()
    return {name: count[0] for name, count in counts.items() if count and count[0]}


def keys_of(url: str) -> set[str]:
    redis: Any = connect_sync(url, reply_seconds=5)
    with closing(redis):
        found = redis.keys()
        return {key.decode() if isinstance(key, bytes) else key for key in found}


def test_it_fills_a_running_system_and_clean_removes_all_of_it(
    up: Callable[..., Up], directory: Path, environ: dict[str, str]
) -> None:
    up()
    note = json.loads((directory / ".fencepost" / "running.json").read_text())
    before, keys = rows_of(note["migration_url"]), keys_of(note["redis_url"])
    demo = Demo(directory, environ, "--seed", "7")
    try:
        parts = set(plugin.plugins()) & KINDS.keys() | {"jobs", "flow"}
        while not all(demo.has(part) for part in parts):
            demo.read()
    finally:
        code, err = demo.end()
    assert (code, "Traceback" in err) == (ExitCode.OK, False), err
    [refused, *_] = [event for event in demo.said if "The database refused worker" in event["event"]]
    assert refused["url"].startswith(f"{note['endpoint_url']}/console/jobs/")
    assert "stale_attempt" in refused["event"]
    assert rows_of(note["migration_url"]).keys() - before.keys() >= {"job", "orders_order", "player"}

    cleaned = command(directory, environ, "--clean", "--json")
    assert cleaned.code == ExitCode.OK, cleaned.err
    assert cleaned.json["removed"].keys() == parts
    assert rows_of(note["migration_url"]) == before
    assert {key for key in keys_of(note["redis_url"]) - keys if "demo" in key} == set()

    again = command(directory, environ, "--seconds", "8", "--only", "jobs,orders,players", "--json")
    assert again.code == ExitCode.OK, again.err
    assert any("counts" in json.loads(line) for line in again.out.splitlines())


@pytest.fixture
def on_database(
    directory: Path, environ: dict[str, str], database: Database, redis_url: str
) -> dict[str, str]:
    return environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": redis_url,
    }


REAL = """select to_jsonb(j) from fencepost.jobs j where queue = 'mail'
          union all select to_jsonb(e) from fencepost.events e where noun = 'job' and subject = %s
          union all select to_jsonb(p) from fencepost.players p where user_id = 'ann'"""
CREATE_PLAYER = """
    select fencepost.player_execute('player:ann', 'create', 'd', null, 'CreatePlayer', null, null,
      '{"create": true, "parties": [{"player": "ann", "change": {}}]}')"""


def test_beside_real_work_it_is_refused_and_with_force_leaves_it_alone(
    directory: Path, on_database: dict[str, str], database: Database
) -> None:
    with database.connect() as connection:
        job_id = drivers.run(connection, kernel_job.submit("mail", "send", {"to": "ann"})).job_id
        connection.execute(CREATE_PLAYER)

    def real() -> list[tuple[Any, ...]]:
        with database.connect() as connection:
            return connection.execute(REAL, (str(job_id),)).fetchall()

    before, rows = real(), rows_of(database.admin_url)
    refused = command(directory, on_database, "--seconds", "1", "--only", "jobs")
    assert refused.code == ExitCode.PROBLEM
    assert "The database has data of jobs that no demo made." in refused.err
    assert "--force" in refused.err
    assert rows_of(database.admin_url) == rows, "nothing was made"

    forced = command(directory, on_database, "--seconds", "8", "--only", "jobs,players", "--force")
    assert forced.code == ExitCode.OK, forced.err
    assert rows_of(database.admin_url)["player"] > 1
    assert real() == before
    assert command(directory, on_database, "--clean", "--only", "jobs,players").code == ExitCode.OK
    assert real() == before
    assert rows_of(database.admin_url) == rows


def test_a_database_on_another_machine_is_refused_before_anything_is_asked(
    directory: Path, environ: dict[str, str]
) -> None:
    for arguments in (["--seconds", "1"], ["--clean"]):
        refused = command(
            directory, environ | {"DATABASE_URL": "postgresql://app@db.example/shop"}, *arguments
        )
        assert refused.code == ExitCode.PROBLEM
        assert "The database is on db.example, which is not this machine" in refused.err


def test_without_a_running_system_it_says_what_to_do(directory: Path, environ: dict[str, str]) -> None:
    told = command(directory, environ)
    assert told.code == ExitCode.UNREACHABLE
    assert "`fencepost up` in another terminal, or `fencepost demo --up`" in told.err


def test_up_starts_a_system_of_its_own_and_leaves_nothing_running(
    directory: Path, environ: dict[str, str]
) -> None:
    ran = command(directory, environ, "--up", "--seconds", "6", "--only", "players", "--json")
    assert ran.code == ExitCode.OK, ran.err
    counts = [json.loads(line).get("counts") for line in ran.out.splitlines()]
    assert any(one and one["players"] == 6 for one in counts)
    Deadline(HANG_SECONDS, "no server is left").wait(lambda: not processes_of(directory))


def test_clean_waits_for_the_end_of_a_demo(
    directory: Path, on_database: dict[str, str], database: Database
) -> None:
    demo = Demo(directory, on_database, "--only", "jobs")
    try:
        while not demo.counts.get("jobs", {}).get("finished"):
            demo.read()
        refused = command(directory, on_database, "--clean")
        assert refused.code == ExitCode.PROBLEM
        assert "A demo runs" in refused.err
    finally:
        demo.end()


def test_a_killed_demo_leaves_no_process_behind(
    directory: Path, on_database: dict[str, str], database: Database
) -> None:
    demo = Demo(directory, on_database, "--only", "jobs")
    try:
        while "SIGSTOP" not in demo.read()["event"]:
            pass
        workers = _descendants(demo.process)
        assert len(workers) >= 3
    finally:
        demo.process.kill()
        demo.process.communicate()
    # One of them is stopped, and cannot notice anything.
    Deadline(HANG_SECONDS, "no worker is left").wait(
        lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers)
    )


def _descendants(process: subprocess.Popen[str]) -> list[int]:
    found, seen = [process.pid], list[int]()
    while found:
        listed = Path(f"/proc/{found.pop()}/task").glob("*/children")
        children = [int(child) for file in listed for child in file.read_text().split()]
        seen += children
        found += children
    return seen


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two parts: one that fails, and one that goes on."""
    said: list[str] = []

    async def fail(context: DemoContext) -> None:
        raise ValueError("the shop is closed")

    async def go_on(context: DemoContext) -> None:
        while True:
            said.append(str(context.chance.random()))
            await context.pause(0.01, 0.02)

    parts = [
        DemoPart(name=name, about=name, path="/", run=run, counts="select 'x', 1", others="select false")
        for name, run in (("shop", fail), ("other", go_on))
    ]

    def named(_only: Sequence[str]) -> list[DemoPart]:
        return parts

    monkeypatch.setattr(_command, "_parts", named)
    return said


def test_a_part_that_fails_does_not_end_the_others(
    broken: list[str],
    directory: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setenv("DATABASE_URL", database.url)
    draws: list[list[str]] = []
    for seed in ("3", "3", "4"):
        assert run(["demo", "--seconds", "0.5", "--seed", seed]) == ExitCode.PROBLEM
        draws.append([*broken])
        broken.clear()
    said = capsys.readouterr()
    assert "shop     failed: the shop is closed" in said.out
    assert "Parts that failed: shop." in said.err
    # How many there are in that time is the machine's affair.
    first, again, other = (drawn[: min(map(len, draws))] for drawn in draws)
    assert first
    assert first == again != other, "a seed decides the same"


async def test_a_wait_for_something_ends_with_it_or_with_the_time() -> None:
    found = iter([None, None, "it"])
    context = DemoContext.__new__(DemoContext)

    async def look() -> str | None:
        return next(found, None)

    assert await DemoContext.until(context, look, within=60) == "it"
    assert await DemoContext.until(context, look, within=0.1) is None


def test_an_unknown_part_is_named(directory: Path, on_database: dict[str, str]) -> None:
    told = command(directory, on_database, "--only", "orders,horses")
    assert told.code == ExitCode.USAGE
    assert "There is no part horses; there are jobs, flow" in told.err
