"""While an upgrade rolls, the released version before goes on working on the new schema."""

from pathlib import Path

import psycopg

from fencepost.embedded import Database
from fencepost.kernel.migrate import components
from tests.integration.kernel.released import Said, answered, recorded, statements

RELEASED: dict[str, int] = {}
"""The schema versions of the last release, by component. Nothing was released yet."""
PACKAGES = Path(__file__).parents[3] / "packages"


def not_understood(connection: psycopg.Connection, said: Said) -> list[str]:
    """Statements that fail, or whose answers lack a column or have another type by now."""
    answers = {statement: answered(connection, statement) for statement in said}
    return [
        statement
        for statement, columns in said.items()
        if (answer := answers[statement]) is None
        or (columns and not set(columns.split(", ")) <= set(answer.split(", ")))
    ]


def test_everything_that_the_version_before_says_is_understood(database: Database) -> None:
    changed = {one.name for one in components() if one.version > RELEASED.get(one.name, one.version)}
    with database.connect() as service:
        for name in changed:
            said = recorded().get(name, {}).get(str(RELEASED[name]))
            assert said, f"record what version {RELEASED[name]} of {name} says: released.py tells how"
            assert not_understood(service, said) == []


def test_a_function_that_is_gone_or_answers_something_else_is_missed(database: Database) -> None:
    with database.connect_admin() as admin:
        answers = {one: answered(admin, one) for one in sorted(statements(PACKAGES)["kernel"])}
        said = {one: answer for one, answer in answers.items() if answer is not None}
        assert not_understood(admin, said) == []
        admin.execute("drop function fencepost.lease_fence")
        admin.execute("alter function fencepost.job_next_due rename to elsewhere")
        admin.execute(
            "create function fencepost.job_next_due(text) returns text language sql return 'at noon'"
        )
        missed = not_understood(admin, said)

    changed = [one for one in said if "lease_fence(" in one or "job_next_due(" in one]
    assert len(changed) == 3
    assert sorted(missed) == sorted(changed)
