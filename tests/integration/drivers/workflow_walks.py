"""A walk through every call of workflows and their events."""

from fencepost.kernel import _event as event
from fencepost.kernel import _workflow as workflow
from fencepost.kernel import _workflow_operator as workflow_operator
from fencepost.kernel import job
from fencepost.kernel.call import Json
from fencepost.kernel.job import Running
from tests.integration.drivers.walking import AWKWARD, DOCUMENT, LONG_AGO, Ask, is_moment

DIGEST = "digest"


def _started(ask: Ask, key: str | None = None) -> Running:
    """A workflow that is running."""
    begun = ask(
        workflow.start(
            "orders", "fulfil", 2, DOCUMENT, run_at=LONG_AGO, unique_key=key, headers={"note": AWKWARD}
        )
    )
    assert begun.created
    return ask(job.claim(begun.job_id, "me", lease_seconds=60))


def walk_workflow(ask: Ask) -> None:
    one = _started(ask, AWKWARD)
    of_one = (one.job_id, one.attempt)
    assert one.payload == DOCUMENT
    assert ask(workflow.load(one.job_id)).steps == []
    ask(workflow.commit(workflow.Record(*of_one, "price", DIGEST, DOCUMENT), "me"))
    undo: dict[str, Json] = {"queue": "orders", "kind": "undo", "payload": {}}
    answers = ask(
        workflow.commit_many(
            [
                workflow.Record(*of_one, AWKWARD, DIGEST, [None]),
                workflow.Record(*of_one, "pay", DIGEST, undo=undo),
            ],
            "me",
        )
    )
    assert [(answer.name, answer.refusal) for answer in answers] == [(AWKWARD, None), ("pay", None)]
    ask(
        workflow.commit_all(
            [
                workflow.Record(*of_one, "weigh", DIGEST, {AWKWARD: [1.5]}),
                workflow.Record(*of_one, "send", DIGEST, undo=undo),
            ],
            "me",
        )
    )
    loaded = ask(workflow.load(one.job_id))
    assert [(step.name, step.result) for step in loaded.steps] == [
        ("price", DOCUMENT),
        (AWKWARD, [None]),
        ("pay", None),
        ("weigh", {AWKWARD: [1.5]}),
        ("send", None),
    ]
    assert is_moment(loaded.now)
    assert ask(workflow.result(one.job_id, "price")) is None, "it lies with the others"
    _walk_children(ask, one)
    assert is_moment(ask(workflow.sleep(*of_one, "me", "night", DIGEST, 3600, park=False)))
    ask(workflow.park(*of_one, "me"))
    again = _started(ask)
    ask(workflow.restart(again.job_id, again.attempt, "me", {"round": 2}))
    [version] = ask(workflow.versions())
    assert (version.queue, version.name, version.version, version.waiting) == ("orders", "fulfil", 2, 2)
    _walk_retry(ask)


def _walk_children(ask: Ask, parent: Running) -> None:
    child = ask(job.submit("parts", "pack", DOCUMENT))
    batch = ask(workflow.spawn(parent.job_id, parent.attempt, "me", "pack", DIGEST, [child.job_id]))
    assert ask(workflow.join(parent.job_id, parent.attempt, "me", batch, park=False)) == "registered"
    assert ask(workflow.join_any(parent.job_id, parent.attempt, "me", [batch], park=False)) == []
    ask(job.fence_all([(parent.job_id, parent.attempt)], "me"))
    assert ask(workflow.graph(parent.job_id)) is None
    assert ask(workflow.repeats(parent.job_id, parent.attempt)) is False
    [outcome] = ask(workflow.children([child.job_id]))
    assert (outcome.job_id, outcome.state, outcome.result) == (child.job_id, None, None)


def _walk_retry(ask: Ask) -> None:
    failing = _started(ask)
    ask(workflow.commit(workflow.Record(failing.job_id, failing.attempt, "price", DIGEST), "me"))
    ask(job.bury(failing.job_id, failing.attempt, "me", "broken"))
    ask(workflow.retry_from(failing.job_id, "price", "a person"))


def walk_event(ask: Ask) -> None:
    waiting = _started(ask)
    of_waiting = (waiting.job_id, waiting.attempt, "me", "paid", AWKWARD)
    assert ask(workflow.await_event(*of_waiting, 60, park=False)).outcome == "registered"
    assert ask(event.emit(AWKWARD, DOCUMENT, actor="a person"))
    assert not ask(event.emit(AWKWARD))
    assert ask(workflow.await_event(*of_waiting, None)) == ("emitted", DOCUMENT)
    assert ask(event.prune(1, 100)) >= 0


def walk_workflow_operator(ask: Ask) -> None:
    one = _started(ask)
    wanted = workflow_operator.WorkflowFilter(name="fulfil", tags=(), arguments={})
    found = ask(workflow_operator.page(wanted))
    assert (found.ids[0], found.next_before) == (one.job_id, None)
    [settled] = ask(workflow_operator.settle([one.job_id], "cancel", "anna"))
    assert (settled.job_id, settled.outcome) == (one.job_id, "requested")
