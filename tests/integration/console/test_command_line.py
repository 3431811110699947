"""`fencepost console`: users, and a way in."""

from __future__ import annotations

import io
import json

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings
from fencepost_judge._role import ACCOUNTS as JUDGE
from fencepost_judge._role import JudgeRole
from fencepost_server.console._commands import announce
from fencepost_server.console._role import ACCOUNTS
from tests.integration.console.env import ConsoleEnv, log_in


@pytest.fixture(autouse=True)
def _here(env: ConsoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", env.database.url)


def test_a_user_is_made_logs_in_and_is_locked_out(
    env: ConsoleEnv, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a long enough one\n"))
    assert run(["console", "user", "ada", "--role", "admin", "--password-stdin"]) == ExitCode.OK
    with env.stranger() as client:
        assert log_in(client, "ada", "a long enough one").status_code == 303
        assert client.get("/console/users").status_code == 200
        capsys.readouterr()
        assert run(["console", "users", "--json"]) == ExitCode.OK
        told = capsys.readouterr().out
        assert json.loads(told)[0]["name"] == "ada"
        assert "argon2" not in told
        assert run(["console", "lock", "ada"]) == ExitCode.OK
        assert client.get("/console/users").status_code == 303
    assert run(["console", "lock", "nobody"]) == ExitCode.NOT_FOUND


def test_a_short_password_is_refused(env: ConsoleEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert run(["console", "user", "ada", "--password-stdin"]) != ExitCode.OK


def test_a_link_is_a_way_in(env: ConsoleEnv, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["console", "link"]) == ExitCode.OK
    link = capsys.readouterr().out.strip()
    with env.stranger() as client:
        assert client.get(link).status_code == 303
        assert client.get("/api/account").json()["name"] == "local"


def test_an_account_of_the_judge_does_not_become_an_admin_by_its_name(
    env: ConsoleEnv, capsys: pytest.CaptureFixture[str]
) -> None:
    judges = JUDGE.set_user("local", JudgeRole.CONTESTANT, "known to the jury", "jo", by_service=True)
    env.call(judges)
    assert run(["console", "link"]) == ExitCode.PROBLEM
    assert "local is an account without a role in the console" in capsys.readouterr().err
    context = of_this_directory(Settings.load())
    told = announce(context, to_person=True)
    assert list(told) == ["Log in"]
    assert "without a role in the console" in told["Log in"]
    assert "ticket" not in str(told)
    assert env.call(ACCOUNTS.users(None, 10)) == []
