"""`fencepost judge users|tokens|contest|rejudge`, as an operator types them."""

import json
from io import StringIO
from pathlib import Path

import psycopg
import pytest
from argon2 import PasswordHasher

from fencepost.embedded import Database
from tests.integration.judge.judge_env import Command, problem_folder

CONTEST = """
title: Autumn
starts_at: 2020-10-03T09:00:00Z
ends_at: 2100-10-03T14:00:00Z
problems: {A: echo}
"""


def test_users_and_their_tokens_are_made_shown_and_ended(judge: Command, database: Database) -> None:
    made = judge("users", "set", "ada", "--role", "jury")
    code, token = judge("tokens", "make", "ada", "--label", "laptop")
    listed = judge("tokens", "list", "ada")[1]
    with database.connect() as connection:
        known = connection.execute(
            "select name, role from fencepost.account_token_use(sha256(%s::bytea), 'judge')",
            (token.encode(),),
        ).fetchall()
    revoked = judge("tokens", "revoke", "1")
    locked = judge("users", "lock", "ada")
    users = json.loads(judge("users", "list", "--json")[1])

    assert (made, code, known) == ((0, "ada is jury."), 0, [("ada", "jury")])
    assert token.startswith("fpj_")
    assert "laptop" in listed
    assert token not in listed
    assert (revoked[0], locked, users[0]["disabled_at"] is None) == (0, (0, "ada is locked out."), False)
    assert [judge(*words)[0] for words in (("users", "lock", "x"), ("tokens", "revoke", "9"))] == [4, 4]
    assert judge("tokens", "make", "ada")[0] == 4


def test_a_user_gets_a_password_for_the_pages(
    judge: Command, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(password: str, name: str = "ada") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", StringIO(f"{password}\n"))
        return judge("users", "password", name, "--password-stdin")

    judge("users", "set", "ada", "--role", "admin")
    kept, unknown, short = given("correct horse"), given("correct horse", "bob"), given("short")
    with database.connect() as connection:
        row = connection.execute(
            "select password from fencepost.account_login_begin('judge', 'ada', '::1', interval '1 minute')"
        ).fetchone()

    assert kept == (0, "ada has a new password.")
    assert (unknown[0], short[0] > 0) == (4, True)
    assert row is not None
    assert PasswordHasher().verify(row[0], "correct horse")


def test_a_contest_is_made_and_its_scoreboard_shown(judge: Command, tmp_path: Path) -> None:
    judge("import", str(problem_folder(tmp_path / "echo", "1\n")))
    (tmp_path / "contest.yaml").write_text(CONTEST)
    (tmp_path / "broken.yaml").write_text("title: Autumn\n")
    put = judge("contest", "put", "autumn", "contest.yaml")
    broken = judge("contest", "put", "autumn", "broken.yaml")
    joined = judge("contest", "join", "autumn", "ann", "bob")
    code, board = judge("contest", "scoreboard", "autumn")
    early = judge("contest", "unfreeze", "autumn")

    assert (put[0], broken[0], joined, code, early[0]) == (0, 1, (0, "autumn: ann, bob."), 0, 1)
    assert [line.split() for line in board.splitlines()] == [
        ["name", "score", "A"],
        ["1", "ann", "0", "(0)", "."],
        ["1", "bob", "0", "(0)", "."],
    ]
    assert "autumn  icpc" in judge("contest", "list")[1]
    assert judge("contest", "scoreboard", "winter")[0] == 4


def test_a_rejudging_is_started_shown_and_dropped(judge: Command, database: Database, tmp_path: Path) -> None:
    judge("import", str(problem_folder(tmp_path / "echo", "1\n")))
    with psycopg.connect(database.admin_url) as connection:
        connection.execute(
            "select fencepost.judge_submission_put(j.job_id, 'echo', 'python', 'ann', '{}', null)"
            " from fencepost.job_submit('judge', 'judge_submission', '{}') j"
        )
    started = judge("rejudge", "start", "--problem", "echo", "--reason", "test 7 was wrong")
    shown = judge("rejudge", "show", "1", "--all")[1]
    early = judge("rejudge", "apply", "1")
    dropped = judge("rejudge", "drop", "1")

    assert started == (0, "Generation 1: 1 submissions.")
    assert "ann  echo: none -> not judged yet" in shown
    assert (early[0], dropped) == (1, (0, "Generation 1 is dropped."))
    assert "1  dropped  0 of 1  test 7 was wrong" in judge("rejudge", "list")[1]
    assert judge("rejudge", "start", "--problem", "nothing", "--reason", "x")[0] == 4
    assert [judge("rejudge", verb, "9")[0] for verb in ("show", "apply", "drop")] == [4, 4, 4]
