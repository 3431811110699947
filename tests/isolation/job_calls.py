"""The calls on a job that the pairs are made of. Worker a is its first owner, b and c come after him."""

from tests.isolation.pairs import Call, Given

STATE = """
select state || ' ' || attempt || coalesce(' by ' || owner, '')
  || case when cancel_requested_at is not null then ', asked to stop' else '' end
from fencepost.jobs order by job_id, state
"""

SUBMIT = "select fencepost.job_submit('q', 'kind', '{}', p_lease => '1 hour')"
CLAIMED = "select fencepost.job_claim(1, 'a')"

WAITING = Given((SUBMIT,), "pending 0", STATE)
RUNNING = Given((SUBMIT, CLAIMED), "running 1 by a", STATE)
LOST = Given((SUBMIT, CLAIMED, "select isolation.at(3601)"), "running 1 by a", STATE)
DEAD = Given((SUBMIT, CLAIMED, "select fencepost.job_bury(1, 1, 'a', 'no')"), "dead 1 by a", STATE)

CLAIM_A = Call(
    "claim by a",
    "select 'attempt ' || attempt from fencepost.job_claim(1, 'a')",
    "attempt 1",
    {"attempt 1": "running 1 by a", "attempt 2": "running 2 by a"},
)
CLAIM_B = Call(
    "claim by b",
    "select 'attempt ' || attempt from fencepost.job_claim(1, 'b')",
    "attempt 1",
    {"attempt 1": "running 1 by b", "attempt 2": "running 2 by b"},
)
CLAIM_C = Call(
    "claim by c",
    "select 'attempt ' || attempt from fencepost.job_claim(1, 'c')",
    "attempt 1",
    {"attempt 1": "running 1 by c", "attempt 2": "running 2 by c"},
)
CLAIM_NEXT_A = Call(
    "claim the next by a",
    "select 'attempt ' || attempt from fencepost.job_claim_by_priority('q', 'a', 10)",
    "attempt 1",
    {"attempt 1": "running 1 by a"},
)
CLAIM_NEXT_B = Call(
    "claim the next by b",
    "select 'attempt ' || attempt from fencepost.job_claim_by_priority('q', 'b', 10)",
    "attempt 1",
    {"attempt 1": "running 1 by b", "attempt 2": "running 2 by b"},
)
DISPATCH = Call("dispatch", "select job_id from fencepost.job_dispatch('q', 1, 10, '1 hour')", "1")
DISPATCHED = Call(
    "dispatched",
    "select fencepost.job_dispatched(array[1], array['1-0'], 'redis')",
    "1",
    {"1": "dispatched 0"},
)

FENCE = Call("fence", "select fencepost.job_fence(1, 1, 'a')", "done")
FINISH = Call("finish", "select fencepost.job_finish(1, 1, 'a')", "done", {"done": "finished 1 by a"})
RENEW = Call(
    "renew",
    "select case when cancel_requested then 'stop' else 'renewed' end from fencepost.job_renew(1, 1, 'a')",
    "renewed",
)
PROGRESS = Call("progress", "select fencepost.job_progress(1, 1, 'a', '50')", "done")
LEFT = {"pending": "pending 1", "dead": "dead 1 by a", "cancelled": "cancelled 1 by a"}
RELEASE = Call("release", "select fencepost.job_release(1, 1, 'a')", "pending", LEFT)
RETRY = Call("retry", "select fencepost.job_retry(1, 1, 'a', 'boom', '10 s')", "pending", LEFT)
BURY = Call("bury", "select fencepost.job_bury(1, 1, 'a', 'no')", "dead", LEFT)

RECLAIM = Call("reclaim", "select state from fencepost.job_reclaim(10)", "pending", LEFT)
RECLAIM_ONE = Call("reclaim one", "select fencepost.job_reclaim_one(1)", "pending", LEFT)
CANCEL = Call(
    "cancel",
    "select fencepost.job_cancel(1, 'anna')",
    "requested",
    {"requested": "running 1 by a, asked to stop", "cancelled": "cancelled 1"},
)
CANCEL_RUNNING = Call(
    "cancel what runs", "select fencepost.job_cancel(1, 'anna', 'running')", "requested", CANCEL.leaves
)
REPLAY = Call("replay", "select fencepost.job_replay(1, 'anna')", "done", {"done": "pending 1"})
DISCARD = Call("discard", "select fencepost.job_discard(1, 'anna')", "done", {"done": "cancelled 1 by a"})
PRUNE_HISTORY = Call("prune history", "select fencepost.history_prune('1 s', 10)", "1")
PRUNE = Call("prune", "select fencepost.job_prune('1 s', 10, true)", "1", {"1": ""})

NOT_OWNER = "refused: not_owner"
NOT_RUNNING = "refused: not_running"
FINISHED = "refused: already_finished"
CANCELLED = "refused: cancelled"
IN_FLIGHT = "refused: in_flight"
STALE = "refused: stale_attempt"
LATE = "refused: lease_expired"
MISMATCH = "refused: mismatch"
