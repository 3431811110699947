"""A wrong argument is named, and nothing is written."""

import re
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.kernel_functions import KERNEL_FUNCTIONS
from tests.integration.kernel.test_isolation_levels import SOURCES
from tests.integration.kernel.wrong_arguments import FAULTS

TABLES = """
    select relname::text from pg_class
    where relnamespace = 'fencepost'::regnamespace and relkind in ('r', 'p') order by relname
"""


@pytest.fixture
def furnished(app: Caller) -> Caller:
    """A held lease, a running job and a message on its way: what a wrong call might have changed."""
    app.execute("select fencepost.lease_acquire('r', 'o', '1 hour')")
    app.execute("select fencepost.lease_acquire('free', 'o', '1 hour')")
    app.execute("select fencepost.lease_release('free', 'o', 1)")
    job_id = job_calls.submit(app, lease="1 hour")
    job_calls.claim(app, job_id, "w")
    app.execute("select fencepost.outbox_put('c', 'k', '{}')")
    app.execute("select fencepost.outbox_take('c', 'o', '1 hour', 1)")
    app.execute("select fencepost.checkpoint_begin('r', 1)")
    return app


def contents(admin: Caller) -> dict[str, Any]:
    """Every row of every table."""
    return {
        table: admin.connection.execute(
            sql.SQL("select t::text from {} t order by 1").format(sql.Identifier("fencepost", table))
        ).fetchall()
        for table in admin.column(TABLES)
    }


@pytest.mark.parametrize("noun", FAULTS)
def test_a_wrong_argument_is_named_and_nothing_is_written(
    furnished: Caller, admin: Caller, noun: str
) -> None:
    before = contents(admin)

    for field, call in FAULTS[noun]:
        furnished.invalid(field, "select fencepost." + call)

    assert contents(admin) == before


# The tests that provoke what is not provoked here.
ELSEWHERE = {
    ("checkpoint_store", "state"): "test_checkpoint.py, with --full: it takes 256 MB",
    ("schedule_fire", "ticks"): "test_schedule.py: it takes a schedule",
    ("outbox_resolve", "id"): "orders: it takes one",
}
CHECKED = re.compile(
    r"""fencepost\._check_\w+\('(\w+)'|"field": "(\w+)"|fencepost\._check_(limit)\(""",
)
CHECKER = re.compile(r"fencepost\.(_\w*check\w*|_prune_before)\(")


def test_every_check_of_every_function_is_provoked_here(admin: Caller) -> None:
    sources = {row["name"]: row["source"] for row in admin.rows(SOURCES)}
    provoked = {(call.partition("(")[0], field) for faults in FAULTS.values() for field, call in faults}

    def checks(name: str) -> set[str]:
        return {field for found in CHECKED.findall(sources[name]) for field in found if field}

    missing = {
        (name, field)
        for name in KERNEL_FUNCTIONS
        if not name.startswith("_")
        for field in checks(name)
        if (name, field) not in provoked | ELSEWHERE.keys()
    } | {
        (name, checker)
        for name in KERNEL_FUNCTIONS
        if not name.startswith("_")
        for checker in CHECKER.findall(sources[name])
        if checks(checker) and not any((name, field) in provoked for field in checks(checker))
    }
    assert missing == set()


@pytest.mark.parametrize(
    "call",
    [
        "lease_acquire(repeat('x', 512), repeat('x', 256), '1 day')",
        "claim(repeat('x', 256), repeat('x', 512), repeat('x', 256), to_jsonb(repeat('x', 8000)))",
        "outbox_put(repeat('x', 128), repeat('x', 512), to_jsonb(repeat('x', 1048000)))",
        "job_submit(repeat('x', 128), repeat('x', 256), to_jsonb(repeat('x', 1048000)), p_tries_max => 1000)",
        "job_submit('q', 'k', 'null')",
    ],
)
def test_an_argument_at_its_limit_is_taken(app: Caller, call: Any) -> None:
    app.execute("select fencepost." + call)


def test_a_nul_byte_does_not_reach_the_database(furnished: Caller, admin: Caller) -> None:
    before = contents(admin)

    for text in ("a\0b", "\0"):
        with pytest.raises(psycopg.DataError):
            furnished.execute("select fencepost.claim('s', %s)", text)
    with pytest.raises(psycopg.DataError):
        furnished.execute("select fencepost.job_submit('q', 'k', %s)", '{"a": "\\u0000"}')

    assert contents(admin) == before


def test_a_number_that_is_none_is_no_json(furnished: Caller, admin: Caller) -> None:
    before = contents(admin)

    for text in ("NaN", '{"a": NaN}', '{"a": Infinity}', "{"):
        with pytest.raises(psycopg.errors.InvalidTextRepresentation):
            furnished.execute("select fencepost.outbox_put('c', 'k', %s)", text)

    assert contents(admin) == before


def test_an_endless_lease_is_none(furnished: Caller) -> None:
    """PostgreSQL 17 has infinite intervals; older servers do not read the word at all."""
    for ttl in ("infinity", "-infinity"):
        with pytest.raises(psycopg.DatabaseError) as caught:
            furnished.execute("select fencepost.lease_acquire('x', 'o', %s::interval)", ttl)
        assert caught.value.sqlstate in ("ZF100", "22007")
