"""Two calls that meet at a key: one live job for a unique key, so many running jobs for a concurrency key."""

from tests.isolation.job_calls import CLAIMED, STATE
from tests.isolation.pairs import Call, Given, Pair, Second

SUBMITTED = "select fencepost.job_submit('q', 'kind', '{}', p_unique_key => 'u')"
NEW = Given((), "", STATE)
LIVE = Given((SUBMITTED,), "pending 0", STATE)
RUNNING = Given((SUBMITTED, CLAIMED), "running 1 by a", STATE)
DEAD = Given((SUBMITTED, CLAIMED, "select fencepost.job_bury(1, 1, 'a', 'no')"), "dead 1 by a", STATE)

SUBMIT_SQL = """
select case when created then 'created' else 'exists' end
from fencepost.job_submit('q', 'kind', '{}', p_unique_key => 'u')
"""
SUBMIT = Call("submit", SUBMIT_SQL, "created", {"created": "pending 0"})
SUBMIT_AFTER_CANCEL = Call("submit", SUBMIT_SQL, "exists", {"created": "cancelled 0; pending 0"})
SUBMIT_AFTER_FINISH = Call("submit", SUBMIT_SQL, "exists", {"created": "finished 1 by a; pending 0"})
SUBMIT_AFTER_DEATH = Call("submit", SUBMIT_SQL, "created", {"created": "dead 1 by a; pending 0"})
SUBMIT_UP = Call(
    "submit u, v",
    """select case when created then 'created' else 'exists' end
       from fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[],
                                      p_unique_keys => array['u', 'v'])""",
    "created, created",
    {"created, created": "pending 0; pending 0"},
)
SUBMIT_DOWN = Call(
    "submit v, u",
    """select case when created then 'created' else 'exists' end
       from fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[],
                                      p_unique_keys => array['v', 'u'])""",
    "created, created",
    {"created, created": "pending 0; pending 0"},
)
CANCEL = Call("cancel", "select fencepost.job_cancel(1, 'anna')", "cancelled", {"cancelled": "cancelled 0"})
FINISH = Call("finish", "select fencepost.job_finish(1, 1, 'a')", "done", {"done": "finished 1 by a"})
REPLAY = Call("replay", "select fencepost.job_replay(1, 'anna')", "done", {"done": "pending 1"})

# A key that only waiting jobs hold, and a submission that changes the job that waits.
SUBMITTED_WAITING = (
    "select fencepost.job_submit('q', 'kind', '{}', p_unique_key => 'u', p_unique_states => '{waiting}')"
)
TAKEN_UP = Given((SUBMITTED_WAITING, CLAIMED), "running 1 by a", STATE)
TAKE_OVER = Call(
    "submit",
    """select case when created then 'created' else 'exists' end
       from fencepost.job_submit('q', 'kind', '{}', p_unique_key => 'u', p_unique_states => '{waiting}')""",
    "created",
    {"created": "running 1 by a; pending 0"},
)
REPLACE = Call(
    "replace",
    """select case when replaced then 'replaced' else 'left alone' end
       from fencepost.job_submit('q', 'kind', '{"n": 2}', p_unique_key => 'u',
                                 p_unique_replace => '{payload}')""",
    "replaced",
    {"replaced": "pending 0"},
)
CLAIM = Call(
    "claim",
    "select outcome from fencepost.job_claim_many(array[1], 'a')",
    "claimed",
    {"claimed": "running 1 by a"},
)

# Jobs 1 and 2 may not run at the same time.
SUBMIT_TWO = """
select fencepost.job_submit_many('q', 'kind', array['{}', '{}']::jsonb[], p_lease => '1 hour',
                                 p_concurrency_keys => array['x', 'x'], p_concurrency_limit => 1)
"""
TWO_WAIT = Given((SUBMIT_TWO,), "pending 0; pending 0", STATE)
ONE_RUNS = Given((SUBMIT_TWO, CLAIMED), "running 1 by a; pending 0", STATE)
ONE_LOST = Given((*ONE_RUNS.statements, "select isolation.at(3601)"), "running 1 by a; pending 0", STATE)
CLAIM_1 = Call(
    "claim 1",
    "select outcome from fencepost.job_claim_many(array[1], 'a')",
    "claimed",
    {"claimed": "running 1 by a; pending 0"},
)
CLAIM_2_SQL = "select outcome from fencepost.job_claim_many(array[2], 'b')"
CLAIM_2 = Call("claim 2", CLAIM_2_SQL, "claimed", {"claimed": "pending 0; running 1 by b"})
CLAIM_2_AFTER_FINISH = Call(
    "claim 2", CLAIM_2_SQL, "deferred", {"claimed": "finished 1 by a; running 1 by b"}
)
CLAIM_2_AFTER_RECLAIM = Call("claim 2", CLAIM_2_SQL, "deferred", {"claimed": "pending 1; running 1 by b"})
FINISH_1 = Call(
    "finish 1", "select fencepost.job_finish(1, 1, 'a')", "done", {"done": "finished 1 by a; pending 0"}
)
RECLAIM_1 = Call(
    "reclaim 1", "select state from fencepost.job_reclaim(10)", "pending", {"pending": "pending 1; pending 0"}
)

EXISTS = Second(committed="exists")
DEFERRED = Second(committed="deferred")

PAIRS = (
    Pair("two submissions under one unique key", NEW, SUBMIT, SUBMIT, EXISTS, EXISTS),
    Pair(
        "many submissions under unique keys in opposite orders",
        NEW,
        SUBMIT_UP,
        SUBMIT_DOWN,
        a_second=Second("exists, exists"),
        b_second=Second("exists, exists"),
    ),
    # The key is free when the cancel or the finish commits; until then it is not known.
    Pair(
        "a submission meets the cancel of the live job",
        LIVE,
        SUBMIT_AFTER_CANCEL,
        CANCEL,
        a_second=Second("created"),
        b_second=Second("cancelled", while_open="cancelled"),
    ),
    Pair(
        "a submission meets the finish of the live job",
        RUNNING,
        SUBMIT_AFTER_FINISH,
        FINISH,
        a_second=Second("created"),
        b_second=Second("done", while_open="done"),
    ),
    Pair(
        "a submission meets the replay of the dead job",
        DEAD,
        SUBMIT_AFTER_DEATH,
        REPLAY,
        a_second=EXISTS,
        b_second=Second("refused: duplicate"),
    ),
    Pair(
        "two submissions take over the key of a job that runs", TAKEN_UP, TAKE_OVER, TAKE_OVER, EXISTS, EXISTS
    ),
    Pair(
        "a submission that replaces meets the claim of the job that waits",
        LIVE,
        REPLACE,
        CLAIM,
        a_second=Second("left alone"),
        b_second=Second("claimed"),
    ),
    Pair("two claims for one slot", TWO_WAIT, CLAIM_1, CLAIM_2, DEFERRED, DEFERRED),
    Pair(
        "a claim for a slot meets the finish that frees it",
        ONE_RUNS,
        CLAIM_2_AFTER_FINISH,
        FINISH_1,
        a_second=Second("claimed", while_open="deferred"),
        b_second=Second("done", while_open="done"),
    ),
    Pair(
        "a claim for a slot meets the reclaim that frees it",
        ONE_LOST,
        CLAIM_2_AFTER_RECLAIM,
        RECLAIM_1,
        a_second=Second("claimed", while_open="deferred"),
        b_second=Second("pending", while_open="pending"),
    ),
)
