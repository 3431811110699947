from __future__ import annotations

from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.integration.cli.conftest import Answer, Fencepost


def findings(answer: Answer, area: str) -> dict[str, Any]:
    return {finding["name"]: finding for finding in answer.json["findings"] if finding["area"] == area}


@pytest.fixture
def as_service(
    database: Database, redis_url: str, fencepost: Fencepost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("REDIS_URL", redis_url)


@pytest.mark.usefixtures("as_service")
def test_doctor_examines_the_servers_that_the_settings_name(fencepost: Fencepost) -> None:
    answer = fencepost("doctor", "--json")
    postgres = findings(answer, "PostgreSQL")
    assert postgres["schema"]["state"] == "ok"
    assert postgres["service role"]["detail"].startswith("fencepost_service cannot write a state table")
    assert postgres["eviction"]["state"] == "ok"
    assert findings(answer, "Redis")["connection"]["state"] == "ok"
    assert findings(answer, "this machine")["PostgreSQL server"]["required"] is False


@pytest.mark.usefixtures("as_service")
def test_doctor_does_not_accept_a_server_that_may_lose_commits(fencepost: Fencepost) -> None:
    """The tests' own server runs without fsync, to be fast: doctor must notice."""
    answer = fencepost("doctor")
    assert answer.code == ExitCode.PROBLEM
    assert "Set fsync = on and full_page_writes = on." in answer.out
    assert answer.out.endswith("Required and lacking: durability.\n")


@pytest.mark.usefixtures("as_service")
def test_doctor_warns_of_services_that_run_as_the_owner(
    fencepost: Fencepost, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.admin_url)
    role = findings(fencepost("doctor", "--json"), "PostgreSQL")["service role"]
    assert role["state"] == "degraded"
    assert "around every fence" in role["detail"]


def test_doctor_names_servers_that_cannot_be_reached(
    fencepost: Fencepost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://app:s3cret@127.0.0.1:1/shop")
    monkeypatch.setenv("REDIS_URL", "redis://:s3cret@127.0.0.1:1/0")
    answer = fencepost("doctor")
    assert answer.code == ExitCode.PROBLEM
    assert answer.out.count("cannot be reached") == 2
    assert "s3cret" not in answer.out
