"""The judge's commands, as an operator types them."""

from pathlib import Path

import pytest

from fencepost.cli._app import run
from fencepost.embedded import Database
from tests.integration.judge.judge_env import Command


@pytest.fixture
def judge(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """`judge("users", "list")`: the exit code, and what was said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("JUDGE_STORE", str(tmp_path / "store"))
    for name in ("REDIS_URL", "FENCEPOST_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: str) -> tuple[int, str]:
        code = run(("judge", *arguments))
        said = capsys.readouterr()
        return code, (said.out or said.err).strip()

    return call
