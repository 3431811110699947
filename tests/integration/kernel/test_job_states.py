"""The functions, the table in the head of their file, the constraints and the docs tell one state machine."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from fencepost.testing import Clock
from tests.integration.kernel import job_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.conftest import NOON
from tests.integration.kernel.job_states import EVENTS, SITUATIONS, Move, declared_moves

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "kernel.md"
WAITING = {"pending", "dispatched"}


@contextmanager
def refusable() -> Generator[None]:
    """A refusal changes nothing; every other error is one."""
    try:
        yield
    except psycopg.DatabaseError as error:
        if not (error.sqlstate or "").startswith("ZF0"):
            raise


def moves_from(caller: Caller, clock: Clock, situation: str, event: str) -> set[Move]:
    """What the event does to a job in that situation: one move, or none when it was refused."""
    build: Callable[[Caller, Clock], int] = SITUATIONS[situation]
    caller.execute("begin")
    try:
        job_id = build(caller, clock)
        before = job_calls.job(caller, job_id)
        assert before["state"] == situation.partition(",")[0]
        with refusable(), caller.connection.transaction():
            caller.connection.execute(EVENTS[event], {"id": job_id})
        # The view shows a job once for each table that holds it: job() expects exactly one.
        after = job_calls.job(caller, job_id)
    finally:
        caller.execute("rollback")
        clock.freeze(NOON)
    return {Move(before["state"], event, after["state"])} if before != after else set()


def test_what_the_functions_do_is_what_the_table_says(app: Caller, clock: Clock) -> None:
    seen = {Move("(none)", "submit", "pending")}
    for situation in SITUATIONS:
        for event in EVENTS:
            seen |= moves_from(app, clock, situation, event)

    assert sorted(seen) == sorted(declared_moves())


def test_the_constraint_knows_the_final_states_of_the_table(admin: Caller) -> None:
    constraint: str = admin.value(
        "select pg_get_constraintdef(oid) from pg_constraint where conname = 'job_finished_state_is_final'"
    )

    states = {state for move in declared_moves() for state in (move.origin, move.target)}
    final = states - WAITING - {"running", "(none)"}
    assert set(re.findall(r"'(\w+)'", constraint)) == final


def test_the_docs_show_the_same_table() -> None:
    section = DOCS.read_text().partition("## Job states")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `?([^|`]+)`? \| `([^|`]+)` \| `([^|`]+)` \|", section, re.MULTILINE)

    assert sorted(Move(*row) for row in rows) == sorted(declared_moves())
