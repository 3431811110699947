"""`fencepost console`: users, and a way in."""

from __future__ import annotations

import io
import json

import pytest

from fencepost.cli.app import run
from fencepost.cli.exit_codes import ExitCode
from tests.integration.console.env import ConsoleEnv


@pytest.fixture(autouse=True)
def _here(stage: ConsoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", stage.database.url)


def test_a_user_is_made_logs_in_and_is_locked_out(
    stage: ConsoleEnv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long enough one\n"))
    assert run(["console", "user", "ada", "--role", "admin", "--password-stdin"]) == ExitCode.OK
    with stage.stranger() as client:
        form = {"name": "ada", "password": "a long enough one"}
        assert client.post("/console/login", data=form).status_code == 303
        assert client.get("/console/users").status_code == 200
        capsys.readouterr()
        assert run(["console", "users", "--json"]) == ExitCode.OK
        told = capsys.readouterr().out
        assert json.loads(told)[0]["name"] == "ada"
        assert "argon2" not in told
        assert run(["console", "lock", "ada"]) == ExitCode.OK
        assert client.get("/console/users").status_code == 303
    assert run(["console", "lock", "nobody"]) == ExitCode.NOT_FOUND


def test_a_short_password_is_refused(stage: ConsoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert run(["console", "user", "ada", "--password-stdin"]) != ExitCode.OK


def test_a_link_is_a_way_in(stage: ConsoleEnv, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["console", "link"]) == ExitCode.OK
    link = capsys.readouterr().out.strip()
    with stage.stranger() as client:
        assert client.get(link).status_code == 303
        assert client.get("/api/account").json()["name"] == "local"
