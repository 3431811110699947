"""Two plural calls on the same jobs, named in opposite orders. Each answers for every job."""

from tests.isolation.job_calls import STATE
from tests.isolation.pairs import Call, Given, Pair, Second

SUBMIT = """
select fencepost.job_submit_many('q', 'kind', array['{}', '{}', '{}']::jsonb[], p_lease => '1 hour')
"""
WAITING = Given((SUBMIT,), "pending 0; pending 0; pending 0", STATE)
RUNNING = Given(
    (SUBMIT, "select fencepost.job_claim_many(array[1, 2, 3], 'a')"),
    "running 1 by a; running 1 by a; running 1 by a",
    STATE,
)

CLAIM_UP = Call(
    "claim 1, 2",
    """select string_agg(job_id || ' ' || coalesce(refusal, outcome), ', ' order by job_id)
       from fencepost.job_claim_many(array[1, 2], 'a')""",
    "1 claimed, 2 claimed",
    {"1 claimed, 2 claimed": "running 1 by a; running 1 by a; pending 0"},
)
CLAIM_DOWN = Call(
    "claim 3, 2, 1",
    """select string_agg(job_id || ' ' || coalesce(refusal, outcome), ', ' order by job_id)
       from fencepost.job_claim_many(array[3, 2, 1], 'b')""",
    "1 claimed, 2 claimed, 3 claimed",
    {
        "1 claimed, 2 claimed, 3 claimed": "running 1 by b; running 1 by b; running 1 by b",
        "1 not_owner, 2 not_owner, 3 claimed": "running 1 by a; running 1 by a; running 1 by b",
    },
)
FINISH_UP = Call(
    "finish 1, 2",
    """select string_agg(job_id || ' ' || coalesce(refusal, 'finished'), ', ' order by job_id)
       from fencepost.job_finish_many(array[1, 2], array[1, 1], 'a')""",
    "1 finished, 2 finished",
    {"1 finished, 2 finished": "finished 1 by a; finished 1 by a; running 1 by a"},
)
FINISH_DOWN = Call(
    "finish 2, 1",
    """select string_agg(job_id || ' ' || coalesce(refusal, 'finished'), ', ' order by job_id)
       from fencepost.job_finish_many(array[2, 1], array[1, 1], 'a')""",
    "1 finished, 2 finished",
    {"1 finished, 2 finished": "finished 1 by a; finished 1 by a; running 1 by a"},
)
RENEW = Call(
    "renew 3, 2, 1",
    """select string_agg(job_id || ' ' || coalesce(refusal, 'renewed'), ', ' order by job_id)
       from fencepost.job_renew_many(array[3, 2, 1], array[1, 1, 1], 'a')""",
    "1 renewed, 2 renewed, 3 renewed",
)
LEAVE = Call(
    "leave 2, 1",
    """select string_agg(job_id || ' ' || coalesce(refusal, state), ', ' order by job_id)
       from fencepost.job_leave_many(array[2, 1], array[1, 1], 'a', array['release', 'bury'])""",
    "1 dead, 2 pending",
    {"1 dead, 2 pending": "dead 1 by a; pending 1; running 1 by a"},
)

FINISHED = Second(committed="1 already_finished, 2 already_finished")

PAIRS = (
    Pair(
        "two claims of many",
        WAITING,
        CLAIM_UP,
        CLAIM_DOWN,
        a_second=Second("1 not_owner, 2 not_owner"),
        b_second=Second("1 not_owner, 2 not_owner, 3 claimed"),
    ),
    Pair("two finishes of many", RUNNING, FINISH_UP, FINISH_DOWN, FINISHED, FINISHED),
    # An open finish must not keep the heartbeat of the other jobs.
    Pair(
        "a renewal of many meets a finish of many",
        RUNNING,
        RENEW,
        FINISH_DOWN,
        a_second=Second(
            "1 already_finished, 2 already_finished, 3 renewed",
            while_open="1 in_flight, 2 in_flight, 3 renewed",
        ),
        b_second=Second("1 finished, 2 finished"),
    ),
    Pair(
        "two renewals of many",
        RUNNING,
        RENEW,
        RENEW,
        a_second=Second(
            "1 renewed, 2 renewed, 3 renewed", while_open="1 in_flight, 2 in_flight, 3 in_flight"
        ),
        b_second=Second(
            "1 renewed, 2 renewed, 3 renewed", while_open="1 in_flight, 2 in_flight, 3 in_flight"
        ),
    ),
    Pair(
        "a finish of many meets the leaving of many",
        RUNNING,
        FINISH_UP,
        LEAVE,
        a_second=Second("1 already_finished, 2 not_running"),
        b_second=FINISHED,
    ),
)
