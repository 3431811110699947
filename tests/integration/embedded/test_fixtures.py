"""The fixtures and the flag that every test of this project relies on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from fencepost.embedded import Database

SAMPLE = """
import pytest

def test_passes():
    pass

@pytest.mark.skip(reason="no moon tonight")
def test_needs_the_moon():
    raise AssertionError

@pytest.mark.full
def test_takes_minutes():
    pass
"""
CONFIGURATION = """
[tool.pytest.ini_options]
addopts = ["--strict-markers"]
markers = ["full: takes minutes"]
"""


def scalar(connection: psycopg.Connection[Any], query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_a_database_is_entered_as_the_service(database: Database) -> None:
    with database.connect() as connection:
        assert scalar(connection, "select current_user") == "fencepost_service"
        assert scalar(connection, "select current_database()") == database.name
        assert connection.autocommit


def test_a_database_is_entered_as_the_administrator(database: Database) -> None:
    with database.connect_admin() as connection:
        assert scalar(connection, "select usesuper from pg_user where usename = current_user") is True


def test_a_database_is_entered_as_the_viewer(database: Database) -> None:
    with psycopg.connect(database.viewer_url) as connection:
        assert scalar(connection, "select pg_has_role('fencepost_read', 'member')") is True
        assert scalar(connection, "select pg_has_role('fencepost_app', 'member')") is False


@pytest.mark.parametrize("turn", [1, 2])
def test_a_database_belongs_to_one_test(database: Database, turn: int) -> None:
    with database.connect_admin() as connection:
        connection.execute("create table mine (n int)")
        connection.execute("insert into mine values (%s)", (turn,))
        assert scalar(connection, "select array_agg(n) from mine") == [turn]


@pytest.mark.parametrize("turn", [1, 2])
def test_redis_is_empty_for_each_test(redis_url: str, turn: int) -> None:
    client: Any = redis.Redis.from_url(redis_url)  # pyright: ignore[reportUnknownMemberType]
    with client:
        assert client.dbsize() == 0
        client.set(f"key-{turn}", "value")


def run_sample(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    shutil.copy(root / "tests" / "conftest.py", directory / "conftest.py")
    (directory / "test_sample.py").write_text(SAMPLE)
    (directory / "pyproject.toml").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    # The fixtures lean on the matrix beside them, which the sample's directory does not have.
    environ = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(
        command, cwd=directory, env=environ, check=False, capture_output=True, text=True, timeout=100
    )


def test_long_tests_wait_for_the_flag_and_skips_are_listed_with_reasons(directory: Path) -> None:
    result = run_sample(directory)
    assert result.returncode == pytest.ExitCode.OK
    assert "1 passed, 2 skipped" in result.stdout
    assert "= Skipped =" in result.stdout
    assert "1 because: no moon tonight\n    test_sample.py::test_needs_the_moon\n" in result.stdout
    assert (
        "1 because: takes minutes; run with --full\n    test_sample.py::test_takes_minutes\n" in result.stdout
    )


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["one process", "two workers"])
def test_with_the_flag_a_skip_is_a_failure(directory: Path, workers: list[str]) -> None:
    result = run_sample(directory, "--full", *workers)
    assert result.returncode == pytest.ExitCode.TESTS_FAILED
    assert "2 passed, 1 skipped" in result.stdout
    assert "With --full nothing may be skipped: this run has failed." in result.stdout


def test_with_the_flag_a_run_without_skips_passes(directory: Path) -> None:
    result = run_sample(directory, "--full", "-k", "not moon")
    assert result.returncode == pytest.ExitCode.OK
    assert "2 passed" in result.stdout
