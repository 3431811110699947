"""The command line as a person calls it: in an empty directory, with a database of the test's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fencepost.cli._app import run
from fencepost.embedded import Database


@dataclass(frozen=True)
class Answer:
    """What a command said, where, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Fencepost = Callable[..., Answer]


@pytest.fixture
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("DATABASE_URL", "REDIS_URL", "MIGRATION_DATABASE_URL", "FENCEPOST_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def fencepost(
    empty_directory: Path,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Fencepost:
    """`fencepost("status", "--json")`, as the viewer of the test's database."""
    monkeypatch.setenv("DATABASE_URL", database.viewer_url)

    def call(*arguments: str) -> Answer:
        code = run(arguments)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call
