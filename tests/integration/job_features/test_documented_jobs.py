"""The pages about jobs do what they say. A worker that a page starts runs beside the rest of it."""

import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fencepost.embedded import Database, ValkeyServer
from tests.integration.client.page import agrees, blocks

DOCS = Path(__file__).parents[3] / "docs"
PAGES = {
    "tutorial/first-job.md": 5,
    "tutorial/first-workflow.md": 7,
    "how-to/jobs-fastapi.md": 1,
    "how-to/jobs-django.md": 1,
    "how-to/jobs-sqlalchemy.md": 1,
    "how-to/jobs-schedules.md": 8,
    "how-to/jobs-batches.md": 1,
    "how-to/jobs-limits.md": 1,
    "how-to/jobs-search.md": 2,
    "how-to/jobs-tests.md": 1,
    "how-to/jobs-compute.md": 1,
    "how-to/jobs-dead-letters.md": 7,
    "how-to/jobs-deploy.md": 3,
    "how-to/jobs-sentry.md": 1,
    "how-to/jobs-chunks.md": 1,
}
"""With the number of commands that each runs to their end."""


@pytest.fixture
def environment(database: Database, redis_url: str, valkey: ValkeyServer) -> dict[str, str]:
    """With the server itself where a Sentinel would tell its address: a page asks it with a plain client."""
    assert redis_url
    return os.environ | {
        "DATABASE_URL": database.url,
        "MIGRATION_DATABASE_URL": database.admin_url,
        "REDIS_URL": valkey.url,
        "JOBS_RECLAIM_INTERVAL_SEC": "0.5",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


@contextmanager
def beside(command: str, directory: Path, environment: dict[str, str]) -> Generator[None]:
    """A worker that runs until the end of the page, and then drains."""
    with (directory / "worker.log").open("w") as log:
        worker = subprocess.Popen(
            shlex.split(command), cwd=directory, env=environment, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            worker.terminate()
            try:
                worker.wait(30)
            finally:
                worker.kill()


def run_command(command: str, directory: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        shlex.split(command),
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    # A worker inside the command logs the tracebacks of its jobs.
    assert not (done.returncode and "Traceback" in done.stderr), done.stderr
    return [line.rstrip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", PAGES)
def test_the_page_does_what_it_says(
    name: str, database: Database, tmp_path: Path, environment: dict[str, str]
) -> None:
    ran = 0
    with ExitStack() as workers:
        for block in blocks(DOCS / name):
            match block.language:
                case "python":
                    (tmp_path / block.file_name).write_text(block.body, encoding="utf-8")
                case "sql":
                    with database.connect_admin() as owner:
                        owner.execute(block.body.encode())
                case "console":
                    for command, shown in block.commands():
                        if command.startswith("fencepost worker"):
                            workers.enter_context(beside(command, tmp_path, environment))
                            continue
                        printed = run_command(command, tmp_path, environment)
                        assert agrees(printed, shown), f"$ {command}\nprinted {printed}\nshown   {shown}"
                        ran += 1
                case other:
                    pytest.fail(f"nobody runs a block of {other}")
    assert ran == PAGES[name]


def test_every_page_about_jobs_is_run() -> None:
    pages = {f"how-to/{page.name}" for page in (DOCS / "how-to").glob("jobs-*.md")}
    assert pages | {"tutorial/first-job.md", "tutorial/first-workflow.md"} == set(PAGES)
