"""The judge's schema, upgraded from each version that there was, is the one that a fresh database has."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from fencepost.embedded import Database, PostgresServer
from fencepost.kernel.migrate import component, components, kernel, migrate
from tests.integration.kernel.bare_databases import bare_databases, schema_of

JUDGE = component("judge")
OTHERS = tuple(one for one in components() if one.name not in (JUDGE.name, kernel().name))


@pytest.fixture
def empty(postgres: PostgresServer, template_database: Database) -> Iterator[Callable[[], Database]]:
    """Databases without a schema, on a server that has the roles."""
    with bare_databases(postgres) as create:
        yield create


def judge_something(database: Database) -> None:
    """As the first version had it: a problem, a submission and what it got."""
    with psycopg.connect(database.admin_url) as connection:
        connection.execute(
            "insert into fencepost.judge_problem (slug, version, title, spec, imported_at)"
            " values ('echo', 1, 'Echo', '{}', now()), ('echo', 2, 'Echo', '{\"a\": 1}', now())"
        )
        connection.execute(
            "insert into fencepost.judge_submission"
            " (job_id, slug, version, language, author, sources, submitted_at)"
            " values (7, 'echo', 2, 'c', 'ann', '{}', now())"
        )
        connection.execute(
            "insert into fencepost.judge_result"
            " (job_id, attempt, verdict, time_ms, mem_kb, message, cases, judged_at)"
            " values (7, 1, 'AC', 5, 900, '', '[]', now())"
        )


@pytest.mark.parametrize(
    "reached",
    [
        version if version == 1 else pytest.param(version, marks=pytest.mark.full)
        for version in range(1, JUDGE.version)
    ],
)
def test_an_upgraded_schema_is_a_fresh_one_and_keeps_what_was_judged(
    database: Database, empty: Callable[[], Database], reached: int
) -> None:
    upgraded = empty()
    # The ninth version moves users to the accounts.
    required = (component("accounts"),) if reached > 8 else ()
    reached_judge = replace(JUDGE, steps=JUDGE.steps[:reached], functions=())
    migrate(upgraded.admin_url, kernel(), *required, reached_judge)
    if reached == 1:
        judge_something(upgraded)

    migrated = migrate(upgraded.admin_url)

    others = [one for one in OTHERS if one not in required]
    expected = len(JUDGE.steps) - reached + sum(len(one.steps) for one in others)
    assert len(migrated.applied) == expected
    assert schema_of(upgraded) == schema_of(database)
    if reached == 1:
        with psycopg.connect(upgraded.admin_url) as connection:
            kept = connection.execute(
                "select job_id, verdict, version, generation, points from fencepost.judge_result"
            ).fetchall()
        # It was judged by the version that it was sent to, before there were generations.
        assert kept == [(7, "AC", 2, 0, {})]
