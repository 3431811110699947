"""A client with tables for sinks."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from fencepost.cli.app import run
from fencepost.embedded import Database
from tests.integration.flows.scene import Command, Scene


@pytest.fixture
async def scene(database: Database, redis_url: str) -> AsyncGenerator[Scene]:
    async with Scene.of(database, redis_url) as scene:
        yield scene


@pytest.fixture
def command(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """A command line on the scene's servers; its exit code and what it answered."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", scene.database.url)
    monkeypatch.setenv("REDIS_URL", scene.redis_url)

    def call(*arguments: str) -> tuple[int, str]:
        code = run(arguments)
        return code, capsys.readouterr().out

    return call
