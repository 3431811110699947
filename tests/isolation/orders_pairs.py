"""Two calls on one order. Takes pass over what is locked, and take turns at the broker's row; a call that
decides waits, and is told what the other has made of the order."""

from tests.isolation.orders_calls import (
    ACCEPT,
    ACCEPT_OTHER,
    ASK_PARKED,
    ASK_Q,
    ASK_R,
    ASKED,
    ASKED_FOR_FILLS,
    ASKED_FOR_FILLS_LONG_AGO,
    ASKED_LONG_AGO,
    CANCEL,
    CREDENTIALS,
    DEAD,
    DEAD_LONG_AGO,
    DOUBT,
    DROP_QUEUED,
    EXPIRE_DUE,
    EXPIRE_TAKES,
    FAIL,
    FIND,
    FOLLOW,
    FOLLOWED,
    HALT,
    HALT_ACCOUNT,
    HALTED,
    HALTED_BY_ANSWER,
    HEAR,
    HEAR_PART,
    NOTHING,
    PARKED,
    PAUSED,
    PROBE,
    PRUNE,
    QUEUED,
    RECOVER,
    REFUSE_FIRST,
    REFUSE_SECOND,
    RENEW,
    RESEND_DEAD,
    RESEND_PARKED,
    RESUME,
    RESUME_ACCOUNT,
    RESUME_ANSWERED,
    SAY_QUEUED,
    SAY_SENT,
    SETTLE,
    SILENT,
    TAKE_AND_LOOK,
    TAKE_PAUSED,
    TAKE_V,
    TAKE_W,
    TAKEN,
    TOO_LATE,
    TWO_TAKEN,
    UNPARK_QUEUED,
    UNPARK_SENT,
    UNSURE,
)
from tests.isolation.orders_change_pairs import CHANGES
from tests.isolation.pairs import Pair, Second
from tests.isolation.triangles import Triangle

SKIPPED = Second("nothing", while_open="nothing")
FINISHED = Second("refused: already_finished")
IN_FLIGHT = Second("refused: in_flight")
MISMATCH = Second("refused: mismatch")
NONE_LEFT = Second("0")
# It waits for the broker's row first.
SKIPPED_LATER = Second("nothing")
TAKEN_AFTER = Second("2")

_ACCEPTED = (
    Pair(
        "an order and its repeat",
        NOTHING,
        ACCEPT,
        ACCEPT,
        Second("replay", while_open="in_flight"),
        Second("replay", while_open="in_flight"),
    ),
    Pair(
        "two orders under one key",
        NOTHING,
        ACCEPT,
        ACCEPT_OTHER,
        Second("mismatch", while_open="in_flight"),
        Second("mismatch", while_open="in_flight"),
    ),
    Pair(
        "a repeat passes a take",
        QUEUED,
        ACCEPT.answering("replay"),
        TAKE_V,
        Second("replay", while_open="replay"),
        Second("1", while_open="1"),
    ),
)
_QUEUED = (
    Pair("two takes", QUEUED, TAKE_V, TAKE_W, Second("nothing"), Second("nothing")),
    Pair("a take meets a cancel", QUEUED, TAKE_V, CANCEL, SKIPPED, IN_FLIGHT),
    Pair("a take meets a person who drops it", QUEUED, TAKE_V, DROP_QUEUED, SKIPPED, MISMATCH),
    Pair("a take meets the recovery", QUEUED, TAKE_V, RECOVER, SKIPPED, Second("1")),
    Pair("a take meets the kill switch", QUEUED, TAKE_V, HALT, Second("nothing"), Second("done")),
    Pair(
        "a take meets the kill switch of its account",
        QUEUED,
        TAKE_V,
        HALT_ACCOUNT,
        Second("nothing", while_open="1"),
        Second("done", while_open="done"),
    ),
    Pair(
        "a take of what is halted meets its release",
        HALTED,
        TAKE_V.answering("nothing"),
        RESUME_ACCOUNT,
        Second("1", while_open="nothing"),
        Second("done"),
    ),
    Pair("two cancels", QUEUED, CANCEL, CANCEL, FINISHED, FINISHED),
    Pair("a cancel meets a person who drops it", QUEUED, CANCEL, DROP_QUEUED, FINISHED, FINISHED),
    Pair("a cancel meets the recovery", QUEUED, CANCEL, RECOVER, IN_FLIGHT, NONE_LEFT),
    Pair("two recoveries", QUEUED, RECOVER, RECOVER, Second("1"), Second("1")),
    Pair(
        "a take meets the end of what is due",
        TOO_LATE,
        TAKE_AND_LOOK,
        EXPIRE_DUE,
        Second("dead", while_open="queued"),
        Second("1", while_open="nothing"),
    ),
    Pair("two end what is due", TOO_LATE, EXPIRE_DUE, EXPIRE_DUE, SKIPPED, SKIPPED),
    Pair("a cancel meets the end of what is due", TOO_LATE, CANCEL, EXPIRE_DUE, FINISHED, SKIPPED),
)
_TAKEN = (
    Pair("two settlements", TAKEN, SETTLE, SETTLE, Second("already_finished"), Second("already_finished")),
    Pair("a settlement meets a doubt", TAKEN, SETTLE, DOUBT, Second("not_owner"), Second("already_finished")),
    Pair(
        "a settlement meets a cancel",
        TAKEN,
        SETTLE,
        CANCEL.answering("refused: in_flight"),
        Second("sent"),
        FINISHED,
    ),
    Pair(
        "a doubt meets a cancel",
        TAKEN,
        DOUBT,
        CANCEL.answering("refused: in_flight"),
        Second("unknown"),
        IN_FLIGHT,
    ),
    Pair("a settlement meets the recovery", TAKEN, SETTLE, RECOVER, Second("stale_attempt"), NONE_LEFT),
    Pair("a renewal meets a settlement", TAKEN, RENEW, SETTLE, Second("not_found"), Second("sent")),
    Pair("a renewal meets the recovery", TAKEN, RENEW, RECOVER, Second("stale_attempt"), Second("1")),
    Pair(
        "a take passes a settlement",
        TAKEN,
        TAKE_V.answering("nothing"),
        SETTLE,
        SKIPPED,
        Second("sent", while_open="sent"),
    ),
    # A failure tells the broker's row, at which a take has its turn.
    Pair("a take meets a failure", TAKEN, TAKE_V.answering("nothing"), FAIL, Second("2"), Second("failed")),
    Pair("two silences are noticed", SILENT, EXPIRE_TAKES, EXPIRE_TAKES, SKIPPED, SKIPPED),
    Pair(
        "a late settlement meets the expiry", SILENT, SETTLE, EXPIRE_TAKES, Second("stale_attempt"), SKIPPED
    ),
    Pair("a late renewal meets the expiry", SILENT, RENEW, EXPIRE_TAKES, Second("stale_attempt"), SKIPPED),
    Pair("the expiry meets the recovery", SILENT, EXPIRE_TAKES, RECOVER, SKIPPED, Second("1")),
)
_UNKNOWN = (
    Pair("two questions", UNSURE, ASK_Q, ASK_R, Second("nothing"), Second("nothing")),
    Pair("a question meets a person who says sent", UNSURE, ASK_Q, SAY_SENT, SKIPPED, Second("done")),
    Pair(
        "a question meets the recovery",
        UNSURE,
        ASK_Q,
        RECOVER,
        Second("3", while_open="nothing"),
        Second("1"),
    ),
    Pair(
        "a question meets a cancel",
        UNSURE,
        ASK_Q,
        CANCEL.answering("refused: in_flight"),
        Second("2"),
        IN_FLIGHT,
    ),
    Pair(
        "an answer meets a person who says sent",
        ASKED,
        FIND,
        SAY_SENT,
        Second("already_finished"),
        FINISHED,
    ),
    Pair(
        "an answer meets a person who says again", ASKED, FIND, SAY_QUEUED, Second("stale_attempt"), FINISHED
    ),
    Pair("an answer meets the recovery", ASKED, FIND, RECOVER, Second("stale_attempt"), NONE_LEFT),
    # The answer ends a doubt about the broker: it writes the broker's row, at which a question has its turn.
    Pair(
        "a late answer meets the next question",
        ASKED_LONG_AGO,
        FIND,
        ASK_Q.answering("3"),
        Second("stale_attempt"),
        Second("nothing"),
    ),
    Pair("two persons decide", ASKED, SAY_SENT, SAY_QUEUED, MISMATCH, FINISHED),
)
_PARKED = (
    Pair("two questions about what is parked", PARKED, ASK_PARKED, ASK_PARKED, SKIPPED_LATER, SKIPPED_LATER),
    Pair(
        "a question about what is parked meets a person",
        PARKED,
        ASK_PARKED,
        UNPARK_SENT,
        SKIPPED,
        Second("done"),
    ),
    Pair(
        "a question about what is parked meets a resend",
        PARKED,
        ASK_PARKED,
        RESEND_PARKED,
        SKIPPED,
        Second("resent"),
    ),
)
_BROKERS = (
    Pair(
        "two refused credentials",
        CREDENTIALS,
        REFUSE_FIRST,
        REFUSE_SECOND,
        Second("queued"),
        Second("queued"),
    ),
    Pair("a take meets the end of a pause", PAUSED, TAKE_PAUSED, RESUME, TAKEN_AFTER, Second("done")),
    Pair("two tries of a broker", HALTED_BY_ANSWER, PROBE, PROBE, Second("nothing"), Second("nothing")),
    Pair(
        "a try meets the person who resumes",
        HALTED_BY_ANSWER,
        PROBE,
        RESUME_ANSWERED,
        Second("nothing"),
        Second("done"),
    ),
)
_ENDED = (
    Pair("two persons decide about what is parked", PARKED, UNPARK_SENT, UNPARK_QUEUED, MISMATCH, FINISHED),
    Pair("a decision meets a resend", PARKED, UNPARK_SENT, RESEND_PARKED, FINISHED, MISMATCH),
    Pair("two resend what is parked", PARKED, RESEND_PARKED, RESEND_PARKED, MISMATCH, MISMATCH),
    Pair(
        "two resend what is dead",
        DEAD,
        RESEND_DEAD,
        RESEND_DEAD,
        Second("refused: duplicate"),
        Second("refused: duplicate"),
    ),
    Pair(
        "a resend meets the pruning",
        DEAD_LONG_AGO,
        RESEND_DEAD,
        PRUNE,
        Second("refused: not_found"),
        Second("k2", while_open="k"),
    ),
    Pair(
        "two prunings",
        DEAD_LONG_AGO,
        PRUNE,
        PRUNE,
        Second("none", while_open="k"),
        Second("none", while_open="k"),
    ),
)
_FOLLOWED = (
    Pair("two questions about fills", FOLLOWED, FOLLOW, FOLLOW, Second("nothing"), Second("nothing")),
    Pair("two words about one order", ASKED_FOR_FILLS, HEAR, HEAR, Second("not_found"), Second("not_found")),
    Pair("a part and the whole", ASKED_FOR_FILLS, HEAR, HEAR_PART, Second("changed"), Second("not_found")),
    Pair(
        "a late word meets the next question",
        ASKED_FOR_FILLS_LONG_AGO,
        HEAR,
        FOLLOW.answering("2"),
        Second("stale_attempt"),
        SKIPPED,
    ),
    Pair(
        "a word meets the pruning",
        ASKED_FOR_FILLS_LONG_AGO,
        HEAR,
        PRUNE.answering("k"),
        Second("changed", while_open="changed"),
        Second("none", while_open="k"),
    ),
)
PAIRS = (*_ACCEPTED, *_QUEUED, *_TAKEN, *_UNKNOWN, *_PARKED, *_BROKERS, *_ENDED, *_FOLLOWED, *CHANGES)

SETTLE_UP = """
select string_agg(id || ' ' || coalesce(refusal, state), ', ' order by id)
from fencepost.orders_settle('b', 'w', array[1, 2], array[1, 1], array['failed', 'failed'],
  array['not_this', 'not_this'], array[null, null], array[null, null], array[null, null]::interval[],
  array[null, null]::jsonb[], array[null, null])
"""
SETTLE_DOWN = """
select string_agg(id || ' ' || coalesce(refusal, state), ', ' order by id)
from fencepost.orders_settle('b', 'w', array[2, 1], array[1, 1], array['failed', 'failed'],
  array['not_this', 'not_this'], array[null, null], array[null, null], array[null, null]::interval[],
  array[null, null]::jsonb[], array[null, null])
"""
TRIANGLES = (
    Triangle(
        "settlements of many orders around a renewal",
        TWO_TAKEN,
        "select refusal from fencepost.outbox_renew(array[2], array[1], 'w', '1 hour')",
        SETTLE_UP,
        SETTLE_DOWN,
        "1 failed, 2 failed",
        "1 not_owner, 2 not_owner",
    ).scenario(),
)
