"""The functions, the table in the head of their file and the docs tell one state machine of workflows."""

import re
from pathlib import Path
from typing import Any, LiteralString

import fencepost.kernel
from fencepost.testing import Clock
from tests.integration.kernel import job_calls, workflow_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.job_calls import OWNER
from tests.integration.kernel.job_states import ROW, Move
from tests.integration.kernel.test_job_states import refusable

FILE = Path(fencepost.kernel.__file__).parent / "functions" / "workflow.sql"
DOCS = Path(__file__).parents[3] / "docs" / "reference" / "kernel.md"
# Job 1 is the workflow; its attempt is 1 in every situation.
EVENTS: dict[str, LiteralString] = {
    "step": "select fencepost.step_commit(1, 1, %(owner)s, 'new', 'd')",
    "spawn": "select fencepost.workflow_spawn(1, 1, %(owner)s, 'pack', 'd', '{}')",
    "sleep": "select fencepost.workflow_sleep(1, 1, %(owner)s, 'nap', 'd', '1 hour')",
    "await": "select fencepost.event_await(1, 1, %(owner)s, 'w', 'e')",
    "join": "select fencepost.workflow_join(1, 1, %(owner)s, 1)",
    "restart": "select fencepost.workflow_restart(1, 1, %(owner)s, '{}')",
    "emit": "select fencepost.event_emit('e')",
    "retry_from": "select fencepost.workflow_retry_from(1, 'old', 'carol')",
}


def running(app: Caller) -> None:
    workflow_calls.running(app)
    workflow_calls.step(app, 1, "old")


def with_event(app: Caller) -> None:
    running(app)
    app.execute("select fencepost.event_emit('e')")


def with_children(app: Caller) -> None:
    running(app)
    child = job_calls.submit(app)
    app.execute("select fencepost.workflow_spawn(1, 1, %s, 'children', 'd', %s)", OWNER, [child])


def with_children_that_ended(app: Caller) -> None:
    with_children(app)
    app.execute("select fencepost.job_cancel(2, 'carol')")


def waiting(app: Caller) -> None:
    running(app)
    workflow_calls.wait_for(app, 1, "e")


def asleep(app: Caller) -> None:
    running(app)
    workflow_calls.sleep(app, 1, "other", "1 hour")


def asked_to_stop(app: Caller) -> None:
    running(app)
    app.execute("select fencepost.job_cancel(1, 'carol')")


def dead(app: Caller) -> None:
    running(app)
    app.execute("select fencepost.job_bury(1, 1, %s, 'no')", OWNER)


def cancelled(app: Caller) -> None:
    asleep(app)
    app.execute("select fencepost.job_cancel(1, 'carol')")


def finished(app: Caller) -> None:
    running(app)
    app.execute("select fencepost.job_finish(1, 1, %s)", OWNER)


SITUATIONS = (
    running,
    with_event,
    with_children,
    with_children_that_ended,
    waiting,
    asleep,
    asked_to_stop,
    dead,
    cancelled,
    finished,
)


def declared() -> list[Move]:
    rows = [ROW.match(line) for line in FILE.read_text().splitlines()]
    moves = [Move(row[1], row[2], row[3]) for row in rows if row]
    assert moves.pop(0) == ("from", "event", "to")
    return moves


def everything(admin: Caller) -> Any:
    """The workflow's state, and all that an event may have changed."""
    return admin.rows(
        """select j.state, j.run_at, j.payload, (select count(*) from fencepost.workflow_step) as steps
           from fencepost.jobs j where j.job_id = 1"""
    )


def test_what_the_functions_do_is_what_the_table_says(admin: Caller, clock: Clock) -> None:
    seen = {Move("(none)", "start", "pending")}
    for situation in SITUATIONS:
        for event, call in EVENTS.items():
            admin.execute("begin")
            admin.execute("alter sequence fencepost.job_job_id_seq restart")
            admin.execute("alter sequence fencepost.job_batch_batch_id_seq restart")
            situation(admin)
            before = everything(admin)
            with refusable(), admin.connection.transaction():
                admin.connection.execute(call, {"owner": OWNER})
            # A join that finds its children ended changes nothing, and says so.
            went_on = event == "join" and situation is with_children_that_ended
            after = everything(admin)
            admin.execute("rollback")
            if after != before or went_on:
                seen.add(Move(before[0]["state"], event, after[0]["state"]))

    assert sorted(seen) == sorted(set(declared()))


def test_the_docs_have_the_same_table() -> None:
    section = DOCS.read_text().partition("## Workflows\n")[2].partition("| function |")[0]
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (\S+) \| .* \|$", section, re.MULTILINE)

    assert [Move(*row) for row in rows if row[0] not in ("from", "---")] == declared()
