"""The page of one flow: its graph with what flows over each edge, its tasks and its dead letters."""

from fencepost.console.role import Role
from fencepost.flows import Flow, IterableSource, ListSink, dead_letters, ledger
from fencepost.flows.program import Program
from fencepost.flows.record import Failure
from fencepost.kernel import lease
from fencepost.kernel.drivers import run
from tests.integration.console.stage import Stage

FLOW = Flow("shop-1").source(IterableSource([])).map(int).sink(ListSink())
ACTIVITY = {
    "edges": {"0-1": 1500.0, "1-2": 12.5},
    "lag": {"values:0": 7},
    "busy": 0.25,
    "blocked": None,
    "reads": ["values"],
}


def test_rates_and_dead_letters_are_on_the_page_and_in_the_api(stage: Stage) -> None:
    with stage.database.connect_admin() as connection:
        run(connection, ledger.register("shop-1", Program(FLOW).picture(), "a/boot-1"))
        held = run(connection, lease.acquire("flow:shop-1/part/values:0", "a/boot-1", 60))
        run(connection, ledger.report([(held.resource, held.token, ACTIVITY)]))
        letters = [Failure(b"<b>x", "ValueError: no number", "map-1")]
        run(connection, dead_letters.bury("shop-1", "unreadable", held.resource, held.token, letters))

    with stage.visitor(Role.VIEWER) as client:
        page = client.get("/console/flows/shop-1")
        facts = client.get("/api/flows/shop-1").json()

    assert page.status_code == 200
    assert "1,500/s · 7 wait · 25% busy" in page.text
    assert "&lt;b&gt;x" in page.text
    assert [(edge["edge"], edge["words"]) for edge in facts["edges"]] == [
        ("0-1", "1,500/s · 7 wait · 25% busy"),
        ("1-2", "12/s"),
    ]
    assert [letter["error"] for letter in facts["dead"]] == ["ValueError: no number"]
