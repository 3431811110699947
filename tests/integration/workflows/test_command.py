"""`fencepost workflows`, as a person and as a script call it."""

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from tests.integration.cli.conftest import Answer
from tests.integration.kernel import job_calls, workflow_calls
from tests.integration.kernel.caller import Caller

Command = Callable[..., Answer]


@pytest.fixture
def command(subcommand: Callable[[str], Command]) -> Command:
    """`command("list", "--json")` is `fencepost workflows list --json`, as the services' role."""
    return subcommand("workflows")


@pytest.fixture
def app(database: Database) -> Any:
    caller = Caller(database.url)
    yield caller
    caller.close()


def ids(answer: Answer) -> list[int]:
    return [row["job_id"] for row in answer.json["workflows"]]


def test_list_and_show_tell_steps_and_waits(command: Command, app: Caller) -> None:
    job_calls.submit(app)
    waiting = workflow_calls.running(app)
    workflow_calls.step(app, waiting, "price", result=5, undo=workflow_calls.UNDO)
    workflow_calls.wait_for(app, waiting, "approve:7", timeout="1 hour")
    other = workflow_calls.start(app, version=2)

    listed = command("list", "--json").json["workflows"]
    assert [(row["job_id"], row["version"], row["steps"], row["waits"]) for row in listed] == [
        (other, 2, 0, []),
        (waiting, 1, 1, ["approve:7"]),
    ]
    assert ids(command("list", "--before", str(other), "--json")) == [waiting]
    assert ids(command("list", "--name", "nothing", "--json")) == []
    assert ids(command("list", "--waits", "event", "--json")) == [waiting]
    assert ids(command("list", "--waits", "time", "--json")) == []
    assert f"fencepost workflows list --limit 1 --before {other}" in command("list", "--limit", "1").out
    shown = command("show", str(waiting), "--json").json
    assert [(step["name"], step["result"], step["undo"]) for step in shown["steps"]] == [
        ("price", 5, "unreserve")
    ]
    screen = command("show", str(waiting)).out
    assert "fulfil@1  pending" in screen
    assert "waits for approve:7 until" in screen
    assert "approve:7" in command("list").out
    assert command("show", "999").code == ExitCode.NOT_FOUND


def test_a_search_by_tag_and_argument_finds_workflows_among_jobs(
    command: Command, app: Caller, database: Database
) -> None:
    wanted, other, job = workflow_calls.start(app), workflow_calls.start(app), job_calls.submit(app)
    with database.connect_admin() as connection:
        for job_id, order in ((wanted, 7), (other, 8), (job, 7)):
            label = "select fencepost._job_label(%s, %s::jsonb, array['import'], array['order_id'])"
            connection.execute(label, (job_id, f'{{"order_id": {order}}}'))
    assert ids(command("list", "--tag", "import", "--json")) == [other, wanted]
    assert ids(command("list", "--tag", "import", "--arg", "order_id=7", "--json")) == [wanted]
    assert command("list", "--arg", "color=7", "--json").code != ExitCode.OK


def test_cancel_by_filter_counts_first_and_answers_for_each(command: Command, app: Caller) -> None:
    waiting = workflow_calls.running(app)
    workflow_calls.wait_for(app, waiting, "approve:7", timeout="1 hour")
    running, other = workflow_calls.running(app), workflow_calls.start(app, version=2)

    asked = command("cancel", "--waits", "event")
    assert (asked.code, "Cancel 1 workflow?" in asked.err) == (ExitCode.USAGE, True)
    assert command("cancel").code == ExitCode.USAGE
    assert command("cancel", "7", "--name", "fulfil").code == ExitCode.USAGE
    assert command("cancel", "--waits", "event", "--yes").out == "1 workflows: 1 cancelled\n"
    assert job_calls.state(app, waiting) == "cancelled"
    done = command("cancel", "--name", "fulfil", "--yes", "--json").json
    assert done == {"selected": 2, "cancelled": 1, "requested": 1}
    assert (job_calls.state(app, other), job_calls.state(app, running)) == ("cancelled", "running")
    assert command("cancel", "--name", "nothing", "--yes").out == "0 workflows: none to cancel\n"


def test_show_has_the_traceback_of_the_newest_failure(command: Command, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    app.execute(
        "select * from fencepost.job_leave_many(array[%s]::bigint[], array[1]::bigint[], %s, array['retry'],"
        " array['ValueError: no'], null, array[%s])",
        job_id,
        job_calls.OWNER,
        "Traceback: in price\nValueError: no",
    )
    assert "Traceback: in price\nValueError: no" in command("show", str(job_id)).out
    [failure] = command("show", str(job_id), "--json").json["failures"]
    assert (failure["attempt"], failure["error"]) == (1, "ValueError: no")


def test_emit_calls_the_workflow_once(command: Command, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.wait_for(app, job_id, "approve:7")

    assert command("emit", "approve:7", "--payload", '{"by": 1}', "--actor", "anna").code == ExitCode.OK
    shown = command("show", str(job_id)).out
    assert ("approve:7 was emitted at" in shown, "by anna" in shown) == (True, True)
    again = command("emit", "approve:7")

    assert (again.code, again.out) == (
        ExitCode.PROBLEM,
        "event approve:7: was emitted before; the first emission counts\n",
    )
    job_calls.claim(app, job_id)
    assert workflow_calls.wait_for(app, job_id, "approve:7", attempt=2)["payload"] == {"by": 1}
    assert app.value("select actor from fencepost.workflow_events") == "anna"
    assert command("emit", "x", "--payload", "{").code != ExitCode.OK


def test_cancel_and_retry_from(command: Command, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "price")
    workflow_calls.sleep(app, job_id, "nap", "1 hour")

    assert command("cancel", str(job_id)).out == f"workflow {job_id}: cancelled\n"
    assert command("retry-from", str(job_id), "nothing").code == ExitCode.NOT_FOUND
    assert command("retry-from", str(job_id), "nap").out == f"workflow {job_id}: runs again from nap\n"

    assert workflow_calls.names(app, job_id) == ["price"]
    assert command("retry-from", str(job_id), "price").code == ExitCode.PROBLEM


def test_versions(command: Command, app: Caller) -> None:
    assert "No live workflows." in command("versions").out
    workflow_calls.start(app, version=2)
    assert [(row["name"], row["version"], row["waiting"]) for row in command("versions", "--json").json] == [
        ("fulfil", 2, 1)
    ]
    assert "fulfil" in command("versions").out
