"""While an upgrade rolls, the version before goes on working on the new schema."""

import re
from dataclasses import replace

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.errors import SchemaTooNew
from fencepost.kernel.migrate import check_version, component, components
from tests.integration.kernel.released import Said, answered, recorded

APART = {"console": 8, "judge": 10}
"""Versions on which the code before them does not work, and refuses to start: they are two steps ahead of it.
The users of both moved to the accounts."""
SUCCESSORS = {
    known.name: known
    for known in components()
    if known.version > 1 and APART.get(known.name) != known.version
}
RENAMED = re.compile(
    r"(?:\b|_)lanes?\b"
    r"|\b_?marker_|\bfencepost\.markers?\b|\bmutation_(?:marker|dice|gate)|\bjob_driven\b"
    r"|\bjudge_trial_|\bselect place, token\b|\borders_follow_|\borders_ledger\b"
    r"|\bselect author, slug, submitted_at, verdict\b|\bjudge_contest_contestants\b"
)
"""Names that changed before anything was released, so no second name is kept: processes of the versions
before them have to stop. Version 14 of the kernel says priority for lane, and 17 idempotency key for marker;
mutations 3, judge 11, orders 7 and console 9 have plain names for their own tables and functions; judge 13
lists the entries and the contestants of a contest by team."""


def not_understood(connection: psycopg.Connection, said: Said) -> list[str]:
    """Statements that fail, or whose answers lack a column or have another type by now."""
    answers = {statement: answered(connection, statement) for statement in said}
    return [
        statement
        for statement, columns in said.items()
        if (answer := answers[statement]) is None
        or (columns and not set(columns.split(", ")) <= set(answer.split(", ")))
    ]


@pytest.mark.parametrize("name", SUCCESSORS)
def test_everything_that_the_version_before_says_is_understood(database: Database, name: str) -> None:
    before = str(SUCCESSORS[name].version - 1)
    assert before in recorded()[name], (
        f"{name} has a new schema step: record what version {before} says with"
        " `python -m tests.integration.kernel.released` and its last commit."
    )
    said = recorded()[name][before]
    renamed = [one for one, columns in said.items() if RENAMED.search(f"{one} {columns}")]
    with database.connect() as service:
        assert not_understood(service, said) == renamed


@pytest.mark.parametrize(("name", "version"), APART.items())
def test_where_the_version_before_cannot_work_it_refuses_to_start(name: str, version: int) -> None:
    code = component(name)
    with pytest.raises(SchemaTooNew, match="Upgrade this process"):
        check_version(version, replace(code, steps=code.steps[: version - 2]))


def test_a_function_that_is_gone_or_answers_something_else_is_missed(database: Database) -> None:
    said = next(iter(recorded()["kernel"].values()))
    with database.connect_admin() as admin:
        missed_before = not_understood(admin, said)
        admin.execute("drop function fencepost.lease_fence")
        admin.execute("alter function fencepost.job_next_due rename to elsewhere")
        admin.execute(
            "create function fencepost.job_next_due(text) returns text language sql return 'at noon'"
        )
        missed = not_understood(admin, said)

    changed = [one for one in said if "lease_fence(" in one or "job_next_due(" in one]
    assert len(changed) == 3
    assert sorted(missed) == sorted([*missed_before, *changed])
