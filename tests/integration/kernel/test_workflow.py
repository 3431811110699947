"""Workflows: what is recorded, what parks them, what calls them, and what undoes them."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fencepost.testing import Clock
from tests.integration.kernel import job_calls, workflow_calls
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.conftest import NOON
from tests.integration.kernel.job_calls import OWNER, RIVAL
from tests.integration.kernel.workflow_calls import UNDO

HOUR = timedelta(hours=1)
End = Callable[[Caller, int, Clock], None]


def test_a_workflow_waits_in_a_queue_of_its_version(app: Caller) -> None:
    job_id = workflow_calls.start(app, version=3)

    row = app.row("select queue, kind, headers from fencepost.jobs where job_id = %s", job_id)
    assert row == {
        "queue": "orders/fulfil@3",
        "kind": "fulfil@3",
        "headers": {"workflow": {"name": "fulfil", "version": 3, "round": 0}},
    }
    assert app.rows("select * from fencepost.job_claim_by_priority('orders/fulfil@2', 'old', 10)") == []


def test_a_claim_brings_all_steps_in_order(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    for name in ("c", "a", "b"):
        workflow_calls.step(app, job_id, name, result={"of": name})
    app.execute("select fencepost.job_release(%s, 1, %s)", job_id, OWNER)

    claimed = app.row("select * from fencepost.workflow_claim(%s, %s)", job_id, RIVAL)

    assert claimed["attempt"] == 2
    assert claimed["steps"] == [[name, "step", "d", {"of": name}, False] for name in ("c", "a", "b")]


def test_a_large_result_lies_in_a_row_of_its_own_and_a_larger_one_is_refused(app: Caller) -> None:
    job_id = workflow_calls.running(app)

    workflow_calls.step(app, job_id, "small", result="x" * 65_000)
    workflow_calls.step(app, job_id, "large", result="x" * 70_000)

    assert [(name, large) for name, _, _, _, large in workflow_calls.steps(app, job_id)] == [
        ("small", False),
        ("large", True),
    ]
    assert workflow_calls.steps(app, job_id)[1][3] is None
    assert app.value("select fencepost.step_result(%s, 'large')", job_id) == "x" * 70_000
    many = "select * from fencepost.step_commit_many(%s, '{1}', %s, '{many}', '{d}', array[%s::jsonb])"
    app.execute(many, [job_id], OWNER, '"' + "y" * 70_000 + '"')
    assert app.value("select fencepost.step_result(%s, 'many')", job_id) == "y" * 70_000
    app.invalid(
        "result",
        "select fencepost.step_commit(%s, 1, %s, 'huge', 'd', to_jsonb(repeat('x', 8388609)))",
        job_id,
        OWNER,
    )


@pytest.mark.parametrize(
    ("attempt", "owner", "late", "cancel", "reason"),
    [
        (1, RIVAL, False, False, "not_owner"),
        (2, OWNER, False, False, "not_owner"),
        (1, OWNER, True, False, "lease_expired"),
        (1, OWNER, False, True, "cancelled"),
    ],
)
def test_only_the_holder_of_the_attempt_goes_on(
    app: Caller, clock: Clock, attempt: int, owner: str, late: bool, cancel: bool, reason: str
) -> None:
    job_id = workflow_calls.running(app)
    child = job_calls.submit(app)
    if cancel:
        app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    if late:
        clock.advance(60)

    for op, call in (
        ("step", "step_commit(%s, %s, %s, 'a', 'd')"),
        ("sleep", "workflow_sleep(%s, %s, %s, 'a', 'd', '1 hour')"),
        ("await", "event_await(%s, %s, %s, 'a', 'e')"),
        ("spawn", f"workflow_spawn(%s, %s, %s, 'a', 'd', '{{{child}}}')"),
        ("join", "workflow_join(%s, %s, %s, 1)"),
        ("park", "workflow_park(%s, %s, %s)"),
        ("restart", "workflow_restart(%s, %s, %s, '{}')"),
    ):
        query: Any = "select fencepost." + call
        refused = app.refused(reason, query, job_id, attempt, owner)
        assert (refused.noun, refused.subject, refused.attempted["op"]) == ("job", str(job_id), op)
    answer = app.row(
        "select * from fencepost.step_commit_many(%s, %s, %s, '{a}', '{d}')", [job_id], [attempt], owner
    )
    assert answer["refusal"] == reason
    assert workflow_calls.steps(app, job_id) == []


def test_a_step_of_an_open_fence_is_recorded_after_the_lease_and_a_cancel(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    with app.transaction():
        app.execute("select fencepost.job_fence(%s, 1, %s)", job_id, OWNER)
        clock.advance(61)
        workflow_calls.step(app, job_id, "a")

    assert workflow_calls.names(app, job_id) == ["a"]


def test_a_step_is_recorded_once_and_with_other_arguments_refused(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "price", digest="one")

    for digest, reason in (("one", "duplicate"), ("two", "mismatch")):
        refused = app.refused(
            reason, "select fencepost.step_commit(%s, 1, %s, 'price', %s)", job_id, OWNER, digest
        )
        assert (refused.noun, refused.subject) == ("workflow step", f"{job_id}/price")
        assert refused.seen["digest"] == "one"
    many = "select name, refusal from fencepost.step_commit_many(%s, '{1, 1}', %s, '{price, new}', %s)"
    assert app.rows(many, [job_id, job_id], OWNER, ["two", "x"]) == [
        {"name": "price", "refusal": "mismatch"},
        {"name": "new", "refusal": None},
    ]
    # The caller lost the answer and repeats: that is no second step.
    assert app.rows(many, [job_id, job_id], OWNER, ["one", "x"]) == [
        {"name": "price", "refusal": None},
        {"name": "new", "refusal": None},
    ]
    assert app.rows(
        "select reason, noun, subject from fencepost.refusals where attempted ->> 'op' = 'step'"
    ) == [{"reason": "mismatch", "noun": "job", "subject": str(job_id)}]


def test_steps_of_many_workflows_are_one_statement_and_answer_each(app: Caller) -> None:
    first, second = workflow_calls.running(app), workflow_calls.running(app)
    lost = workflow_calls.running(app, owner=RIVAL)

    answers = app.rows(
        """select job_id, name, refusal from fencepost.step_commit_many(
             %s, '{1, 1, 1, 1}', %s, '{a, b, c, d}', '{d, d, d, d}', array['1', '2', '3', null]::jsonb[])""",
        [second, first, second, lost],
        OWNER,
    )

    assert [(row["job_id"], row["name"], row["refusal"]) for row in answers] == [
        (second, "a", None),
        (first, "b", None),
        (second, "c", None),
        (lost, "d", "not_owner"),
    ]
    assert [step[3] for step in workflow_calls.steps(app, second)] == [1, 3]


def test_steps_of_many_workflows_are_all_recorded_or_none(app: Caller) -> None:
    first, second = workflow_calls.running(app), workflow_calls.running(app)
    lost = workflow_calls.running(app, owner=RIVAL)
    every = "select fencepost.step_commit_all(%s, %s, %s, %s, %s)"

    def refused(reason: str, ids: list[int], names: list[str], digest: str = "d") -> tuple[str, str]:
        error = app.refused(reason, every, ids, [1] * len(ids), OWNER, names, [digest] * len(ids))
        return error.noun, error.subject

    assert refused("not_owner", [second, lost, first], ["a", "a", "a"]) == ("job", str(lost))
    assert workflow_calls.names(app, first) == workflow_calls.names(app, second) == []

    app.execute(every, [second, first, second], [1, 1, 1], OWNER, ["a", "a", "b"], ["d", "d", "d"])
    assert (workflow_calls.names(app, first), workflow_calls.names(app, second)) == (["a"], ["a", "b"])

    # Its writes would happen twice, so it is refused as a second step even from the same attempt.
    assert refused("duplicate", [first, second], ["new", "a"]) == ("workflow step", f"{second}/a")
    assert refused("mismatch", [second, first], ["new", "a"], "other") == ("workflow step", f"{first}/a")
    assert refused("duplicate", [first, first], ["new", "new"]) == ("workflow step", f"{first}/new")
    assert workflow_calls.names(app, first) == ["a"]


def test_of_two_attempts_at_one_workflow_only_the_running_one_records(app: Caller, clock: Clock) -> None:
    """A worker that lost a workflow and claimed it again commits the steps of both attempts together."""
    job_id = workflow_calls.running(app)
    clock.advance(61)
    assert job_calls.claim(app, job_id)["attempt"] == 2

    answers = app.rows(
        "select name, refusal from fencepost.step_commit_many(%s, '{1, 2}', %s, '{late, a}', '{d, d}')",
        [job_id, job_id],
        OWNER,
    )

    assert [tuple(row.values()) for row in answers] == [("late", "stale_attempt"), ("a", None)]
    assert workflow_calls.names(app, job_id) == ["a"]


def test_a_sleeping_workflow_holds_no_slot_and_no_try(app: Caller, clock: Clock) -> None:
    job_id: int = app.value(
        """select job_id from fencepost.workflow_start('orders', 'fulfil', 1, '{}', p_unique_key => 'u',
             p_concurrency_key => 'k', p_concurrency_limit => 1)"""
    )
    job_calls.claim(app, job_id)

    assert workflow_calls.sleep(app, job_id, "nap", "1 hour") == NOON + HOUR

    seen = job_calls.job(app, job_id)
    assert (seen["state"], seen["run_at"], seen["tries"], seen["attempt"]) == ("pending", NOON + HOUR, 0, 1)
    other = job_calls.submit_keyed(app, "k", 1)
    job_calls.claim(app, other)
    assert job_calls.submit_unique(app, "u") == {"job_id": job_id, "created": False}
    app.refused("not_running", "select * from fencepost.job_claim(%s, %s)", job_id, OWNER)


def test_a_sleep_ends_at_the_time_of_its_first_call(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.sleep(app, job_id, "nap", "1 hour")
    clock.advance(1800)
    app.execute("select fencepost.job_hurry(%s, 'carol')", job_id)
    job_calls.claim(app, job_id)

    assert workflow_calls.sleep(app, job_id, "nap", "1 hour", attempt=2) == NOON + HOUR

    assert job_calls.job(app, job_id)["run_at"] == NOON + HOUR
    clock.advance(1801)
    assert job_calls.claim(app, job_id)["attempt"] == 3
    refused = app.refused(
        "mismatch", "select fencepost.workflow_sleep(%s, 3, %s, 'nap', 'other', '2 hours')", job_id, OWNER
    )
    assert refused.subject == f"{job_id}/nap"


def test_an_event_that_was_emitted_first_is_found(app: Caller, clock: Clock) -> None:
    assert app.value("select fencepost.event_emit('paid:7', '{\"by\": \"card\"}', 'carol')") is True
    assert app.value("select fencepost.event_emit('paid:7', '{\"by\": \"cash\"}')") is False
    job_id = workflow_calls.running(app)

    answer = workflow_calls.wait_for(app, job_id, "paid:7")

    assert answer == {"outcome": "emitted", "payload": {"by": "card"}}
    assert job_calls.job(app, job_id)["state"] == "running"
    assert [step[:2] for step in workflow_calls.steps(app, job_id)] == [["paid:7", "event"]]
    assert app.rows("select * from fencepost.workflow_waits") == []


def test_an_emission_calls_those_that_wait_for_it(app: Caller, clock: Clock) -> None:
    first, second, other = (workflow_calls.running(app) for _ in range(3))
    for job_id, event in ((first, "paid:7"), (second, "paid:7"), (other, "paid:8")):
        assert workflow_calls.wait_for(app, job_id, event)["outcome"] == "parked"
    assert job_calls.job(app, first)["run_at"].year == 9999

    app.execute("select fencepost.event_emit('paid:7')")

    due = [job_id for job_id in (first, second, other) if job_calls.job(app, job_id)["run_at"] == NOON]
    assert due == [first, second]
    job_calls.claim(app, first)
    assert workflow_calls.wait_for(app, first, "paid:7", attempt=2)["outcome"] == "emitted"


def test_a_deadline_counts_from_the_first_wait(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.wait_for(app, job_id, "paid:7", timeout="1 hour")
    assert job_calls.job(app, job_id)["run_at"] == NOON + HOUR
    clock.advance(1800)
    app.execute("select fencepost.job_hurry(%s, 'carol')", job_id)
    job_calls.claim(app, job_id)
    assert workflow_calls.wait_for(app, job_id, "paid:7", attempt=2, timeout="1 hour")["outcome"] == "parked"
    assert job_calls.job(app, job_id)["run_at"] == NOON + HOUR
    clock.advance(1800)
    job_calls.claim(app, job_id)

    answer = workflow_calls.wait_for(app, job_id, "paid:7", attempt=3, timeout="1 hour")

    assert answer == {"outcome": "timed_out", "payload": None}
    app.execute("select fencepost.event_emit('paid:7')")
    assert workflow_calls.steps(app, job_id)[0][3] == {"outcome": "timed_out", "payload": None}


def test_one_name_waits_for_one_event(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    app.execute("select fencepost.event_await(%s, 1, %s, 'w', 'one', null, false)", job_id, OWNER)

    app.refused("mismatch", "select fencepost.event_await(%s, 1, %s, 'w', 'two')", job_id, OWNER)


def test_a_workflow_that_waits_for_several_is_due_at_the_earliest(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    app.execute("select fencepost.workflow_sleep(%s, 1, %s, 'long', 'd', '2 hours', false)", job_id, OWNER)
    app.execute("select fencepost.event_await(%s, 1, %s, 'w', 'e', '1 hour', false)", job_id, OWNER)

    app.execute("select fencepost.workflow_park(%s, 1, %s)", job_id, OWNER)

    assert job_calls.job(app, job_id)["run_at"] == NOON + HOUR
    app.execute("select fencepost.event_emit('e')")
    assert job_calls.job(app, job_id)["run_at"] == NOON


def test_old_events_go_unless_a_workflow_waits_for_them(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.event_emit('old')")
    clock.advance(3600)
    app.execute("select fencepost.event_emit('new')")

    assert app.value("select fencepost.event_prune('30 minutes', 10)") == 1
    assert app.column("select event from fencepost.workflow_events") == ["new"]


def spawned(caller: Caller, job_id: int, count: int = 2, *, attempt: int = 1) -> tuple[list[int], int]:
    children = [job_calls.submit(caller) for _ in range(count)]
    batch: int = caller.value(
        "select fencepost.workflow_spawn(%s, %s, %s, 'pack', 'd', %s)", job_id, attempt, OWNER, children
    )
    return children, batch


def test_a_parent_waits_until_its_last_child_has_ended(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    children, batch = spawned(app, job_id)
    join = "select fencepost.workflow_join(%s, %s, %s, %s)"
    assert app.value(join, job_id, 1, OWNER, batch) == "parked"
    for child in children:
        job_calls.claim(app, child)
    app.execute("select fencepost.job_finish(%s, 1, %s, 'ok', '5')", children[0], OWNER)
    assert job_calls.job(app, job_id)["run_at"].year == 9999

    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", children[1], OWNER)

    assert job_calls.job(app, job_id)["run_at"] == NOON
    job_calls.claim(app, job_id)
    assert app.value(join, job_id, 2, OWNER, batch) == "ended"
    outcomes = app.rows("select state, result, error from fencepost.workflow_children(%s)", children)
    assert outcomes == [
        {"state": "finished", "result": 5, "error": None},
        {"state": "dead", "result": None, "error": "no"},
    ]


def test_a_parent_joins_one_batch_after_another(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    join = "select fencepost.workflow_join(%s, %s, %s, %s)"
    for attempt, name in ((1, "one"), (2, "two")):
        child = job_calls.submit(app)
        batch = app.value(
            "select fencepost.workflow_spawn(%s, %s, %s, %s, 'd', %s)", job_id, attempt, OWNER, name, [child]
        )
        assert app.value(join, job_id, attempt, OWNER, batch) == "parked"
        job_calls.claim(app, child)
        app.execute("select fencepost.job_finish(%s, 1, %s)", child, OWNER)
        assert job_calls.claim(app, job_id)["attempt"] == attempt + 1
        assert app.value(join, job_id, attempt + 1, OWNER, batch) == "ended"


JOIN_ANY = "select batch_id, finished, dead from fencepost.workflow_join_any(%s, %s, %s, %s)"


def two_batches(caller: Caller, job_id: int) -> tuple[list[int], list[int]]:
    children = [job_calls.submit(caller), job_calls.submit(caller)]
    spawn = "select fencepost.workflow_spawn(%s, 1, %s, %s, 'd', %s)"
    batches = [caller.value(spawn, job_id, OWNER, f"s{child}", [child]) for child in children]
    return children, batches


@pytest.mark.parametrize("first", [0, 1])
def test_the_first_of_several_batches_wakes_the_parent(app: Caller, first: int) -> None:
    job_id = workflow_calls.running(app)
    children, batches = two_batches(app, job_id)
    assert app.rows(JOIN_ANY, job_id, 1, OWNER, batches) == []
    assert job_calls.job(app, job_id)["run_at"].year == 9999

    job_calls.claim(app, children[first])
    app.execute("select fencepost.job_finish(%s, 1, %s)", children[first], OWNER)

    assert job_calls.claim(app, job_id)["attempt"] == 2
    ended = {"batch_id": batches[first], "finished": 1, "dead": 0}
    assert app.rows(JOIN_ANY, job_id, 2, OWNER, batches) == [ended]
    # The other one wakes it too.
    other = 1 - first
    assert app.rows(JOIN_ANY, job_id, 2, OWNER, [batches[other]]) == []
    job_calls.claim(app, children[other])
    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", children[other], OWNER)
    assert job_calls.claim(app, job_id)["attempt"] == 3
    assert app.rows(JOIN_ANY, job_id, 3, OWNER, [batches[other]]) == [
        {"batch_id": batches[other], "finished": 0, "dead": 1}
    ]


def test_one_statement_that_ends_two_batches_wakes_the_parent_once(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    children, batches = two_batches(app, job_id)
    app.rows(JOIN_ANY, job_id, 1, OWNER, batches)
    for child in children:
        job_calls.claim(app, child)

    app.rows("select * from fencepost.job_finish_many(%s, '{1,1}', %s)", children, OWNER)

    job_calls.claim(app, job_id)
    assert len(app.rows(JOIN_ANY, job_id, 2, OWNER, batches)) == 2


def test_the_children_of_another_workflow_are_not_joined(app: Caller) -> None:
    job_id, other = workflow_calls.running(app), workflow_calls.running(app)
    _, batches = two_batches(app, job_id)

    app.refused("mismatch", JOIN_ANY, other, 1, OWNER, batches)


def test_a_restart_drops_the_steps_and_keeps_the_id(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "a", result="x" * 70_000, undo=UNDO)
    app.execute("select fencepost.event_await(%s, 1, %s, 'w', 'e', null, false)", job_id, OWNER)

    app.execute("select fencepost.workflow_restart(%s, 1, %s, '{\"order_id\": 8}')", job_id, OWNER)

    assert workflow_calls.steps(app, job_id) == []
    assert app.rows("select * from fencepost.workflow_waits") == []
    seen = job_calls.job(app, job_id)
    assert (seen["payload"], seen["tries"], seen["run_at"]) == ({"order_id": 8}, 0, NOON)
    assert seen["headers"]["workflow"]["round"] == 1


def bury(app: Caller, job_id: int, clock: Clock) -> None:
    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, OWNER)


def use_up(app: Caller, job_id: int, clock: Clock) -> None:
    app.execute("select fencepost.job_retry(%s, 1, %s, 'no', '0')", job_id, OWNER)


def crash(app: Caller, job_id: int, clock: Clock) -> None:
    clock.advance(61)
    app.execute("select fencepost.job_reclaim(10)")


def crash_and_claim(app: Caller, job_id: int, clock: Clock) -> None:
    clock.advance(61)
    app.rows("select * from fencepost.job_claim_many(%s, %s)", [job_id], RIVAL)


def cancel_running(app: Caller, job_id: int, clock: Clock) -> None:
    app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)
    app.execute("select fencepost.job_release(%s, 1, %s)", job_id, OWNER)


def cancel_sleeping(app: Caller, job_id: int, clock: Clock) -> None:
    workflow_calls.sleep(app, job_id, "nap", "1 hour")
    app.execute("select fencepost.job_cancel(%s, 'carol')", job_id)


@pytest.mark.parametrize(
    "end",
    [bury, use_up, crash, crash_and_claim, cancel_running, cancel_sleeping],
    ids=lambda end: end.__name__,
)
def test_whatever_ends_a_workflow_badly_undoes_its_steps_newest_first(
    app: Caller, clock: Clock, end: End
) -> None:
    job_id = workflow_calls.running(app, tries_max=1)
    for name in ("first", "second", "third"):
        workflow_calls.step(app, job_id, name, undo=UNDO)
    workflow_calls.step(app, job_id, "pure")

    end(app, job_id, clock)

    assert workflow_calls.undos(app, job_id) == [
        ("first", "pending", False),
        ("second", "pending", False),
        ("third", "pending", True),
    ]
    for done in (["third"], ["third", "second"], ["third", "second", "first"]):
        (running,) = app.rows("select job_id from fencepost.job_claim_by_priority('undo', %s, 10)", OWNER)
        app.execute("select fencepost.job_finish(%s, 1, %s)", running["job_id"], OWNER)
        finished = [step for step, state, _ in workflow_calls.undos(app, job_id) if state == "finished"]
        assert sorted(finished) == sorted(done)
    assert app.rows("select job_id from fencepost.job_claim_by_priority('undo', %s, 10)", OWNER) == []


def test_a_finished_workflow_is_not_undone(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "a", undo=UNDO)

    app.execute("select fencepost.job_finish(%s, 1, %s)", job_id, OWNER)

    assert workflow_calls.undos(app, job_id) == []


def test_an_undo_is_submitted_past_the_bound_of_its_queue(app: Caller) -> None:
    app.execute("select fencepost.queue_bound('undo', 1, 'carol')")
    app.execute("select fencepost.job_submit('undo', 'k', '1')")
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "a", undo=UNDO)

    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, OWNER)

    assert workflow_calls.undos(app, job_id) == [("a", "pending", True)]


def test_a_dead_undo_holds_the_others_back_until_it_is_replayed_or_discarded(app: Caller) -> None:
    for settle in ("replay", "discard"):
        job_id = workflow_calls.running(app)
        workflow_calls.step(app, job_id, "first", undo=UNDO)
        workflow_calls.step(app, job_id, "second", undo=UNDO)
        app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, OWNER)
        (newest,) = app.rows("select job_id from fencepost.job_claim_by_priority('undo', %s, 10)", OWNER)
        app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", newest["job_id"], OWNER)
        assert workflow_calls.undos(app, job_id)[0] == ("first", "pending", False)

        if settle == "replay":
            app.execute("select fencepost.job_replay(%s, 'carol')", newest["job_id"])
            app.execute("select fencepost.job_claim(%s, %s)", newest["job_id"], OWNER)
            app.execute("select fencepost.job_finish(%s, 2, %s)", newest["job_id"], OWNER)
        else:
            app.execute("select fencepost.job_discard(%s, 'carol')", newest["job_id"])

        assert workflow_calls.undos(app, job_id)[0] == ("first", "pending", True)
        (oldest,) = app.rows("select job_id from fencepost.job_claim_by_priority('undo', %s, 10)", OWNER)
        app.execute("select fencepost.job_finish(%s, 1, %s)", oldest["job_id"], OWNER)


def test_a_workflow_that_was_undone_is_retried_only_from_before_the_undone_step(app: Caller) -> None:
    job_id = workflow_calls.running(app)
    for name in ("price", "reserve", "ship"):
        workflow_calls.step(app, job_id, name, undo=UNDO if name == "reserve" else None)
    app.execute("select fencepost.job_bury(%s, 1, %s, 'no')", job_id, OWNER)
    retry = "select fencepost.workflow_retry_from(%s, %s, 'carol')"

    refused = app.refused("mismatch", "select fencepost.job_replay(%s, 'carol')", job_id)
    assert refused.seen["undone"] == ["reserve"]
    app.refused("mismatch", retry, job_id, "ship")
    app.refused("mismatch", retry, job_id, "reserve")  # Its undo has not run yet.
    app.refused("not_found", retry, job_id, "nothing")
    (undo,) = app.rows("select job_id from fencepost.job_claim_by_priority('undo', %s, 10)", OWNER)
    app.execute("select fencepost.job_finish(%s, 1, %s)", undo["job_id"], OWNER)
    app.execute(retry, job_id, "reserve")

    assert workflow_calls.names(app, job_id) == ["price"]
    assert job_calls.job(app, job_id)["state"] == "pending"
    app.refused("mismatch", retry, job_id, "price")
    events = app.column(
        "select event from fencepost.events where subject = %s order by event_id", str(job_id)
    )
    assert events == ["buried", "replayed", "retried_from"]


def test_the_steps_go_with_the_job(app: Caller, admin: Caller, clock: Clock) -> None:
    kept, gone = workflow_calls.running(app), workflow_calls.running(app)
    for job_id in (kept, gone):
        workflow_calls.step(app, job_id, "a", result="x" * 70_000, undo=UNDO)
        app.execute("select fencepost.event_await(%s, 1, %s, 'w', 'e', null, false)", job_id, OWNER)
    app.execute("select fencepost.job_finish(%s, 1, %s)", gone, OWNER)
    clock.advance(10)

    assert app.value("select fencepost.job_prune('1 second', 10)") == 1

    for table in ("workflow_step", "workflow_result", "workflow_wait"):
        query: Any = f"select job_id from fencepost.{table}"
        assert admin.column(query) == [kept]


def test_explain_tells_the_steps_and_the_refused_ones(app: Caller, clock: Clock) -> None:
    job_id = workflow_calls.running(app)
    workflow_calls.step(app, job_id, "price", result=5)
    app.execute("select fencepost.step_commit_many(%s, '{1}', %s, '{late}', '{d}')", [job_id], RIVAL)
    workflow_calls.wait_for(app, job_id, "paid:7")

    told = app.rows("select event, detail from fencepost.explain(%s) order by event", f"job:{job_id}")

    assert [row["event"] for row in told] == [
        "refused:not_owner",
        "step:price",
        "submitted",
        "waiting",
        "waits:paid:7",
    ]
    assert told[0]["detail"]["attempted"]["name"] == "late"
    assert told[1]["detail"] == {"digest": "d", "result": 5}


def test_versions_tell_what_still_lives_on_which_version(app: Caller, clock: Clock) -> None:
    app.execute("select fencepost.job_submit('mail', 'send', '{}')")
    workflow_calls.start(app, version=2)
    workflow_calls.running(app)
    sleeping = workflow_calls.running(app)
    workflow_calls.sleep(app, sleeping, "nap", "1 hour")

    assert app.rows("select name, version, waiting, running from fencepost.workflow_versions()") == [
        {"name": "fulfil", "version": 1, "waiting": 1, "running": 1},
        {"name": "fulfil", "version": 2, "waiting": 1, "running": 0},
    ]


def test_a_child_is_kept_until_its_parent_has_ended(app: Caller, clock: Clock) -> None:
    """The slowest sibling may take longer than finished jobs are kept."""
    job_id = workflow_calls.running(app)
    children, batch = spawned(app, job_id)
    assert app.value("select fencepost.workflow_join(%s, 1, %s, %s)", job_id, OWNER, batch) == "parked"
    for child in children:
        job_calls.claim(app, child)
    app.execute("select fencepost.job_finish(%s, 1, %s, 'ok', '5')", children[0], OWNER)
    other = job_calls.finished(app)
    clock.advance(2 * 86_400)

    assert app.value("select fencepost.job_prune('1 day', 10)") == 1
    assert app.value("select fencepost.job_prune_excess(0, 10)") == 0
    assert app.rows("select 1 from fencepost.jobs where job_id = %s", other) == []
    app.execute("select fencepost.job_reclaim(10)")
    job_calls.claim(app, children[1])
    app.execute("select fencepost.job_finish(%s, 2, %s)", children[1], OWNER)
    clock.advance(2 * 86_400)
    assert app.value("select fencepost.batch_prune('1 day', 10)") == 0
    assert app.value("select fencepost.job_prune('1 day', 10)") == 0
    job_calls.claim(app, job_id)
    app.execute("select fencepost.job_finish(%s, 2, %s)", job_id, OWNER)

    assert app.value("select fencepost.job_prune('1 day', 10)") == 2
    assert app.value("select fencepost.batch_prune('1 day', 10)") == 1
