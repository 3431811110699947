"""The rights of each role, read from the catalog: there is no way around the functions."""

from typing import Any

import pytest
from psycopg import sql

from tests.integration.kernel.caller import Caller
from tests.security.conftest import STRANGER

DENIED = "42501"
GROUPS = ("fencepost_app", "fencepost_read")
LOGINS = ("fencepost_service", "fencepost_viewer")

RELATIONS = """
    select c.oid, c.relname::text as name, c.relkind::text as kind from pg_class c
    where c.relnamespace = 'fencepost'::regnamespace and c.relkind in ('r', 'p', 'v', 'S') order by c.relname
"""
FUNCTIONS = """
    select p.oid, p.proname::text as name, p.oid::regprocedure::text as signature, p.prosecdef as definer,
           p.provolatile::text as volatility, p.proisstrict as strict, p.proconfig as settings,
           p.proowner::regrole::text as owner,
           array(select coalesce(nullif(a.grantee, 0)::regrole::text, 'PUBLIC')
                 from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a) as grantees
    from pg_proc p where p.pronamespace = 'fencepost'::regnamespace order by p.proname
"""


def relations(admin: Caller, *kinds: str) -> list[dict[str, Any]]:
    found = [row for row in admin.rows(RELATIONS) if row["kind"] in kinds]
    assert found, "there is nothing to look at"
    return found


def functions(admin: Caller) -> list[dict[str, Any]]:
    found = admin.rows(FUNCTIONS)
    assert len(found) > 100
    return found


def is_internal(function: dict[str, Any]) -> bool:
    return bool(function["name"].startswith("_"))


def reads(function: dict[str, Any]) -> bool:
    """What the read-only role may call: nothing that could write, and the clock."""
    return bool(function["volatility"] == "s" or function["name"] == "clock")


@pytest.mark.parametrize("role", [*GROUPS, *LOGINS, STRANGER])
def test_no_role_has_any_right_on_a_state_table_or_a_sequence(
    admin: Caller, stranger: Caller, role: str
) -> None:
    for table in relations(admin, "r", "p"):
        rights = "select, insert, update, delete, truncate, references, trigger"
        assert not admin.value("select has_table_privilege(%s, %s::oid, %s)", role, table["oid"], rights), (
            table
        )
        columns = "select, insert, update, references"
        assert not admin.value(
            "select has_any_column_privilege(%s, %s::oid, %s)", role, table["oid"], columns
        )
    for sequence in relations(admin, "S"):
        rights = "usage, select, update"
        assert not admin.value(
            "select has_sequence_privilege(%s, %s::oid, %s)", role, sequence["oid"], rights
        )


@pytest.mark.parametrize("role", [*GROUPS, *LOGINS])
def test_views_are_only_read(admin: Caller, role: str) -> None:
    for view in relations(admin, "v"):
        assert admin.value("select has_table_privilege(%s, %s::oid, 'select')", role, view["oid"]), view
        assert not admin.value(
            "select has_table_privilege(%s, %s::oid, 'insert, update, delete, truncate')", role, view["oid"]
        )


def test_a_service_that_tries_to_write_a_table_is_turned_away(service: Caller, admin: Caller) -> None:
    for table in relations(admin, "r", "p"):
        name = sql.Identifier("fencepost", table["name"])
        for template in ("insert into {} default values", "delete from {}", "truncate {}"):
            query: Any = sql.SQL(template).format(name)
            service.failed(DENIED, query)
    # A column that exists in each, because the rights are looked at after the names.
    service.failed(DENIED, "update fencepost.job_running set attempt = 7")
    service.failed(DENIED, "update fencepost.lease set token = 7")
    service.failed(DENIED, "select * from fencepost.job_running for update")


def test_a_service_that_tries_to_move_a_sequence_is_turned_away(service: Caller, admin: Caller) -> None:
    for sequence in relations(admin, "S"):
        name = f"fencepost.{sequence['name']}"
        service.failed(DENIED, "select nextval(%s::regclass)", name)
        service.failed(DENIED, "select setval(%s::regclass, 1)", name)


def test_nothing_in_the_schema_is_for_every_caller(admin: Caller, stranger: Caller) -> None:
    assert [one["signature"] for one in functions(admin) if "PUBLIC" in one["grantees"]] == []
    for right in ("usage", "create"):
        assert not admin.value("select has_schema_privilege(%s, 'fencepost', %s)", STRANGER, right)
    stranger.failed(DENIED, "select fencepost.clock()")
    stranger.failed(DENIED, "select * from fencepost.jobs")


@pytest.mark.parametrize("role", [*GROUPS, *LOGINS])
def test_no_role_adds_to_the_schema(admin: Caller, role: str) -> None:
    assert admin.value("select has_schema_privilege(%s, 'fencepost', 'usage')", role)
    assert not admin.value("select has_schema_privilege(%s, 'fencepost', 'create')", role)


def test_the_owner_of_it_all_cannot_log_in_and_can_do_nothing_else(admin: Caller) -> None:
    owner = admin.row(
        """select rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls
           from pg_roles where rolname = 'fencepost_owner'"""
    )

    assert not any(owner.values())
    assert {one["owner"] for one in functions(admin)} == {"fencepost_owner"}
    owners = """select distinct relowner::regrole::text from pg_class
                where relnamespace = 'fencepost'::regnamespace
                union select nspowner::regrole::text from pg_namespace where nspname = 'fencepost'"""
    assert admin.column(owners) == ["fencepost_owner"]


@pytest.mark.parametrize("role", [*GROUPS, *LOGINS])
def test_no_login_becomes_the_owner(admin: Caller, role: str) -> None:
    assert not admin.value("select pg_has_role(%s, 'fencepost_owner', 'member')", role)
    assert not admin.value("select pg_has_role(%s, 'pg_signal_backend', 'member')", role)


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_is_no_login(admin: Caller, group: str) -> None:
    assert not admin.value("select rolcanlogin or rolsuper from pg_roles where rolname = %s", group)


def test_every_definer_function_pins_its_search_path(admin: Caller) -> None:
    definers = [one for one in functions(admin) if one["definer"]]

    assert len(definers) > 50
    for function in definers:
        paths = [setting for setting in function["settings"] if setting.startswith("search_path=")]
        assert paths == ["search_path=pg_catalog, fencepost, pg_temp"], function["signature"]


def test_what_the_application_may_call_runs_as_the_owner(admin: Caller) -> None:
    for function in functions(admin):
        if not is_internal(function):
            assert "fencepost_app" in function["grantees"], function["signature"]
            # These two read no table: the caller's own rights suffice.
            reads_nothing = function["name"] in ("clock", "refusal_kind")
            assert function["definer"] == (not reads_nothing), function["signature"]


def test_what_is_internal_is_granted_to_no_caller(admin: Caller) -> None:
    for function in functions(admin):
        if is_internal(function):
            assert function["grantees"] == ["fencepost_owner"], function["signature"]
            assert not function["definer"], function["signature"]


def test_the_read_only_role_may_call_what_only_reads(admin: Caller) -> None:
    for function in functions(admin):
        allowed = "fencepost_read" in function["grantees"]
        assert allowed == (reads(function) and not is_internal(function)), function["signature"]


def callable_with_nulls(function: dict[str, Any]) -> bool:
    """A strict function of nulls is null before the right to call it is checked."""
    return not function["strict"]


def call_with_nulls(admin: Caller, function: dict[str, Any]) -> Any:
    """The function with null for each argument, of the right type, so that overloads do not matter."""
    types = admin.column(
        "select format_type(t, null) from unnest((select proargtypes from pg_proc where oid = %s)::oid[]) t",
        function["oid"],
    )
    arguments = sql.SQL(", ").join(sql.SQL("null::" + one) for one in types)
    return sql.SQL("select {}({})").format(sql.Identifier("fencepost", function["name"]), arguments)


def test_a_viewer_that_calls_what_writes_is_turned_away(viewer: Caller, admin: Caller) -> None:
    refused = [one for one in functions(admin) if is_internal(one) or not reads(one)]

    for function in filter(callable_with_nulls, refused):
        viewer.failed(DENIED, call_with_nulls(admin, function))


def test_a_service_that_calls_what_is_internal_is_turned_away(service: Caller, admin: Caller) -> None:
    for function in filter(callable_with_nulls, functions(admin)):
        if is_internal(function):
            service.failed(DENIED, call_with_nulls(admin, function))


def test_what_only_reads_works_where_nothing_can_be_written(viewer: Caller, admin: Caller) -> None:
    viewer.execute("set default_transaction_read_only = on")
    for view in relations(admin, "v"):
        viewer.connection.execute(
            sql.SQL("select * from {}").format(sql.Identifier("fencepost", view["name"]))
        )
    viewer.execute("select * from fencepost.explain('job:1')")
    viewer.execute("select * from fencepost.refusal_counts()")
    viewer.execute("select fencepost.clock()")
