"""No hot function scans a table that grows, nor costs more as it grows, whatever the statistics say."""

import re
from typing import LiteralString

import pytest
from psycopg import sql

from tests.integration.kernel.kernel_functions import KERNEL_FUNCTIONS
from tests.integration.plans.conftest import (
    BIG_TABLES,
    STATISTICS,
    AgedDatabase,
    PlanDatabase,
    PlanDatabases,
)
from tests.integration.plans.hot_call import HotCall
from tests.integration.plans.hot_calls import HOT_CALLS, NOT_HOT
from tests.integration.plans.observation import Observation, observer
from tests.integration.plans.workflow_calls import WORKFLOWS


@pytest.mark.parametrize("call", HOT_CALLS, ids=str)
def test_a_hot_function_touches_only_what_it_needs(street: PlanDatabases, call: HotCall) -> None:
    assert user_errors(street, call) == []


PUBLIC_FUNCTIONS = """
    select distinct p.proname from pg_proc p
    where p.pronamespace = 'fencepost'::regnamespace and p.proname not like '\\_%'"""


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_hot_functions_touch_only_what_they_need_among_a_million(long_street: PlanDatabases) -> None:
    assert {call.name: found for call in HOT_CALLS if (found := user_errors(long_street, call))} == {}


@pytest.mark.full
@pytest.mark.timeout(2400)
def test_hot_functions_of_workflows_touch_only_what_they_need_among_ten_million_steps(
    few_workflows: PlanDatabase, million_workflows: PlanDatabase
) -> None:
    """Without statistics, with those of empty tables, and with fresh ones, in this order on one database."""
    street = PlanDatabases(few_workflows, million_workflows)
    found: dict[str, list[str]] = {}
    for statistics in ("missing", "stale", "fresh"):
        for plan_database in (few_workflows, million_workflows):
            STATISTICS[statistics](plan_database.database)
        for call in WORKFLOWS:
            if errors := user_errors(street, call):
                found[f"{call} with {statistics} statistics"] = errors

    assert found == {}


@pytest.mark.parametrize("call", HOT_CALLS, ids=str)
def test_a_plan_from_the_first_day_still_holds_in_a_full_database(
    veteran: AgedDatabase, call: HotCall
) -> None:
    """A pooled connection keeps its plans until the table is analysed, which may be never."""
    newcomer = observe(veteran.plan_database, call)
    old = veteran.observer.measure(call, veteran.plan_database.size, planned=())

    assert [*old.scans, *excess(old, newcomer)] == []


@pytest.mark.parametrize(
    ("query", "scan"),
    [
        ("select j.kind from fencepost.job j where j.kind = 'other'", "SEQSCAN on job, whole"),
        ("select j.kind from fencepost.job j where j.job_id + 0 = 7", "SEQSCAN on job, whole"),
        (
            "select f.state from fencepost.job_finished f order by f.job_id limit 1",
            "INDEXSCAN on job_finished_pkey, without an Index Cond",
        ),
    ],
)
def test_a_scan_inside_a_function_is_seen(
    scratch_plan_database: PlanDatabase, query: LiteralString, scan: str
) -> None:
    planted = sql.SQL("create function fencepost.planted() returns text language sql as {}").format(query)
    with scratch_plan_database.database.connect_admin() as connection:
        connection.execute(planted)

    seen = observe(scratch_plan_database, HotCall("planted", "select fencepost.planted()", lambda _: ()))

    assert scan in seen.scans


def test_every_function_is_guarded_or_has_a_reason_why_not(empty_plan_database: PlanDatabase) -> None:
    with empty_plan_database.database.connect_admin() as connection:
        names = {name for (name,) in connection.execute(PUBLIC_FUNCTIONS)} & KERNEL_FUNCTIONS
    guarded = {name for call in HOT_CALLS for name in re.findall(r"fencepost\.(\w+)\(", call.sql)}
    excused = {name for names in NOT_HOT.values() for name in names.split()}

    assert names - guarded - excused == set()
    assert guarded & excused == set()
    assert (guarded | excused) - names == set()


def user_errors(street: PlanDatabases, call: HotCall) -> list[str]:
    small = observe(street.small, call)
    crowded = observe(street.crowded, call)
    return [*crowded.scans, *excess(crowded, small)]


def observe(plan_database: PlanDatabase, call: HotCall) -> Observation:
    with observer(plan_database.database, BIG_TABLES) as watcher:
        return watcher.observe(call, plan_database.size)


def excess(one: Observation, other: Observation) -> list[str]:
    """A larger index is a level or two deeper at each look-up; a small table may be scanned instead."""
    found: list[str] = []
    if one.entries > 2 * other.entries + 300:
        found.append(f"{one.entries} index entries were read instead of {other.entries}")
    if one.buffers > 2 * other.buffers + 100:
        found.append(f"{one.buffers} buffers were touched instead of {other.buffers}")
    return found
