"""Two calls on the checkpoints of one resource, by its owner, or by the owner and a takeover."""

from tests.isolation.pairs import Call, Given, Pair, Second

STATE = """
select number || ' ' || status || coalesce(' at ' || frontier::text, '')
from fencepost.checkpoint order by number
"""

STATE_OF_ONE = """
select number || ' ' || status || coalesce(' at ' || frontier::text, '')
from fencepost.checkpoint where number = 1
"""

HOLD = "select fencepost.lease_acquire('r', 'a', '1 hour')"
BEGIN_ONE = "select fencepost.checkpoint_begin('r', 1)"
STORE_ONE = "select fencepost.checkpoint_store('r', 1, 1, null, '10', 'x')"
EXPIRE = "select isolation.at(3601)"
NONE = Given((HOLD,), "", STATE)
BEGUN = Given((HOLD, BEGIN_ONE), "1 begun", STATE)
ONE_BEGUN = Given((HOLD, BEGIN_ONE), "1 begun", STATE_OF_ONE)
STORED = Given((HOLD, BEGIN_ONE, STORE_ONE), "1 stored at 10", STATE)
TWO_BEGUN = Given((HOLD, BEGIN_ONE, BEGIN_ONE), "1 begun; 2 begun", STATE)
LATE_NONE = Given((*NONE.statements, EXPIRE), "", STATE)
LATE_BEGUN = Given((*BEGUN.statements, EXPIRE), "1 begun", STATE)
LATE_STORED = Given((*STORED.statements, EXPIRE), "1 stored at 10", STATE)

BEGIN = Call("begin", BEGIN_ONE, "1", {"1": "1 begun", "2": "1 begun; 2 begun"})
BEGIN_TWO = Call("begin", BEGIN_ONE, "2")
STORE = Call("store", STORE_ONE, "done", {"done": "1 stored at 10"})
STORE_FIRST = Call("store 1", STORE_ONE, "done", {"done": "1 stored at 10; 2 begun"})
STORE_SECOND = Call(
    "store 2",
    "select fencepost.checkpoint_store('r', 1, 2, null, '20', 'y')",
    "done",
    {"done": "1 begun; 2 stored at 20"},
)
COMMIT = Call(
    "commit", "select fencepost.checkpoint_commit('r', 1, 1)", "done", {"done": "1 committed at 10"}
)
ABORT = Call("abort", "select fencepost.checkpoint_abort('r', 1, 1)", "done", {"done": "1 aborted"})
RESTORE = Call(
    "restore",
    "select number || ' ' || status from fencepost.checkpoint_restore('r', 1)",
    "1 begun",
)
ACQUIRE = Call("acquire by b", "select token from fencepost.lease_acquire('r', 'b', '1 hour')", "2")

FINISHED = Second(committed="refused: already_finished")
MISMATCH = Second(committed="refused: mismatch")
TAKEN_OVER = Second(committed="refused: not_owner")
LATE = "refused: lease_expired"

PAIRS = (
    Pair("two begin", NONE, BEGIN, BEGIN, Second("2"), Second("2")),
    Pair("two stores of one checkpoint", BEGUN, STORE, STORE, FINISHED, FINISHED),
    Pair("two stores from one frontier", TWO_BEGUN, STORE_FIRST, STORE_SECOND, MISMATCH, MISMATCH),
    Pair("a store meets a begin", ONE_BEGUN, STORE, BEGIN_TWO, Second("done"), Second("2")),
    Pair("a store meets an abort", BEGUN, STORE, ABORT, FINISHED, FINISHED),
    Pair(
        "a store meets a commit",
        BEGUN,
        STORE,
        COMMIT.answering("refused: mismatch"),
        Second("done"),
        Second("done"),
    ),
    Pair(
        "a store meets a restore",
        BEGUN,
        STORE,
        RESTORE,
        Second("done", "done"),
        Second("1 stored", "1 begun"),
    ),
    Pair("two commits", STORED, COMMIT, COMMIT, Second("done"), Second("done")),
    Pair(
        "a commit meets an abort",
        STORED,
        COMMIT,
        ABORT.answering("refused: already_finished"),
        Second("done"),
        FINISHED,
    ),
    Pair("two aborts", BEGUN, ABORT, ABORT, Second("done"), Second("done")),
    Pair(
        "a commit meets a restore",
        STORED,
        COMMIT,
        RESTORE.answering("1 stored"),
        Second("done", "done"),
        Second("1 committed", "1 stored"),
    ),
    Pair("a late begin meets a takeover", LATE_NONE, BEGIN.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")),
    Pair(
        "a late store meets a takeover", LATE_BEGUN, STORE.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")
    ),
    Pair(
        "a late abort meets a takeover", LATE_BEGUN, ABORT.answering(LATE), ACQUIRE, TAKEN_OVER, Second("2")
    ),
    Pair(
        "a late commit meets a takeover",
        LATE_STORED,
        COMMIT.answering(LATE),
        ACQUIRE,
        TAKEN_OVER,
        Second("2"),
    ),
    Pair(
        "a late restore meets a takeover",
        LATE_STORED,
        RESTORE.answering(LATE),
        ACQUIRE,
        TAKEN_OVER,
        Second("2"),
    ),
)
