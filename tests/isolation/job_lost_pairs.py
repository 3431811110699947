"""Two calls on one job whose owner has let its lease run out."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.isolation.job_calls import (
    CANCEL,
    CANCEL_RUNNING,
    CANCELLED,
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
from tests.isolation.pairs import Call, Pair, Second

TAKE_OVER_B = CLAIM_B.answering("attempt 2")
TAKE_OVER_C = CLAIM_C.answering("attempt 2")

# Whether any worker was asked to stop.
ASKED = """
select state || case when cancel_requested_at is not null then ', asked to stop' else '' end
from fencepost.jobs
"""
SKIPPED = Second(committed="nothing", while_open="nothing")
NOT_MINE = Second(committed=NOT_OWNER, while_open=NOT_OWNER)
# Put back between the claim's look at the waiting jobs and its look at the running ones.
PUT_BACK_MEANWHILE = ((NOT_RUNNING, "pending"),)


@dataclass(frozen=True)
class Taker:
    """The call that takes the job away: what it answers in vain, and what the old owner is told
    afterwards."""

    name: str
    call: Call
    in_vain: str
    told: str


TAKERS = (
    Taker("a reclaim", RECLAIM, "nothing", NOT_RUNNING),
    Taker("a takeover", TAKE_OVER_B, NOT_OWNER, STALE),
    # The same process comes back under the same name: only the attempt tells its two lives apart.
    Taker("a takeover by its own owner", CLAIM_A.answering("attempt 2"), LATE, STALE),
)


def _late(call: Call, *, locks: bool) -> Iterator[Pair]:
    """A late call against every taker.

    If it locks the job before it looks at the clock, it waits for a taker who was faster, and a taker who
    comes at that very moment passes the job over until the next time.
    """
    for taker in TAKERS:
        yield Pair(
            f"a late {call.name} meets {taker.name}",
            LOST,
            call.answering(LATE),
            taker.call,
            a_second=Second(committed=taker.told, while_open=None if locks else LATE),
            b_second=Second(committed=taker.call.alone),
            overlapping=((LATE, taker.in_vain),),
        )


# A taker passes over a row that is locked; only reclaim_one waits, because its caller evicts for it.
PAIRS = (
    Pair("two reclaims", LOST, RECLAIM, RECLAIM, SKIPPED, SKIPPED),
    Pair("a reclaim meets a reclaim of one", LOST, RECLAIM, RECLAIM_ONE, SKIPPED, Second(NOT_RUNNING)),
    Pair("two takeovers", LOST, TAKE_OVER_B, TAKE_OVER_C, NOT_MINE, NOT_MINE),
    Pair(
        "a takeover meets a reclaim",
        LOST,
        TAKE_OVER_B,
        RECLAIM,
        a_second=Second("attempt 2", while_open=NOT_OWNER),
        b_second=SKIPPED,
        overlapping=PUT_BACK_MEANWHILE,
    ),
    *_late(FENCE, locks=True),
    *_late(RELEASE, locks=True),
    *_late(FINISH, locks=False),
    *_late(RENEW, locks=False),
    *_late(PROGRESS, locks=False),
    Pair(
        "a cancel meets a reclaim", LOST, CANCEL, RECLAIM, Second("cancelled"), Second("cancelled", "nothing")
    ),
    Pair(
        "a cancel meets a reclaim of one", LOST, CANCEL, RECLAIM_ONE, Second("cancelled"), Second("cancelled")
    ),
    # A takeover leaves another row: a call that waited for the old one looks again.
    *(
        Pair(
            f"{title} meets a takeover",
            replace(LOST, left="running", state=ASKED),
            replace(cancel, leaves={"requested": "running, asked to stop"}),
            replace(TAKE_OVER_B, leaves={}),
            Second("requested"),
            Second(CANCELLED, while_open=NOT_OWNER),
        )
        for title, cancel in (("a cancel", CANCEL), ("a cancel of what runs", CANCEL_RUNNING))
    ),
)
