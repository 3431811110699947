"""`doctor --server`: a real PostgreSQL passes every try, and a server that differs is told from it."""

from __future__ import annotations

from typing import LiteralString

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.findings import Finding, FindingState
from fencepost.cli.probes import _behaviour as behaviour
from fencepost.embedded import Database
from tests.integration.cli.conftest import Fencepost

WITHOUT_A_KEY = "create table lease (resource text primary key, token bigint, note text)"


def lacking(findings: list[Finding]) -> list[str]:
    return [each.name for each in findings if each.state is FindingState.LACKING]


def test_postgresql_does_what_is_relied_on_and_nothing_is_left(
    fencepost: Fencepost, database: Database
) -> None:
    answer = fencepost("doctor", "--server", database.admin_url, "--json")

    assert answer.code == ExitCode.OK
    assert {each["state"] for each in answer.json["findings"]} == {"ok"}
    assert len(answer.json["findings"]) == 1 + len(behaviour.TRIES)
    with database.connect_admin() as admin:
        left = admin.execute("select nspname from pg_namespace where nspname like 'fencepost\\_probe%'")
        assert left.fetchall() == []


@pytest.mark.parametrize(
    ("fence", "found"),
    [
        ("select 1 from lease where resource = 'a' for share", "renewal beside a fence"),
        ("select 1 from lease where resource = 'a'", "takeover behind a fence"),
    ],
)
def test_a_server_with_other_row_locks_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch, fence: LiteralString, found: str
) -> None:
    """As one behaves that takes a stronger lock for KEY SHARE, or none."""
    monkeypatch.setattr(behaviour, "FENCE", fence)
    assert lacking(behaviour.probe_behaviour(database.admin_url)) == [found]


def test_a_server_that_locks_only_the_row_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A column of no unique key may change beside a fence: so does a server that ignores the key."""
    monkeypatch.setattr(behaviour, "TABLES", (WITHOUT_A_KEY, *behaviour.TABLES[1:]))
    assert lacking(behaviour.probe_behaviour(database.admin_url)) == ["takeover behind a fence"]


def test_a_try_that_raises_says_what_the_server_answered(database: Database) -> None:
    def unknown(pair: behaviour.Pair) -> bool:
        return bool(pair.value(pair.first, "select no_such_function()"))

    tries = (behaviour.Try("blockers", "the eviction", unknown), *behaviour.TRIES[:1])
    version, first, second = behaviour.probe_behaviour(database.admin_url, tries=tries)
    assert version.state is second.state is FindingState.OK
    assert "function no_such_function() does not exist" in first.detail
    assert (first.state, first.required) == (FindingState.LACKING, True)


def test_a_login_that_may_create_nothing_is_told_what_it_needs(database: Database) -> None:
    (finding,) = behaviour.probe_behaviour(database.url)
    assert "permission denied" in finding.detail
    assert "may create a schema" in finding.remedy


def test_a_server_that_is_not_there_is_told(fencepost: Fencepost) -> None:
    answer = fencepost("doctor", "--server", "postgresql://app:s3cret@127.0.0.1:1/shop")
    assert answer.code == ExitCode.PROBLEM
    assert "s3cret" not in answer.out
