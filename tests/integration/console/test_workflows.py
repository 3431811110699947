"""The pages of workflows: what they tell, and what an operator decides there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing

import pytest

from fencepost_server.console._role import Role
from tests.integration.console.env import YES, ConsoleEnv
from tests.integration.console.page import Page
from tests.integration.console.populated_system import fail
from tests.integration.kernel import job_calls, workflow_calls
from tests.integration.kernel.caller import Caller


@pytest.fixture
def app(env: ConsoleEnv) -> Iterator[Caller]:
    caller = Caller(env.database.url)
    with closing(caller.connection):
        yield caller


def waiting(app: Caller, event: str) -> int:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "price", result=5)
    workflow_calls.wait_for(app, job_id, event)
    return job_id


def test_a_list_is_searched_by_state_name_wait_tag_and_argument(env: ConsoleEnv, app: Caller) -> None:
    plain = job_calls.submit(app)
    first, second = waiting(app, "approve:1"), workflow_calls.running(app)
    workflow_calls.sleep(app, second, "night", "1 hour")
    running, dead = workflow_calls.running(app), workflow_calls.running(app, tries_max=1)
    fail(app, dead, 1, "price")
    with env.database.connect_admin() as connection:
        for job_id in (plain, first, running):
            label = "select fencepost._job_label(%s, %s::jsonb, array['import'], array['order_id'])"
            connection.execute(label, (job_id, f'{{"order_id": {job_id}}}'))

    env.context.live_snapshot.forget()
    with env.visitor(Role.VIEWER) as client:

        def found(**filters: str) -> list[int]:
            return [row["job_id"] for row in client.get("/api/workflows", params=filters).json()["workflows"]]

        assert found() == [dead, running, second, first]
        assert found(state="dead") == [dead]
        assert found(state="pending") == [second, first]
        assert found(waits="event") == [first]
        assert found(waits="time") == [second]
        assert found(tag="import") == [running, first]
        assert found(tag="import", arg=f"order_id={first}") == [first]
        assert found(tag="import", waits="event") == [first]
        assert found(tag="import", state="running") == [running]
        assert found(tag="import", state="pending") == [first]
        assert found(tag="import", state="dead") == found(tag="import", waits="time") == []
        assert found(state="running", waits="event") == []
        assert found(name="other") == []
        assert found(name="fulfil", limit="2") == [dead, running]
        assert found(id=str(plain)) == [], "a plain job is no workflow"
        [version] = client.get("/api/workflows").json()["versions"]
        assert (version["name"], version["waiting"], version["running"]) == ("fulfil", 2, 1)
        assert client.get(f"/api/workflows/{plain}").status_code == 404


def test_a_page_tells_steps_failures_refusals_and_what_is_waited_for(env: ConsoleEnv, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "price", result=5)
    fail(app, job_id, 1, "reserve")
    job_calls.claim(app, job_id)
    # Attempt 1 comes back from the dead, and attempt 2 asks for a recorded step with other arguments.
    late = (
        "select refusal from fencepost.step_commit_many(%s::bigint[], %s::bigint[], %s,"
        " array['ship'], array['d'])"
    )
    assert app.value(late, [job_id], [1], job_calls.OWNER) == "stale_attempt"
    other = late.replace("'ship'", "'price'").replace("'d'", "'other'")
    assert app.value(other, [job_id], [2], job_calls.OWNER) == "mismatch"
    with env.database.connect_admin() as connection:
        connection.execute(
            "select fencepost.refusal_record('duplicate', 'workflow step', %s, 'w', '{}', '{}')",
            (f"{job_id}/price",),
        )
    workflow_calls.wait_for(app, job_id, "approve", attempt=2, timeout="2 days")

    with env.visitor(Role.VIEWER) as client:
        told = client.get(f"/api/workflows/{job_id}").json()
        page = client.get(f"/console/workflows/{job_id}")
    assert [(step["name"], step["result"]) for step in told["steps"]] == [("price", 5)]
    assert [wait["event"] for wait in told["waits"]] == ["approve"]
    refused = [moment["event"] for moment in told["life"] if moment["refused"]]
    assert sorted(refused) == ["refused:duplicate", "refused:mismatch", "refused:stale_attempt"]
    [traceback] = [moment["traceback"] for moment in told["life"] if moment["traceback"]]
    assert traceback.endswith("ValueError: no")
    assert len(re.findall('class="lane-refused"', page.text)) == 2 * 3, (
        "each in the wide picture and in the narrow"
    )
    for words in (
        "tried to step at",
        "attempt 1 failed",
        "refused: ship",
        "approve",
        "Traceback (most recent call last)",
    ):
        assert words in page.text, words
    assert "Emit approve" not in page.text, "a viewer decides nothing"
    assert Page(page.text).bare_instants == []


def test_an_approval_is_emitted_once_with_the_name_of_its_actor(env: ConsoleEnv, app: Caller) -> None:
    job_id = waiting(app, "approve:7")
    with env.visitor(Role.OPERATOR) as client:
        assert "Emit approve:7" in client.get(f"/console/workflows/{job_id}").text
        at = f"/api/workflows/{job_id}/emit"
        assert client.post(at, json={"event": "approve:8"}).status_code == 404
        assert client.post(at, json={"event": "approve:7", "payload": "{"}).status_code == 400
        form = {"event": "approve:7", "payload": '{"by": 1}'}
        assert client.post(f"/console/workflows/{job_id}/emit", data={**form, **YES}).status_code == 303
        assert client.post(at, json={"event": "approve:7"}).json()["emitted"] is False
        [wait] = client.get(f"/api/workflows/{job_id}").json()["waits"]
        page = client.get(f"/console/workflows/{job_id}").text
    # It waits for a worker now, and there is nothing left to approve.
    assert (wait["event"], wait["emitted_by"]) == ("approve:7", "operator@console")
    assert ("by operator@console" in page, "Emit approve:7" in page) == (True, False)
    with env.visitor(Role.ADMIN) as client:
        actions = {entry["action"] for entry in client.get("/api/audit").json()["entries"]}
    assert "workflow.emit" in actions
    emitted = app.row("select payload, actor from fencepost.workflow_events")
    assert emitted == {"payload": {"by": 1}, "actor": "operator@console"}
    job_calls.claim(app, job_id)
    assert workflow_calls.wait_for(app, job_id, "approve:7", attempt=2)["payload"] == {"by": 1}


def test_a_workflow_is_cancelled_retried_from_a_step_and_replayed(env: ConsoleEnv, app: Caller) -> None:
    job_id = waiting(app, "approve:7")
    plain = job_calls.submit(app)
    with env.visitor(Role.OPERATOR) as client:
        at = f"/api/workflows/{job_id}"
        assert client.post(f"{at}/cancel").status_code == 200
        assert job_calls.state(app, job_id) == "cancelled"
        assert client.post(f"{at}/cancel").json()["code"] == "cancelled"
        assert client.post(f"{at}/retry-from", json={"step": "nothing"}).status_code == 404
        assert client.post(f"{at}/retry-from", json={"step": "price"}).status_code == 200
        assert workflow_calls.names(app, job_id) == []
        claimed = job_calls.claim(app, job_id)
        app.execute(
            "select fencepost.job_bury(%s, %s, %s, 'no')", job_id, claimed["attempt"], job_calls.OWNER
        )
        assert client.post(f"{at}/replay").status_code == 200
        assert job_calls.state(app, job_id) == "pending"
        assert client.post(f"/api/workflows/{plain}/cancel").status_code == 404
        assert job_calls.state(app, plain) == "pending"


def test_many_are_counted_first_and_cancelled_batch_by_batch(env: ConsoleEnv, app: Caller) -> None:
    waits = [waiting(app, f"approve:{number}") for number in range(5)]
    running = workflow_calls.running(app)
    with env.visitor(Role.OPERATOR) as client:
        meant = {"how": "cancel", "waits": "event"}
        preview = client.get("/api/workflows/preview", params=meant).json()
        assert (preview["count"], preview["more"], preview["up_to"]) == (5, False, waits[-1])
        later = waiting(app, "approve:later")
        order = {**meant, "up_to": preview["up_to"], "limit": 3}
        done = client.post("/api/workflows/settle", json=order).json()
        assert (done["settled"], done["next_up_to"]) == (3, waits[2] - 1)
        done = client.post("/api/workflows/settle", json={**order, "up_to": done["next_up_to"]}).json()
        assert (done["settled"], done["next_up_to"]) == (2, None)
        form = {"how": "replay", "up_to": str(later)}
        assert (
            client.post("/console/workflows/settle", data={**form, **YES}).headers["location"]
            == "/console/workflows"
        )
    assert {job_calls.state(app, job_id) for job_id in waits} == {"cancelled"}
    assert (job_calls.state(app, later), job_calls.state(app, running)) == ("pending", "running")


def test_the_steps_of_a_long_workflow_are_paged(env: ConsoleEnv, app: Caller) -> None:
    job_id = workflow_calls.running(app)
    for number in range(5):
        workflow_calls.step(app, job_id, f"step-{number}")
    with env.visitor(Role.VIEWER) as client:
        newest = client.get(f"/api/workflows/{job_id}?limit=3").json()
        assert [step["name"] for step in newest["steps"]] == ["step-2", "step-3", "step-4"]
        older = client.get(f"/api/workflows/{job_id}?limit=3&before={newest['next_before']}").json()
        assert [step["name"] for step in older["steps"]] == ["step-0", "step-1"]
        assert older["next_before"] is None
