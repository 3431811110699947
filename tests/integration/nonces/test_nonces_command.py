"""`fencepost nonces` on a database: what a person sees, and may settle."""

import json

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database

SIGNER = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"


@pytest.fixture(autouse=True)
def here(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("LOG_LEVEL", "error")


def test_a_nonce_is_reserved_settled_and_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonces", "reserve", "1", SIGNER, "pay-7", "pay-8", "--json"]) == ExitCode.OK
    assert [row["nonce"] for row in json.loads(capsys.readouterr().out)] == [0, 1]
    assert run(["nonces", "used", "1", SIGNER, "0", "--hold", "1", "--tx-hash", "0xaa"]) == ExitCode.OK
    assert run(["nonces", "release", "1", SIGNER, "1", "--hold", "1"]) == ExitCode.OK
    capsys.readouterr()

    assert run(["nonces", "show", "1", SIGNER, "--json"]) == ExitCode.OK
    shown = json.loads(capsys.readouterr().out)
    assert [(one["nonce"], one["status"]) for one in shown["nonces"]] == [(1, "RELEASED"), (0, "CONSUMED")]
    assert (shown["next_nonce"], shown["gaps"], shown["held"]) == (2, 1, False)
    assert run(["nonces", "signers"]) == ExitCode.OK
    assert SIGNER.lower() in capsys.readouterr().out
    assert run(["nonces", "nodes", "--json"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == []


def test_what_may_not_be_is_said_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["nonces", "show", "1", "nobody"]) == ExitCode.NOT_FOUND
    assert run(["nonces", "reserve", "1", SIGNER[:-1] + "e", "pay-7"]) == ExitCode.PROBLEM
    assert "checksum" in capsys.readouterr().err
    assert run(["nonces", "used", "1", SIGNER, "0", "--hold", "1"]) == ExitCode.PROBLEM
    assert "not_found" in capsys.readouterr().err
