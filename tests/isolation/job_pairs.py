"""Two calls on one job that no worker holds: it waits, or it is dead."""

from tests.isolation.job_calls import (
    CANCELLED,
    CLAIM_A,
    CLAIM_B,
    CLAIM_NEXT_A,
    CLAIM_NEXT_B,
    DEAD,
    DISCARD,
    DISPATCH,
    DISPATCHED,
    IN_FLIGHT,
    MISMATCH,
    NOT_OWNER,
    PRUNE,
    PRUNE_HISTORY,
    REPLAY,
    WAITING,
)
from tests.isolation.pairs import Call, Given, Pair, Second

LOSES = Second(committed=NOT_OWNER)
SKIPPED = Second(committed="nothing", while_open="nothing")

CANCEL_WAITING = Call(
    "cancel",
    "select fencepost.job_cancel(1, 'anna')",
    "cancelled",
    {"requested": "running 1 by b, asked to stop", "cancelled": "cancelled 0"},
)
CANCEL_PENDING = Call(
    "cancel what is pending",
    "select fencepost.job_cancel(1, 'anna', 'pending')",
    "cancelled",
    CANCEL_WAITING.leaves,
)

WHILE_WAITING = (
    Pair("two claims", WAITING, CLAIM_A, CLAIM_B, LOSES, LOSES),
    Pair("two claims by one owner", WAITING, CLAIM_A, CLAIM_A, Second(IN_FLIGHT), Second(IN_FLIGHT)),
    Pair("two claims of the next", WAITING, CLAIM_NEXT_A, CLAIM_NEXT_B, SKIPPED, SKIPPED),
    Pair("a claim meets a claim of the next", WAITING, CLAIM_A, CLAIM_NEXT_B, LOSES, SKIPPED),
    Pair("a claim meets a dispatch", WAITING, CLAIM_A, DISPATCH, Second("attempt 1"), SKIPPED),
    Pair("two dispatches", WAITING, DISPATCH, DISPATCH, Second("1", "nothing"), Second("1", "nothing")),
    Pair(
        "a claim meets the record of a dispatch",
        WAITING,
        CLAIM_A,
        DISPATCHED,
        Second("attempt 1"),
        Second("0"),
    ),
    Pair("two records of a dispatch", WAITING, DISPATCHED, DISPATCHED, Second("0"), Second("0")),
    Pair("a claim meets a cancel", WAITING, CLAIM_B, CANCEL_WAITING, Second(CANCELLED), Second("requested")),
    Pair(
        "a claim meets a cancel of what is pending",
        WAITING,
        CLAIM_B,
        CANCEL_PENDING,
        Second(CANCELLED),
        Second(MISMATCH),
    ),
    Pair("a dispatch meets a cancel", WAITING, DISPATCH, CANCEL_WAITING, SKIPPED, Second("cancelled")),
    Pair(
        "the record of a dispatch meets a cancel of what is pending",
        WAITING,
        DISPATCHED,
        CANCEL_PENDING,
        a_second=Second("0"),
        b_second=Second(MISMATCH),
    ),
    Pair(
        "two cancels of a waiting job",
        WAITING,
        CANCEL_WAITING,
        CANCEL_WAITING,
        Second(CANCELLED),
        Second(CANCELLED),
    ),
)

# A dead job keeps its history, however old; what is kept for a job that is gone would stay for ever.
LONG_DEAD = Given(
    (*DEAD.statements, "select isolation.at(60)"),
    "dead 1 by a",
    """
    select state || ' ' || attempt || coalesce(' by ' || owner, '') from fencepost.jobs
    union all
    select 'dead without its history' from fencepost.jobs j where j.state = 'dead'
      and not exists (select from fencepost.event e where e.noun = 'job' and e.subject = j.job_id::text)
    union all
    select 'history is kept for nobody' from fencepost.event e where e.noun = 'job' and e.spared
      and not exists (select from fencepost.jobs j where j.job_id::text = e.subject)
    """,
)

WHEN_DEAD = (
    Pair("two replays", DEAD, REPLAY, REPLAY, Second(MISMATCH), Second(MISMATCH)),
    Pair("a replay meets a discard", DEAD, REPLAY, DISCARD, Second(CANCELLED), Second(MISMATCH)),
    Pair("two discards", DEAD, DISCARD, DISCARD, Second(CANCELLED), Second(CANCELLED)),
    Pair(
        "a replay meets the pruning",
        LONG_DEAD,
        REPLAY,
        PRUNE,
        a_second=Second("refused: not_found"),
        b_second=Second("0", while_open="0"),
    ),
    Pair(
        "a replay meets the pruning of history",
        LONG_DEAD,
        REPLAY,
        PRUNE_HISTORY,
        a_second=Second("done"),
        b_second=Second("1"),
    ),
    Pair(
        "the pruning of jobs meets the pruning of history",
        LONG_DEAD,
        PRUNE,
        PRUNE_HISTORY,
        a_second=Second("1", while_open="0"),
        b_second=Second("1"),
    ),
)

PAIRS = (*WHILE_WAITING, *WHEN_DEAD)
