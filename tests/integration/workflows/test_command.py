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


def test_list_and_show_tell_steps_and_waits(command: Command, app: Caller) -> None:
    job_calls.submit(app)
    waiting = workflow_calls.running(app)
    workflow_calls.step(app, waiting, "price", result=5, undo=workflow_calls.UNDO)
    workflow_calls.wait_for(app, waiting, "approve:7", timeout="1 hour")
    other = workflow_calls.start(app, version=2)

    listed = command("list", "--json").json
    assert [(row["job_id"], row["version"], row["steps"], row["waits"]) for row in listed] == [
        (other, 2, 0, []),
        (waiting, 1, 1, ["approve:7"]),
    ]
    assert [row["job_id"] for row in command("list", "--before", str(other), "--json").json] == [waiting]
    assert command("list", "--name", "nothing", "--json").json == []
    shown = command("show", str(waiting), "--json").json
    assert [(step["name"], step["result"], step["undo"]) for step in shown["steps"]] == [
        ("price", 5, "unreserve")
    ]
    screen = command("show", str(waiting)).out
    assert "fulfil@1  pending" in screen
    assert "waits for approve:7 until" in screen
    assert "approve:7" in command("list").out
    assert command("show", "999").code == ExitCode.NOT_FOUND


def test_emit_calls_the_workflow_once(command: Command, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.wait_for(app, job_id, "approve:7")

    assert command("emit", "approve:7", "--payload", '{"by": 1}', "--actor", "anna").code == ExitCode.OK
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
