"""Two calls on one job whose owner has let his lease run out."""

from tests.isolation.job_calls import (
    CANCEL,
    CLAIM_A,
    CLAIM_B,
    CLAIM_C,
    FENCE,
    FINISH,
    LATE,
    LOST,
    NOT_OWNER,
    NOT_RUNNING,
    PROGRESS,
    RECLAIM,
    RECLAIM_ONE,
    RELEASE,
    RENEW,
    STALE,
)
from tests.isolation.pairs import Pair, Second

SKIPPED = Second(committed="nothing", while_open="nothing")
TAKE_OVER_A = CLAIM_A.answering("attempt 2")
TAKE_OVER_B = CLAIM_B.answering("attempt 2")
TAKE_OVER_C = CLAIM_C.answering("attempt 2")

LATE_FENCE = FENCE.answering(LATE)
LATE_FINISH = FINISH.answering(LATE)
LATE_PROGRESS = PROGRESS.answering(LATE)
LATE_RELEASE = RELEASE.answering(LATE)
LATE_RENEW = RENEW.answering(LATE)

# A taker passes over a row that is locked; only reclaim_one waits, because somebody evicts for it.
PAIRS = (
    Pair("two reclaims", LOST, RECLAIM, RECLAIM, SKIPPED, SKIPPED),
    Pair("a reclaim meets a reclaim of one", LOST, RECLAIM, RECLAIM_ONE, SKIPPED, Second(NOT_RUNNING)),
    Pair(
        "two takeovers",
        LOST,
        TAKE_OVER_B,
        TAKE_OVER_C,
        Second(NOT_OWNER, NOT_OWNER),
        Second(NOT_OWNER, NOT_OWNER),
    ),
    Pair("a takeover meets a reclaim", LOST, TAKE_OVER_B, RECLAIM, Second("attempt 2", NOT_OWNER), SKIPPED),
    Pair(
        "a late finish meets a reclaim",
        LOST,
        LATE_FINISH,
        RECLAIM,
        Second(NOT_RUNNING, LATE),
        Second("pending"),
    ),
    Pair(
        "a late finish meets a takeover",
        LOST,
        LATE_FINISH,
        TAKE_OVER_B,
        Second(STALE, LATE),
        Second("attempt 2"),
    ),
    # The same process comes back under the same name: only the attempt tells its two lives apart.
    Pair(
        "a late finish meets a takeover by its own owner",
        LOST,
        LATE_FINISH,
        TAKE_OVER_A,
        Second(STALE, LATE),
        Second("attempt 2"),
    ),
    Pair(
        "a late renewal meets a takeover by its own owner",
        LOST,
        LATE_RENEW,
        TAKE_OVER_A,
        Second(STALE, LATE),
        Second("attempt 2"),
    ),
    Pair(
        "a late fence meets a takeover by its own owner",
        LOST,
        LATE_FENCE,
        TAKE_OVER_A,
        Second(STALE),
        Second("attempt 2"),
    ),
    Pair(
        "a late release meets a takeover by its own owner",
        LOST,
        LATE_RELEASE,
        TAKE_OVER_A,
        Second(STALE),
        Second("attempt 2"),
    ),
    Pair(
        "a late progress meets a takeover by its own owner",
        LOST,
        LATE_PROGRESS,
        TAKE_OVER_A,
        Second(STALE, LATE),
        Second("attempt 2"),
    ),
    Pair("a late fence meets a reclaim", LOST, LATE_FENCE, RECLAIM, Second(NOT_RUNNING), Second("pending")),
    Pair("a late fence meets a takeover", LOST, LATE_FENCE, TAKE_OVER_B, Second(STALE), Second("attempt 2")),
    Pair(
        "a late renewal meets a reclaim",
        LOST,
        LATE_RENEW,
        RECLAIM,
        Second(NOT_RUNNING, LATE),
        Second("pending"),
    ),
    Pair(
        "a late renewal meets a takeover",
        LOST,
        LATE_RENEW,
        TAKE_OVER_B,
        Second(STALE, LATE),
        Second("attempt 2"),
    ),
    Pair(
        "a late release meets a reclaim", LOST, LATE_RELEASE, RECLAIM, Second(NOT_RUNNING), Second("pending")
    ),
    Pair(
        "a late release meets a takeover", LOST, LATE_RELEASE, TAKE_OVER_B, Second(STALE), Second("attempt 2")
    ),
    Pair(
        "a cancel meets a reclaim", LOST, CANCEL, RECLAIM, Second("cancelled"), Second("cancelled", "nothing")
    ),
    Pair(
        "a cancel meets a reclaim of one", LOST, CANCEL, RECLAIM_ONE, Second("cancelled"), Second("cancelled")
    ),
)
