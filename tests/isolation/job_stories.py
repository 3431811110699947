"""Jobs between three parties: a dispatcher, workers, an operator, and the slots of a concurrency key."""

from collections.abc import Iterator

from tests.isolation.job_calls import STATE, SUBMIT
from tests.isolation.scenario import COMMIT, Run, Scenario, Session, Step

DISPATCHER = Session(
    "dispatcher",
    (
        Step("dispatch", "select job_id from fencepost.job_dispatch('q', 1, 10, '1 hour')"),
        Step("record", "select fencepost.job_dispatched(array[1], array['1-0'], 'redis')"),
        COMMIT,
    ),
)
WORKER = Session(
    "worker", (Step("claim", "select 'attempt ' || attempt from fencepost.job_claim(1, 'a')"), COMMIT)
)
OPERATOR = Session("operator", (Step("cancel", "select fencepost.job_cancel(1, 'anna')"), COMMIT))


def a_claim_and_a_dispatch_follow_each_other(run: Run) -> Iterator[str]:
    """A claim that meets a dispatch waits for its record; a dispatch that meets a claim finds nothing."""
    dispatched = run["dispatcher.dispatch"].started < run["worker.claim"].started
    yield from run.expect("dispatcher.dispatch", "1" if dispatched else "nothing", waits=False)
    # The record waits for a claim that is still open: it may yet roll back.
    record_waits = not dispatched and run.open_at("worker", "dispatcher.record")
    yield from run.expect("dispatcher.record", "1" if dispatched else "0", waits=record_waits)
    waits = dispatched and run.open_at("dispatcher", "worker.claim")
    yield from run.expect("worker.claim", "attempt 1", waits=waits)
    yield from run.expect_state("running 1 by a")


def a_cancel_and_a_dispatch_follow_each_other(run: Run) -> Iterator[str]:
    dispatched = run["dispatcher.dispatch"].started < run["operator.cancel"].started
    yield from run.expect("dispatcher.dispatch", "1" if dispatched else "nothing", waits=False)
    record_waits = not dispatched and run.open_at("operator", "dispatcher.record")
    yield from run.expect("dispatcher.record", "1" if dispatched else "0", waits=record_waits)
    waits = dispatched and run.open_at("dispatcher", "operator.cancel")
    yield from run.expect("operator.cancel", "cancelled", waits=waits)
    yield from run.expect_state("cancelled 0")


# Three jobs of which two may run at once.
SUBMIT_THREE = """
select fencepost.job_submit_many('q', 'kind', array['{}', '{}', '{}']::jsonb[],
                                 p_concurrency_keys => array['x', 'x', 'x'], p_concurrency_limit => 2)
"""
CLAIM_1 = Step("claim", "select outcome from fencepost.job_claim_many(array[1], 'a')")
CLAIM_2 = Step("claim", "select outcome from fencepost.job_claim_many(array[2], 'b')")
CLAIM_3 = Step("claim", "select outcome from fencepost.job_claim_many(array[3], 'c')")


def the_first_two_have_the_slots(run: Run) -> Iterator[str]:
    """The claims of one key follow each other, so the third is told to wait however they interleave."""
    order = sorted("abc", key=lambda name: run[f"{name}.claim"].started)
    for place, name in enumerate(order):
        waits = any(run.open_at(other, f"{name}.claim") for other in order[:place])
        yield from run.expect(f"{name}.claim", "claimed" if place < 2 else "deferred", waits=waits)
    yield from run.expect_state(
        *(f"running 1 by {name}" if name in order[:2] else "pending 0" for name in "abc")
    )


STORIES = (
    Scenario(
        "a dispatcher and a worker",
        (SUBMIT,),
        (DISPATCHER, WORKER),
        STATE,
        a_claim_and_a_dispatch_follow_each_other,
    ),
    Scenario(
        "a dispatcher and an operator",
        (SUBMIT,),
        (DISPATCHER, OPERATOR),
        STATE,
        a_cancel_and_a_dispatch_follow_each_other,
    ),
    Scenario(
        "three claims for two slots",
        (SUBMIT_THREE,),
        (Session("a", (CLAIM_1, COMMIT)), Session("b", (CLAIM_2, COMMIT)), Session("c", (CLAIM_3, COMMIT))),
        STATE,
        the_first_two_have_the_slots,
    ),
)
