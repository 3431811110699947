"""`fencepost tokens`: a program gets a token of one service, and loses it."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.integration.web.whole_app import WholeApp, whole_app


@pytest.fixture
def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WholeApp]:
    monkeypatch.setenv("DATABASE_URL", database.url)
    with whole_app(database, tmp_path) as site:
        yield site


def status(site: WholeApp, path: str, token: str) -> int:
    return httpx.get(site.url + path, headers={"authorization": f"Bearer {token}"}).status_code


def test_a_token_is_made_listed_and_revoked(site: WholeApp, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tokens", "make", "checkout", "--service", "orders", "--json"]) == ExitCode.OK
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("fpp_")
    assert status(site, "/orders", made["token"]) == 200
    assert status(site, "/players/ann", made["token"]) == 401

    assert run(["tokens", "list", "checkout", "--service", "orders", "--json"]) == ExitCode.OK
    told = capsys.readouterr().out
    assert made["token"] not in told
    assert [one["token_id"] for one in json.loads(told)] == [made["token_id"]]

    assert run(["tokens", "revoke", str(made["token_id"]), "--service", "players"]) == ExitCode.NOT_FOUND
    assert status(site, "/orders", made["token"]) == 200
    assert run(["tokens", "revoke", str(made["token_id"]), "--service", "orders"]) == ExitCode.OK
    assert status(site, "/orders", made["token"]) == 401


@pytest.mark.parametrize("service", ["coupons", "judge", "console"])
def test_a_service_without_programs_is_refused(
    site: WholeApp, capsys: pytest.CaptureFixture[str], service: str
) -> None:
    assert run(["tokens", "make", "checkout", "--service", service]) != ExitCode.OK
    assert "fpp_" not in capsys.readouterr().out
