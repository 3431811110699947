"""Batches, rates and schedules: who counts the last job, who has the token, who fires the tick."""

from collections.abc import Iterator

from tests.isolation.job_calls import STATE
from tests.isolation.pairs import Call, Given, Pair, Second
from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

# Jobs 1 and 2 are a batch, and job 3 is called when both have ended.
SUBMIT_THREE = """
select fencepost.job_submit_many('q', 'kind', array['{}', '{}', '{}']::jsonb[], p_lease => '1 hour')
"""
BATCH = (
    SUBMIT_THREE,
    "select fencepost.batch_make(array[1, 2], 3)",
    "select fencepost.job_claim_many(array[1, 2], 'a')",
)
BATCH_STATE = """
select b.remaining || ' left' from fencepost.batches b
union all
select case when run_at <= fencepost.clock() then 'called' else 'not called' end
from fencepost.jobs where job_id = 3
"""
FINISH_1 = Step("finish", "select fencepost.job_finish(1, 1, 'a')")
FINISH_2 = Step("finish", "select fencepost.job_finish(2, 1, 'a')")


def the_last_one_calls(run: Run) -> Iterator[str]:
    """Two jobs of one part are counted one after the other, and the one that makes it zero calls."""
    first, second = sorted("ab", key=lambda name: run[f"{name}.finish"].started)
    yield from run.expect(f"{first}.finish", "done", waits=False)
    yield from run.expect(f"{second}.finish", "done", waits=run.open_at(first, f"{second}.finish"))
    left = 2 - run.committed("a") - run.committed("b")
    yield from run.expect_state(f"{left} left", "not called" if left else "called")


# Only job 1 has not ended. The callback was cancelled, and a person wants it after all.
CALLED_OFF = Given(
    (
        *BATCH,
        "select fencepost.job_finish(2, 1, 'a')",
        "select fencepost.job_cancel(3, 'anna')",
    ),
    "in step",
    """
    select case when w.run_at > fencepost.clock() and b.completed_at is not null then 'waits for ever'
                when w.run_at <= fencepost.clock() and b.completed_at is null then 'called too early'
                else 'in step' end
    from fencepost.job_batch b left join fencepost.job_waiting w on w.job_id = b.callback_job_id
    """,
)
REPLAY_CALLBACK = Call("replay", "select fencepost.job_replay(3, 'anna', 'cancelled')", "done")
FINISH_LAST = Call("finish", "select fencepost.job_finish(1, 1, 'a')", "done")

# One job a second may start, and no more than one at once.
RATED = Given(
    (
        "select fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[])",
        "select fencepost.queue_rate('q', 1, 1, 'anna')",
    ),
    "pending 0; pending 0",
    STATE,
)
CLAIM_1 = Call(
    "claim 1",
    "select outcome from fencepost.job_claim_many(array[1], 'a')",
    "claimed",
    {"claimed": "running 1 by a; pending 0"},
)
CLAIM_2 = Call(
    "claim 2",
    "select outcome from fencepost.job_claim_many(array[2], 'b')",
    "claimed",
    {"claimed": "pending 0; running 1 by b"},
)

# A schedule whose tick has come.
DUE = Given(
    (
        """select fencepost.schedule_declare('s', '* * * * *', 'UTC', 'once', '1 hour',
             '2030-01-01 00:01:00+00', 'q', 'kind', '{}', 1, 5, '1 hour', null, null, null, '{}')""",
        "select isolation.at(60)",
    ),
    "",
    STATE,
)
FIRE = Call(
    "fire",
    """select 'fired' from fencepost.schedule_fire('s', '2030-01-01 00:01:00+00',
         array['2030-01-01 00:01:00+00'::timestamptz], '2030-01-01 00:02:00+00')""",
    "fired",
    {"fired": "pending 0"},
)
PAUSE = Call("pause", "select fencepost.schedule_pause('s', 'anna')", "done")

SKIPPED = Second(committed="nothing", while_open="nothing")

PAIRS = (
    Pair("two claims for one token", RATED, CLAIM_1, CLAIM_2, Second("deferred"), Second("deferred")),
    Pair(
        "a replay of the callback meets the end of its batch",
        CALLED_OFF,
        REPLAY_CALLBACK,
        FINISH_LAST,
        Second("done"),
        Second("done"),
    ),
    Pair("two fire one tick", DUE, FIRE, FIRE, SKIPPED, SKIPPED),
    Pair("a firing meets a pause", DUE, FIRE, PAUSE, SKIPPED, Second("done")),
)

STORIES = (
    Scenario(
        "two finish the last jobs of a batch",
        BATCH,
        (Session("a", (FINISH_1, COMMIT)), Session("b", (FINISH_2, COMMIT))),
        BATCH_STATE,
        the_last_one_calls,
    ),
    Scenario(
        "two finish the last jobs of a batch, and one rolls back",
        BATCH,
        (Session("a", (FINISH_1, ROLLBACK)), Session("b", (FINISH_2, COMMIT))),
        BATCH_STATE,
        the_last_one_calls,
    ),
)
