"""With LOG_FORMAT=json every line of a command that runs until it is stopped is JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
import typer

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database

MAIN = "from fencepost.cli._app import main; main()"
SOURCES = Path(__file__).parents[3] / "packages"
HANG_SECONDS = 120
FLOW = """
from fencepost.flows import Flow, IterableSource, ListSink
flow = Flow("quiet").source(IterableSource([])).sink(ListSink())
"""
TASKS = """
from fencepost import Fencepost, Job
fp = Fencepost.from_env()

@fp.job("mail")
async def send(job: Job) -> None: ...
"""
COMMANDS = (
    ["serve", "--port", "0"],
    ["worker", "tasks"],
    ["worker", "tasks", "--processes", "2"],
    ["flows", "run", "quiet"],
    ["demo", "--only", "jobs"],
    ["status", "--watch", "--every", "0.2"],
)
"""Those of `up` are in test_servers.py: it also restarts what has ended."""


def commands() -> list[Sequence[str]]:
    judge: typer.Typer = import_module("fencepost_judge.commands._judge").app
    has_work = any(command.name == "work" for command in judge.registered_commands)
    return [*COMMANDS, *([["judge", "work"]] if has_work else [])]


@pytest.mark.parametrize("arguments", commands(), ids=" ".join)
def test_every_line_is_json(
    arguments: Sequence[str], database: Database, redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "quiet.py").write_text(FLOW)
    environment = {name: value for name, value in os.environ.items() if name != "METRICS_PORT"}
    environment |= {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": redis_url,
        "LOG_FORMAT": "json",
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        announced = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=HANG_SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == ExitCode.OK, err
    lines = [announced, *out.splitlines(), *err.splitlines()]
    assert all(isinstance(json.loads(line), dict) for line in lines if line.strip())
    assert announced.strip()


def test_every_module_that_waits_for_a_stop_asks_for_the_form_of_its_lines() -> None:
    """A command that is added later is found here, before it writes a line of another form."""
    waiting = [
        file
        for file in SOURCES.glob("*/src/**/*.py")
        if file.name != "shutdown.py"
        and any(words in file.read_text() for words in ("Shutdown()", "interrupted_by_all()"))
    ]
    assert len(waiting) >= 7
    assert [file.name for file in waiting if "logs_json()" not in file.read_text()] == []
