"""Fixtures for every folder of integration tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.cli._app import run
from fencepost.embedded import Database
from tests.integration.cli.conftest import Answer


@pytest.fixture
def subcommand(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Callable[..., Answer]]:
    """`subcommand("jobs")("list", "--json")` is `fencepost jobs list --json`, as the services' role."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.url)

    def call(*arguments: str) -> Answer:
        code = run(arguments)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return lambda name: lambda *arguments: call(name, *arguments)
