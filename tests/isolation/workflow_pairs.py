"""Two calls on one workflow: its steps, what parks it, what calls it, and what ends it."""

from collections.abc import Iterator

from tests.isolation.job_calls import CANCEL as CANCEL_JOB
from tests.isolation.job_calls import (
    CANCELLED,
    CLAIM_A,
    CLAIM_B,
    FINISHED,
    IN_FLIGHT,
    LATE,
    MISMATCH,
    NOT_OWNER,
    NOT_RUNNING,
    RECLAIM,
    RENEW,
    STALE,
    STATE,
)
from tests.isolation.job_calls import FINISH as FINISH_JOB
from tests.isolation.job_calls import RELEASE as RELEASE_JOB
from tests.isolation.pairs import Call, Given, Pair, Second
from tests.isolation.scenario import COMMIT, ROLLBACK, Run, Scenario, Session, Step

START = "select fencepost.workflow_start('q', 'wf', 1, '{}', p_lease => '1 hour')"
START_ONCE = "select fencepost.workflow_start('q', 'wf', 1, '{}', p_lease => '1 hour', p_tries_max => 1)"
CLAIMED = "select fencepost.job_claim(1, 'a')"
LATER = "select isolation.at(3601)"
STEPS = "select name from fencepost.workflow_steps order by name"

RUNNING = Given((START, CLAIMED), "running 1 by a", STATE)
RECORDED = Given((START, CLAIMED), "", STEPS)
LOST = Given((START, CLAIMED, LATER), "running 1 by a", STATE)

STEP = Call("step", "select fencepost.step_commit(1, 1, 'a', 'x', 'one')", "done", {"done": "x"})
STEP_OTHERWISE = Call("step", "select fencepost.step_commit(1, 1, 'a', 'x', 'two')", "done", {"done": "x"})
STEP_Y = Call("step y", "select fencepost.step_commit(1, 1, 'a', 'y', 'one')", "done")
STEPS_MANY = Call(
    "steps",
    "select coalesce(refusal, 'recorded') from fencepost.step_commit_many('{1}', '{1}', 'a', '{x}', '{one}')",
    "recorded",
)
ALL = "select fencepost.step_commit_all('{1}', '{1}', 'a', '{%s}', '{%s}')"
WRITTEN = Call("written step", ALL % ("x", "one"), "done", {"done": "x"})
WRITTEN_OTHERWISE = Call("written step", ALL % ("x", "two"), "done", {"done": "x"})
WRITTEN_Y = Call("written step y", ALL % ("y", "one"), "done")
SLEEP = Call(
    "sleep",
    "select 'asleep' from fencepost.workflow_sleep(1, 1, 'a', 'nap', 'd', '1 hour')",
    "asleep",
    {"asleep": "pending 1"},
)
RESTART = Call(
    "restart", "select fencepost.workflow_restart(1, 1, 'a', '{\"n\": 1}')", "done", {"done": "pending 1"}
)
AWAIT = Call(
    "await",
    "select outcome from fencepost.event_await(1, 1, 'a', 'e', 'e')",
    "parked",
    {"parked": "pending 1"},
)
# The same where the state shows something else.
LISTEN = Call(AWAIT.name, AWAIT.sql, AWAIT.alone)
EMIT = Call("emit", "select case when fencepost.event_emit('e', '1') then 'first' else 'again' end", "first")
EMIT_OTHERWISE = Call(
    "emit otherwise", "select case when fencepost.event_emit('e', '2') then 'first' else 'again' end", "first"
)
# On the workflow's own row these leave what they leave of any job.
FINISH, RELEASE, CANCEL = FINISH_JOB, RELEASE_JOB, CANCEL_JOB

# Whatever happens: a workflow that is parked on an event that was emitted is due.
CALLED = """
select case when w.run_at > fencepost.clock() + interval '1 minute'
              and exists (select 1 from fencepost.workflow_event e where e.event = 'e')
            then 'forgotten' else 'well' end
from fencepost.job j left join fencepost.job_waiting w on w.job_id = j.job_id
"""
WAITING_FOR_E = Given((START, CLAIMED), "well", CALLED)
EMITTED = "select payload #>> '{}' from fencepost.workflow_events"

# Job 2 is the child of workflow 1, and runs.
SPAWNED = (
    START,
    CLAIMED,
    "select fencepost.job_submit('q', 'kind', '{}', p_lease => '1 hour')",
    "select fencepost.workflow_spawn(1, 1, 'a', 'pack', 'd', '{2}')",
    "select fencepost.job_claim(2, 'b')",
)
JOINED = """
select case when w.run_at > fencepost.clock() + interval '1 minute' and b.completed_at is not null
            then 'forgotten' else 'well' end
from fencepost.job_batch b left join fencepost.job_waiting w on w.job_id = 1
"""
PARENT = Given(SPAWNED, "well", JOINED)
JOIN = Call("join", "select fencepost.workflow_join(1, 1, 'a', 1)", "parked")
FINISH_CHILD = Call("finish the child", "select fencepost.job_finish(2, 1, 'b')", "done")

# Children without a parent's step would be jobs without an owner.
ORPHANS = """
select count(*) || ' jobs, ' || (select count(*) from fencepost.workflow_steps) || ' steps'
from fencepost.job where kind = 'kind'
"""
SPAWNING = Given((START, CLAIMED), "0 jobs, 0 steps", ORPHANS)
SPAWN = Call(
    "spawn",
    """select 'spawned' from fencepost.workflow_spawn(1, 1, 'a', 'more', 'd', array(
         select job_id from fencepost.job_submit('q', 'kind', '{}')))""",
    "spawned",
    {"spawned": "1 jobs, 1 steps"},
)
SPAWN_WORKFLOW = Call(SPAWN.name, SPAWN.sql, SPAWN.alone)
RUNNING_PARENT = Given(
    (START, CLAIMED),
    "running 1 by a",
    """
    select j.state || ' ' || j.attempt || coalesce(' by ' || j.owner, '') from fencepost.jobs j
    where j.job_id = 1
    """,
)
RELEASE_WORKFLOW = Call(RELEASE_JOB.name, RELEASE_JOB.sql, RELEASE_JOB.alone)
CANCEL_WORKFLOW = Call(CANCEL_JOB.name, CANCEL_JOB.sql, CANCEL_JOB.alone)

# A workflow in its only try, with a step that is undone when it ends badly. Ended so, one undo is there.
UNDO_STEP = """
select fencepost.step_commit(1, 1, 'a', 'reserve', 'd', null,
  '{"queue": "undo", "kind": "unreserve", "payload": 1}')
"""
UNDONE = """
select j.state || ', undone ' || (select count(*) from fencepost.job u where u.kind = 'unreserve') || ' times'
from fencepost.jobs j where j.job_id = 1
"""
ONE_UNDO = {
    "dead": "dead, undone 1 times",
    "cancelled": "cancelled, undone 1 times",
    "pending": "pending, undone 0 times",
}
WITH_UNDO = Given((START_ONCE, CLAIMED, UNDO_STEP), "running, undone 0 times", UNDONE)
WITH_UNDO_LOST = Given((START_ONCE, CLAIMED, UNDO_STEP, LATER), "running, undone 0 times", UNDONE)
ASLEEP_WITH_UNDO = Given(
    (
        START_ONCE,
        CLAIMED,
        UNDO_STEP,
        "select fencepost.workflow_sleep(1, 1, 'a', 'nap', 'd', '1 hour')",
        LATER,
    ),
    "pending, undone 0 times",
    UNDONE,
)
BURY = Call("bury", "select fencepost.job_bury(1, 1, 'a', 'no')", "dead", ONE_UNDO)
FAIL = Call("fail", "select fencepost.job_retry(1, 1, 'a', 'no', '0')", "dead", ONE_UNDO)
FINISH_WELL = Call(
    "finish", "select fencepost.job_finish(1, 1, 'a')", "done", {"done": "finished, undone 0 times"}
)
RECLAIM_DEAD = Call("reclaim", "select state from fencepost.job_reclaim(10)", "dead", ONE_UNDO)
RECLAIM_ONE_DEAD = Call("reclaim one", "select fencepost.job_reclaim_one(1)", "dead", ONE_UNDO)
CANCEL_ASLEEP = Call("cancel", "select fencepost.job_cancel(1, 'anna')", "cancelled", ONE_UNDO)
CLAIM_ASLEEP = Call(
    "claim",
    "select 'attempt ' || attempt from fencepost.job_claim(1, 'b')",
    "attempt 2",
    {"attempt 2": "running, undone 0 times"},
)

DEAD = Given(
    (
        START,
        CLAIMED,
        "select fencepost.step_commit(1, 1, 'a', 'x', 'd')",
        "select fencepost.step_commit(1, 1, 'a', 'y', 'd')",
        "select fencepost.job_bury(1, 1, 'a', 'no')",
    ),
    "dead 1 by a",
    STATE,
)
RETRY_FROM = Call(
    "retry from y", "select fencepost.workflow_retry_from(1, 'y', 'anna')", "done", {"done": "pending 1"}
)
REPLAY = Call("replay", "select fencepost.job_replay(1, 'anna')", "done", {"done": "pending 1"})

OLD_EVENT = Given(
    (START, CLAIMED, "select fencepost.event_emit('e', '1')", "select isolation.at(60)"), "1", EMITTED
)
PRUNE_EVENT = Call("prune", "select fencepost.event_prune('1 second', 10)", "1", {"1": ""})

# Parked on the event, with a deadline that is over: both the emission and the time call it.
PARKED_ON_E = Given(
    (START, CLAIMED, "select fencepost.event_await(1, 1, 'a', 'e', 'e', '1 minute')", LATER), "well", CALLED
)
CLAIM_PARKED = Call("claim", "select 'attempt ' || attempt from fencepost.job_claim(1, 'b')", "attempt 2")
CANCEL_PARKED = Call("cancel", "select fencepost.job_cancel(1, 'anna')", "cancelled")
EMIT_AGAIN = Call(EMIT.name, EMIT.sql, "again", {"first": "1"})

# The workflow is dead; job 3 undoes its newer step and runs, job 2 undoes the older one and waits for it.
UNDO_STEP_Y = """
select fencepost.step_commit(1, 1, 'a', 'charge', 'd', null,
  '{"queue": "undo", "kind": "refund", "payload": 1}')
"""
ENDED_BADLY = "select fencepost.job_bury(1, 1, 'a', 'no')"
NEXT_UNDO = """
select case when w.run_at <= fencepost.clock() then 'the next is due' else 'the next waits' end
from fencepost.job_waiting w where w.job_id = 2
"""
UNDOING = Given(
    (START, CLAIMED, UNDO_STEP, UNDO_STEP_Y, ENDED_BADLY, "select fencepost.job_claim(3, 'b')"),
    "the next waits",
    NEXT_UNDO,
)
FINISH_UNDO = Call(
    "finish the undo", "select fencepost.job_finish(3, 1, 'b')", "done", {"done": "the next is due"}
)
BURY_UNDO = Call("bury the undo", "select fencepost.job_bury(3, 1, 'b', 'no')", "dead")
CANCEL_NEXT = Call("cancel the next", "select fencepost.job_cancel(2, 'anna')", "cancelled")
# Whatever happens: an undo behind one that ended well is not forgotten.
UNDOING_WELL = Given(
    UNDOING.statements,
    "well",
    """
    select case when w.run_at > fencepost.clock() + interval '1 minute' and u.state = 'finished'
                then 'forgotten' else 'well' end
    from fencepost.jobs u left join fencepost.job_waiting w on w.job_id = 2 where u.job_id = 3
    """,
)
# Its only undo runs.
LAST_UNDO = Given(
    (START, CLAIMED, UNDO_STEP, ENDED_BADLY, "select fencepost.job_claim(2, 'b')"),
    "dead",
    "select state from fencepost.jobs where job_id = 1",
)
RETRY_FROM_UNDONE = Call(
    "retry from the undone step",
    "select fencepost.workflow_retry_from(1, 'reserve', 'anna')",
    MISMATCH,
    {"done": "pending"},
)
FINISH_LAST_UNDO = Call("finish the undo", "select fencepost.job_finish(2, 1, 'b')", "done")
BURY_RUNNING = Call("bury", "select fencepost.job_bury(1, 1, 'a', 'no')", "dead", {"dead": "dead 1 by a"})
FAIL_RUNNING = Call(
    "fail", "select fencepost.job_retry(1, 1, 'a', 'no', '0')", "pending", {"pending": "pending 1"}
)

DUPLICATE = "refused: duplicate"
IN_PARTS = Second("not_running", "in_flight")
RENEWED = Second("renewed", "renewed")
DEAD_CHILD = Second("dead")
BURY_CHILD = Call("bury the child", "select fencepost.job_bury(2, 1, 'b', 'no')", "dead")
# The same where the state shows something else.
SLEEP_WORKFLOW, RESTART_WORKFLOW, FINISH_WORKFLOW, RENEW_WORKFLOW = (
    Call(call.name, call.sql, call.alone) for call in (SLEEP, RESTART, FINISH_JOB, RENEW)
)
PASSES = Second("done", "done")
GONE = Second(NOT_RUNNING)
DONE = Second("done")
# A late call holds the row for a moment, and the reclaim passes it over.
PASSED_OVER = ((LATE, "nothing"),)

PAIRS = (
    # Steps.
    Pair(
        "one step twice",
        RECORDED,
        STEP,
        STEP,
        Second("refused: duplicate"),
        Second("refused: duplicate"),
    ),
    Pair("one step with other arguments", RECORDED, STEP, STEP_OTHERWISE, Second(MISMATCH), Second(MISMATCH)),
    Pair("two steps pass each other", RUNNING, STEP_Y, STEPS_MANY, PASSES, Second("recorded", "recorded")),
    Pair("a renewal passes a step", RUNNING, STEP_Y, RENEW, PASSES, Second("renewed", "renewed")),
    Pair(
        "a step meets a cancel",
        RUNNING,
        STEP_Y,
        CANCEL,
        Second(CANCELLED, "done"),
        Second("requested", "requested"),
    ),
    Pair("a step meets a release", RUNNING, STEP_Y, RELEASE, GONE, Second("pending")),
    Pair("a step meets a finish", RUNNING, STEP_Y, FINISH, Second(FINISHED), DONE),
    Pair("a step meets a sleep", RUNNING, STEP_Y, SLEEP, GONE, Second("asleep")),
    Pair("a step meets a restart", RUNNING, STEP_Y, RESTART, GONE, DONE),
    Pair(
        "a late step meets a reclaim",
        LOST,
        STEP_Y.answering(LATE),
        RECLAIM,
        GONE,
        Second("pending"),
        overlapping=PASSED_OVER,
    ),
    Pair(
        "a late step meets a takeover",
        LOST,
        STEP_Y.answering(LATE),
        CLAIM_B.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, NOT_OWNER),),
    ),
    Pair(
        "a late step meets a takeover by its own owner",
        LOST,
        STEP_Y.answering(LATE),
        CLAIM_A.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, LATE),),
    ),
    # Steps that are recorded with their statements: as one step.
    Pair("one written step twice", RECORDED, WRITTEN, WRITTEN, Second(DUPLICATE), Second(DUPLICATE)),
    Pair(
        "one written step with other arguments",
        RECORDED,
        WRITTEN,
        WRITTEN_OTHERWISE,
        Second(MISMATCH),
        Second(MISMATCH),
    ),
    Pair(
        "one written step and one without writes",
        RECORDED,
        WRITTEN,
        STEP,
        Second(DUPLICATE),
        Second(DUPLICATE),
    ),
    Pair("a renewal passes a written step", RUNNING, WRITTEN_Y, RENEW, PASSES, RENEWED),
    Pair(
        "a written step meets a cancel",
        RUNNING,
        WRITTEN_Y,
        CANCEL,
        Second(CANCELLED, "done"),
        Second("requested", "requested"),
    ),
    Pair("a written step meets a release", RUNNING, WRITTEN_Y, RELEASE, GONE, Second("pending")),
    Pair("a written step meets a finish", RUNNING, WRITTEN_Y, FINISH, Second(FINISHED), DONE),
    Pair("a written step meets a sleep", RUNNING, WRITTEN_Y, SLEEP, GONE, Second("asleep")),
    Pair("a written step meets a restart", RUNNING, WRITTEN_Y, RESTART, GONE, DONE),
    Pair("a written step meets an await", RUNNING, WRITTEN_Y, AWAIT, GONE, Second("parked")),
    Pair("a written step meets a burial", RUNNING, WRITTEN_Y, BURY_RUNNING, Second(FINISHED), Second("dead")),
    Pair("a written step meets a failure", RUNNING, WRITTEN_Y, FAIL_RUNNING, GONE, Second("pending")),
    Pair(
        "a late written step meets a reclaim",
        LOST,
        WRITTEN_Y.answering(LATE),
        RECLAIM,
        GONE,
        Second("pending"),
        overlapping=PASSED_OVER,
    ),
    Pair(
        "a late written step meets a takeover by its own owner",
        LOST,
        WRITTEN_Y.answering(LATE),
        CLAIM_A.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, LATE),),
    ),
    # Steps of many: a row that another holds is not waited for.
    Pair(
        "steps of many meet a release",
        RUNNING,
        STEPS_MANY,
        RELEASE,
        Second("not_running", "in_flight"),
        Second("pending"),
    ),
    Pair(
        "steps of many meet a cancel",
        RUNNING,
        STEPS_MANY,
        CANCEL,
        Second("cancelled", "recorded"),
        Second("requested", "requested"),
    ),
    Pair(
        "late steps of many meet a takeover by their own owner",
        LOST,
        STEPS_MANY.answering("lease_expired"),
        CLAIM_A.answering("attempt 2"),
        Second("stale_attempt", "lease_expired"),
        Second("attempt 2", "attempt 2"),
    ),
    Pair(
        "a renewal passes steps of many",
        RUNNING,
        STEPS_MANY,
        RENEW,
        Second("recorded", "recorded"),
        Second("renewed", "renewed"),
    ),
    # What parks it.
    Pair("two sleeps", RUNNING, SLEEP, SLEEP, GONE, GONE),
    Pair("a sleep meets a cancel", RUNNING, SLEEP, CANCEL, Second(CANCELLED), Second("cancelled")),
    Pair("a sleep meets a finish", RUNNING, SLEEP, FINISH, Second(FINISHED), GONE),
    Pair("a sleep meets a release", RUNNING, SLEEP, RELEASE, GONE, GONE),
    Pair(
        "a sleep meets a renewal",
        RUNNING,
        SLEEP,
        RENEW,
        Second("asleep"),
        Second(NOT_RUNNING, IN_FLIGHT),
    ),
    Pair(
        "a late sleep meets a reclaim",
        LOST,
        SLEEP.answering(LATE),
        RECLAIM,
        GONE,
        Second("pending"),
        overlapping=PASSED_OVER,
    ),
    Pair("a restart meets a cancel", RUNNING, RESTART, CANCEL, Second(CANCELLED), Second("cancelled")),
    Pair("a restart meets a sleep", RUNNING, RESTART, SLEEP, GONE, GONE),
    # Events.
    Pair("an await meets an emission", WAITING_FOR_E, LISTEN, EMIT, Second("emitted"), Second("first")),
    Pair("an await meets a cancel", RUNNING, AWAIT, CANCEL, Second(CANCELLED), Second("cancelled")),
    Pair("an await meets a sleep", RUNNING, AWAIT, SLEEP, GONE, GONE),
    Pair(
        "two emissions",
        Given((), "", EMITTED),
        Call(EMIT.name, EMIT.sql, EMIT.alone, {"first": "1"}),
        Call(EMIT_OTHERWISE.name, EMIT_OTHERWISE.sql, EMIT_OTHERWISE.alone, {"first": "2"}),
        Second("again"),
        Second("again"),
    ),
    Pair(
        "an await meets the pruning of its event",
        OLD_EVENT,
        LISTEN.answering("emitted"),
        PRUNE_EVENT,
        Second("parked", "emitted"),
        Second("1", "1"),
    ),
    # Children.
    Pair("a join meets the end of the last child", PARENT, JOIN, FINISH_CHILD, Second("ended"), DONE),
    Pair("a spawn meets a release", SPAWNING, SPAWN, RELEASE_WORKFLOW, GONE, Second("pending")),
    Pair(
        "a spawn meets a cancel",
        SPAWNING,
        SPAWN,
        CANCEL_WORKFLOW,
        Second(CANCELLED, "spawned"),
        Second("requested", "requested"),
    ),
    # Ends: the undo is there once, whichever call ends it.
    Pair("two burials", WITH_UNDO, BURY, BURY, Second(FINISHED), Second(FINISHED)),
    Pair("a burial meets a failure", WITH_UNDO, BURY, FAIL, Second(FINISHED), Second(FINISHED)),
    Pair("a burial meets a finish", WITH_UNDO, BURY, FINISH_WELL, Second(FINISHED), Second(FINISHED)),
    Pair(
        "two reclaims of the last try",
        WITH_UNDO_LOST,
        RECLAIM_DEAD,
        RECLAIM_DEAD,
        Second("nothing", "nothing"),
        Second("nothing", "nothing"),
    ),
    Pair(
        "two kinds of reclaim of the last try",
        WITH_UNDO_LOST,
        RECLAIM_DEAD,
        RECLAIM_ONE_DEAD,
        Second("nothing", "nothing"),
        Second(FINISHED),
    ),
    Pair(
        "a claim of a sleeper meets a cancel",
        ASLEEP_WITH_UNDO,
        CLAIM_ASLEEP,
        CANCEL_ASLEEP,
        Second(CANCELLED),
        Second("requested"),
    ),
    Pair(
        "two cancels of a sleeper",
        ASLEEP_WITH_UNDO,
        CANCEL_ASLEEP,
        CANCEL_ASLEEP,
        Second(CANCELLED),
        Second(CANCELLED),
    ),
    Pair("two retries from a step", DEAD, RETRY_FROM, RETRY_FROM, Second(MISMATCH), Second(MISMATCH)),
    Pair("a retry from a step meets a replay", DEAD, RETRY_FROM, REPLAY, Second(MISMATCH), Second(MISMATCH)),
    # The rest of the pairs of what the owner of a running workflow does.
    Pair("a step meets an await", RUNNING, STEP_Y, AWAIT, GONE, Second("parked")),
    Pair("a step meets a burial", RUNNING, STEP_Y, BURY_RUNNING, Second(FINISHED), Second("dead")),
    Pair("a step meets a failure", RUNNING, STEP_Y, FAIL_RUNNING, GONE, Second("pending")),
    Pair("steps of many meet a sleep", RUNNING, STEPS_MANY, SLEEP, IN_PARTS, Second("asleep")),
    Pair("steps of many meet an await", RUNNING, STEPS_MANY, AWAIT, IN_PARTS, Second("parked")),
    Pair("steps of many meet a restart", RUNNING, STEPS_MANY, RESTART, IN_PARTS, DONE),
    Pair(
        "steps of many meet a finish",
        RUNNING,
        STEPS_MANY,
        FINISH,
        Second("already_finished", "in_flight"),
        DONE,
    ),
    Pair("two awaits", RUNNING, AWAIT, AWAIT, GONE, GONE),
    Pair("an await meets a finish", RUNNING, AWAIT, FINISH, Second(FINISHED), GONE),
    Pair("an await meets a release", RUNNING, AWAIT, RELEASE, GONE, GONE),
    Pair("an await meets a restart", RUNNING, AWAIT, RESTART, GONE, GONE),
    Pair("an await meets a burial", RUNNING, AWAIT, BURY_RUNNING, Second(FINISHED), GONE),
    Pair(
        "an await meets a renewal",
        RUNNING,
        AWAIT,
        RENEW,
        Second("parked"),
        Second(NOT_RUNNING, IN_FLIGHT),
    ),
    Pair("two restarts", RUNNING, RESTART, RESTART, GONE, GONE),
    Pair("a restart meets a finish", RUNNING, RESTART, FINISH, Second(FINISHED), GONE),
    Pair("a restart meets a release", RUNNING, RESTART, RELEASE, GONE, GONE),
    Pair("a restart meets a burial", RUNNING, RESTART, BURY_RUNNING, Second(FINISHED), GONE),
    Pair("a restart meets a renewal", RUNNING, RESTART, RENEW, DONE, Second(NOT_RUNNING, IN_FLIGHT)),
    Pair("a sleep meets a burial", RUNNING, SLEEP, BURY_RUNNING, Second(FINISHED), GONE),
    Pair(
        "a late await meets a reclaim",
        LOST,
        AWAIT.answering(LATE),
        RECLAIM,
        GONE,
        Second("pending"),
        overlapping=PASSED_OVER,
    ),
    Pair(
        "a late await meets a takeover",
        LOST,
        AWAIT.answering(LATE),
        CLAIM_B.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, NOT_OWNER),),
    ),
    Pair(
        "a late restart meets a reclaim",
        LOST,
        RESTART.answering(LATE),
        RECLAIM,
        GONE,
        Second("pending"),
        overlapping=PASSED_OVER,
    ),
    Pair(
        "a late restart meets a takeover",
        LOST,
        RESTART.answering(LATE),
        CLAIM_B.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, NOT_OWNER),),
    ),
    Pair(
        "a late sleep meets a takeover",
        LOST,
        SLEEP.answering(LATE),
        CLAIM_B.answering("attempt 2"),
        Second(STALE),
        Second("attempt 2"),
        overlapping=((LATE, NOT_OWNER),),
    ),
    # Events and a workflow that is parked.
    Pair("an emission meets a claim", PARKED_ON_E, EMIT, CLAIM_PARKED, Second("first"), Second("attempt 2")),
    Pair(
        "an emission meets a cancel", PARKED_ON_E, EMIT, CANCEL_PARKED, Second("first"), Second("cancelled")
    ),
    Pair(
        "an emission meets the pruning of its event",
        OLD_EVENT,
        EMIT_AGAIN,
        PRUNE_EVENT,
        Second("first"),
        Second("1", "1"),
    ),
    Pair("two prunings", OLD_EVENT, PRUNE_EVENT, PRUNE_EVENT, Second("0", "0"), Second("0", "0")),
    # Children.
    Pair("one spawn twice", SPAWNING, SPAWN, SPAWN, Second(DUPLICATE), Second(DUPLICATE)),
    Pair("a spawn meets a sleep", RUNNING_PARENT, SPAWN_WORKFLOW, SLEEP, GONE, Second("asleep")),
    Pair("a spawn meets a restart", RUNNING_PARENT, SPAWN_WORKFLOW, RESTART, GONE, DONE),
    Pair("a spawn meets an await", RUNNING_PARENT, SPAWN_WORKFLOW, AWAIT, GONE, Second("parked")),
    Pair("a spawn meets a finish", SPAWNING, SPAWN, FINISH_WORKFLOW, Second(FINISHED), DONE),
    Pair("a renewal passes a spawn", SPAWNING, SPAWN, RENEW_WORKFLOW, Second("spawned", "spawned"), RENEWED),
    Pair("two joins", PARENT, JOIN, JOIN, GONE, GONE),
    Pair("a join meets a cancel", PARENT, JOIN, CANCEL_WORKFLOW, Second(CANCELLED), Second("cancelled")),
    Pair("a join meets a release", PARENT, JOIN, RELEASE_WORKFLOW, GONE, GONE),
    Pair("a join meets a finish", PARENT, JOIN, FINISH_WORKFLOW, Second(FINISHED), GONE),
    Pair("a join meets a sleep", PARENT, JOIN, SLEEP_WORKFLOW, GONE, GONE),
    Pair("a join meets a restart", PARENT, JOIN, RESTART_WORKFLOW, GONE, GONE),
    Pair("a join meets the burial of the last child", PARENT, JOIN, BURY_CHILD, Second("ended"), DEAD_CHILD),
    # Undo.
    Pair("two ends of an undo", UNDOING, FINISH_UNDO, BURY_UNDO, Second(FINISHED), Second(FINISHED)),
    Pair(
        "the end of an undo meets a cancel of the next",
        UNDOING_WELL,
        Call(FINISH_UNDO.name, FINISH_UNDO.sql, FINISH_UNDO.alone),
        CANCEL_NEXT,
        DONE,
        Second("cancelled"),
    ),
    Pair(
        "a retry from an undone step meets the end of its undo",
        LAST_UNDO,
        RETRY_FROM_UNDONE,
        FINISH_LAST_UNDO,
        Second("done", MISMATCH),
        DONE,
    ),
)

STORY_STATE = """
select state || ' ' || attempt || coalesce(' by ' || owner, '') from fencepost.jobs
union all select 'step ' || name from fencepost.workflow_steps
union all select 'written by ' || writer from isolation.effect
"""
FENCE = Step("fence", "select fencepost.job_fence(1, 1, 'a')")
WRITE = Step("write", "insert into isolation.effect values ('a') returning 'written'")
RECORD = Step("step", "select fencepost.step_commit(1, 1, 'a', 'x', 'one')")
TAKE = Step("take", "select state from fencepost.job_reclaim(10)")
TIME = Session("time", (Step("later", LATER),), begin=None)


def the_write_is_there_with_the_step(run: Run) -> Iterator[str]:
    """A step that has passed its fence keeps takers out until it ends; its writes and its record are one."""
    fenced = run["a.fence"].answer == "done"
    shielded = fenced and run.between("b.take", "a.fence", "a")
    late = run["time.later"].ended < run["b.take"].ended
    taken = late and not shielded
    yield from run.expect("b.take", "pending" if taken else "nothing", waits=False)
    if not run.before("time.later", "a.fence"):
        yield from run.expect("a.fence", "done", waits=False)
    elif taken and run["b.take"].started < run["a.fence"].started:
        yield from run.expect("a.fence", NOT_RUNNING, waits=run.open_at("b", "a.fence"))
    else:
        yield from run.expect("a.fence", LATE, waits=False)
    yield from run.expect("a.write", "written" if fenced else "aborted")
    yield from run.expect("a.step", "done" if fenced else "aborted", waits=False)
    kept = ("step x", "written by a") if fenced and run.committed("a") else ()
    yield from run.expect_state("pending 1" if taken else "running 1 by a", *kept)


STORIES = tuple(
    Scenario(
        f"a fenced step and a reclaim ({end.name})",
        (START, CLAIMED),
        (Session("a", (FENCE, WRITE, RECORD, end)), TIME, Session("b", (TAKE, COMMIT))),
        STORY_STATE,
        the_write_is_there_with_the_step,
    )
    for end in (COMMIT, ROLLBACK)
)
