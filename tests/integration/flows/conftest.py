"""A client with tables for sinks."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import LiteralString

import pytest

from fencepost.cli._app import run
from fencepost.embedded import Database
from tests.integration.flows.harness import TABLES, Command, FlowHarness


@pytest.fixture(scope="session")
def user_tables() -> LiteralString:
    return TABLES


@pytest.fixture
async def harness(database: Database, redis_url: str) -> AsyncGenerator[FlowHarness]:
    async with FlowHarness.of(database, redis_url) as harness:
        yield harness


@pytest.fixture
def command(
    harness: FlowHarness, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """A command line on the scene's servers; its exit code and what it answered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", harness.database.url)
    monkeypatch.setenv("REDIS_URL", harness.redis_url)

    def call(*arguments: str) -> tuple[int, str]:
        code = run(arguments)
        return code, capsys.readouterr().out

    return call
