"""The page of one flow: its graph with what flows over each edge, its tasks and its dead letters."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

from fencepost.flows import Flow, IterableSource, ListSink
from fencepost.flows import _dead_letters as dead_letters
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._plan import FlowPlan
from fencepost.flows._record import Failure
from fencepost.kernel import lease
from fencepost.kernel.drivers import run
from fencepost.kernel.lease import Lease
from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv

FLOW = Flow("shop-1").source(IterableSource([])).map(int).sink(ListSink())
ACTIVITY = {
    "edges": {"0-1": 1500.0, "1-2": 12.5},
    "lag": {"values:0": 7},
    "busy": 0.25,
    "blocked": None,
    "reads": ["values"],
}


def test_rates_and_dead_letters_are_on_the_page_and_in_the_api(env: ConsoleEnv) -> None:
    with env.database.connect_admin() as connection:
        run(connection, flow_store.register("shop-1", FlowPlan(FLOW).picture(), "a/boot-1"))
        held = run(connection, lease.acquire("flow:shop-1/part/values:0", "a/boot-1", 60))
        run(connection, flow_store.report([(held.resource, held.token, ACTIVITY)]))
        letters = [Failure(b"<b>x", "ValueError: no number", "map-1")]
        run(connection, dead_letters.bury("shop-1", "unreadable", held.resource, held.token, letters))

    with env.visitor(Role.VIEWER) as client:
        page = client.get("/console/flows/shop-1")
        facts = client.get("/api/flows/shop-1").json()

    assert page.status_code == 200
    lines = re.findall(r"<tspan[^>]*>([^<]*)</tspan>", page.text)
    # Wide, and for a phone.
    assert lines == ["1,500/s", "7 wait", "25% busy", "12/s"] * 2
    assert "&lt;b&gt;x" in page.text
    assert [(edge["edge"], edge["words"]) for edge in facts["edges"]] == [
        ("0-1", "1,500/s · 7 wait · 25% busy"),
        ("1-2", "12/s"),
    ]
    assert [letter["error"] for letter in facts["dead"]] == ["ValueError: no number"]


def test_a_task_that_stands_still_shows_the_step_the_record_and_the_remedy(env: ConsoleEnv) -> None:
    stopped = {
        "error": "ValueError: not this one",
        "failures": 3,
        "step": "map-1",
        "stream": "in:<orders>",
        "offset": "17-0",
        "remedy": "Mend the function of map-1.",
    }
    task = held(env)
    env.call(flow_store.report([(task.resource, task.token, stopped)]))

    with env.visitor(Role.VIEWER) as client:
        page = client.get("/console/flows/shop-2").text
        [facts] = client.get("/api/flows/shop-2").json()["tasks"]

    assert "step <code>map-1</code>" in page
    assert "record <code>in:&lt;orders&gt;</code> at <code>17-0</code>" in page
    assert "Mend the function of map-1." in page
    assert (facts["step"], facts["stream"], facts["at_offset"]) == ("map-1", "in:<orders>", "17-0")
    assert facts["remedy"] == stopped["remedy"]


def held(env: ConsoleEnv) -> Lease:
    """A worker holds the one task of a flow."""
    env.call(flow_store.register("shop-2", FlowPlan(FLOW).picture(), "a/boot-1"))
    return env.call(lease.acquire("flow:shop-2/part/values:0", "a/boot-1", 600))


def commit(env: ConsoleEnv, task: Lease, frontier: int, *, before: int | None) -> None:
    expected = None if before is None else {"values:0": before}
    env.call(
        flow_store.commit(
            task.resource,
            task.token,
            expected=expected,
            frontier={"values:0": frontier},
            state=None,
            whole=True,
            edition=1,
        )
    )


def test_a_savepoint_asks_the_workers_for_a_commit_first(env: ConsoleEnv) -> None:
    task = held(env)
    commit(env, task, 1, before=None)
    with env.program(Role.OPERATOR) as client, ThreadPoolExecutor(1) as thread:
        saving = thread.submit(client.post, "/api/flows/shop-2/save", json={"savepoint": "now"})
        deadline = time.monotonic() + 60
        while env.call(flow_store.orders("shop-2")).commit_asked_at is None:
            assert not saving.done(), "no worker was asked"
            assert time.monotonic() < deadline
        commit(env, task, 2, before=1)

        assert saving.result(60).json() == {"message": "now keeps 1 tasks."}
    with env.database.connect_admin() as connection:
        kept = connection.execute("select frontier from fencepost.flow_savepoint").fetchall()
    assert kept == [({"values:0": 2},)]


def test_a_savepoint_without_an_answer_is_not_made(env: ConsoleEnv) -> None:
    commit(env, held(env), 1, before=None)
    with env.program(Role.OPERATOR) as client:
        late = client.post("/api/flows/shop-2/save", json={"savepoint": "now", "within_seconds": 0.1})
        assert (late.status_code, late.json()["code"]) == (409, "in_flight")
        assert "from flow:shop-2/part/values:0; nothing was kept" in late.json()["message"]
        assert client.get("/api/flows/shop-2").json()["savepoints"] == []
        unasked = client.post("/api/flows/shop-2/save", json={"savepoint": "now", "within_seconds": 0})
        assert unasked.json() == {"message": "now keeps 1 tasks."}
