"""Two calls on one message. A take passes over what is locked; a settlement waits, and its take decides."""

from tests.isolation.pairs import Call, Given, Pair, Second

STATE = """
select id || ' ' || state || ' ' || take || coalesce(' by ' || owner, '')
from fencepost.outbox_messages order by id
"""

PUT = "select fencepost.outbox_put('c', 'k', '{}')"
QUEUED = Given((PUT,), "1 queued 0", STATE)
TAKEN = Given((PUT, "select fencepost.outbox_take('c', 'w', '1 hour', 10)"), "1 sending 1 by w", STATE)
SILENT = Given((*TAKEN.statements, "select isolation.at(3601)"), "1 sending 1 by w", STATE)
UNSURE = Given(
    (*TAKEN.statements, "select fencepost.outbox_settle(1, 1, 'w', 'unknown')"), "1 unknown 1", STATE
)
RECONCILED = Given(
    (*UNSURE.statements, "select fencepost.outbox_take('c', 'r', '1 hour', 10, true)"),
    "1 unknown 2 by r",
    STATE,
)

TAKE_V = Call(
    "take by v",
    "select take from fencepost.outbox_take('c', 'v', '1 hour', 10)",
    "1",
    {"1": "1 sending 1 by v"},
)
TAKE_W = Call(
    "take by w",
    "select take from fencepost.outbox_take('c', 'w', '1 hour', 10)",
    "1",
    {"1": "1 sending 1 by w"},
)
HOLD = Call("hold", "select id from fencepost.outbox_hold('c', 10, '1 hour')", "1")
RECONCILE_Q = Call(
    "reconcile by q",
    "select take from fencepost.outbox_take('c', 'q', '1 hour', 10, true)",
    "2",
    {"2": "1 unknown 2 by q"},
)
RECONCILE_R = Call(
    "reconcile by r",
    "select take from fencepost.outbox_take('c', 'r', '1 hour', 10, true)",
    "2",
    {"2": "1 unknown 2 by r"},
)
SETTLE = Call(
    "settle", "select fencepost.outbox_settle(1, 1, 'w', 'sent')", "done", {"done": "1 sent 1 by w"}
)
FAIL = Call(
    "fail", "select fencepost.outbox_settle(1, 1, 'w', 'failed', 'no answer')", "done", {"done": "1 failed 1"}
)
SETTLE_MANY = Call(
    "settle",
    """select id || ' ' || coalesce(refusal, 'settled')
       from fencepost.outbox_settle_many(array[1], array[1], 'w', array['sent'])""",
    "1 settled",
    {"1 settled": "1 sent 1 by w"},
)
SETTLE_RECONCILED = Call(
    "settle", "select fencepost.outbox_settle(1, 2, 'r', 'sent')", "done", {"done": "1 sent 2 by r"}
)
RENEW = Call(
    "renew",
    "select coalesce(refusal, 'renewed') from fencepost.outbox_renew(array[1], array[1], 'w', '1 hour')",
    "renewed",
)
EXPIRE = Call("expire", "select fencepost.outbox_expire('c', 'unknown', 10)", "1", {"1": "1 unknown 2"})
RESOLVE_SENT = Call(
    "resolve as sent",
    "select fencepost.outbox_resolve(1, 'unknown', 'sent', 'anna', 'seen at the broker')",
    "done",
    {"done": "1 sent 3 by r"},
)
RESOLVE_QUEUED = Call(
    "resolve as queued",
    "select fencepost.outbox_resolve(1, 'unknown', 'queued', 'anna', 'never arrived')",
    "done",
    {"done": "1 queued 3"},
)

# A put from an old snapshot cannot know whether its key has a head: it is not ready, and the key is noted.
DELIVERED = "select isolation.drain('c')"
PUT_ONE = "select fencepost.outbox_put('c', 'k', '\"one\"')"
PUT_TWO = "select fencepost.outbox_put('c', 'k', '\"two\"')"
BEGIN_OLD = "begin isolation level repeatable read"
NOTED_BEHIND_HEAD = Given(
    (PUT_ONE, "select fencepost.outbox_take('c', 'w', '1 hour', 10)", BEGIN_OLD, PUT_TWO, "commit"),
    "one is sending by w; two is queued",
    DELIVERED,
)
NOTED_HEAD = Given((BEGIN_OLD, PUT_ONE, PUT_TWO, "commit"), "one; two", DELIVERED)
TAKE_NOTED = Call(
    "take by v",
    "select payload #>> '{}' from fencepost.outbox_take('c', 'v', '1 hour', 10)",
    "nothing",
    {"one": "one is sending by v; two is queued", "two": "two is sending by v"},
)
SETTLE_HEAD = Call("settle", "select fencepost.outbox_settle(1, 1, 'w', 'sent')", "done", {"done": "two"})
DROP_HEAD = Call(
    "resolve as dead",
    "select fencepost.outbox_resolve(1, 'queued', 'dead', 'anna', 'not wanted')",
    "done",
    {"done": "two"},
)

SKIPPED = Second(committed="nothing", while_open="nothing")
FINISHED = Second(committed="refused: already_finished")

PAIRS = (
    Pair("two takes", QUEUED, TAKE_V, TAKE_W, SKIPPED, SKIPPED),
    Pair("a take meets a hold", QUEUED, TAKE_W, HOLD, Second("1", while_open="nothing"), SKIPPED),
    Pair(
        "two holds", QUEUED, HOLD, HOLD, Second("1", while_open="nothing"), Second("1", while_open="nothing")
    ),
    Pair("two reconcilers", UNSURE, RECONCILE_Q, RECONCILE_R, SKIPPED, SKIPPED),
    Pair("two settlements", TAKEN, SETTLE, SETTLE, FINISHED, FINISHED),
    Pair("a settlement meets a failure", TAKEN, SETTLE, FAIL, Second("refused: not_owner"), FINISHED),
    Pair(
        "a plural settlement meets a singular one",
        TAKEN,
        SETTLE_MANY,
        SETTLE,
        Second("1 already_finished"),
        FINISHED,
    ),
    Pair("a renewal meets a settlement", TAKEN, RENEW, SETTLE, Second("not_found"), Second("done")),
    Pair("two renewals", TAKEN, RENEW, RENEW, Second("renewed"), Second("renewed")),
    Pair(
        "a take meets a settlement",
        TAKEN,
        SETTLE,
        TAKE_V.answering("nothing"),
        Second("done", "done"),
        SKIPPED,
    ),
    Pair("two expiries", SILENT, EXPIRE, EXPIRE, SKIPPED, SKIPPED),
    Pair(
        "a late settlement meets the expiry",
        SILENT,
        SETTLE,
        EXPIRE,
        Second("refused: stale_attempt"),
        SKIPPED,
    ),
    Pair(
        "a late renewal meets the expiry",
        SILENT,
        RENEW,
        EXPIRE,
        a_second=Second("stale_attempt"),
        b_second=SKIPPED,
    ),
    Pair(
        "a reconciler meets a person who says sent",
        RECONCILED,
        SETTLE_RECONCILED,
        RESOLVE_SENT,
        FINISHED,
        FINISHED,
    ),
    Pair(
        "a reconciler meets a person who says again",
        RECONCILED,
        SETTLE_RECONCILED,
        RESOLVE_QUEUED,
        a_second=Second("refused: stale_attempt"),
        b_second=FINISHED,
    ),
    Pair(
        "a take of a noted key meets the settlement of its head",
        NOTED_BEHIND_HEAD,
        TAKE_NOTED,
        SETTLE_HEAD,
        a_second=Second("two", while_open="nothing"),
        b_second=Second("done"),
    ),
    Pair(
        "a take of a noted key meets a person who drops its head",
        NOTED_HEAD,
        TAKE_NOTED.answering("one"),
        DROP_HEAD,
        a_second=Second("two", while_open="nothing"),
        b_second=Second("refused: mismatch"),
    ),
    Pair(
        "two persons decide",
        RECONCILED,
        RESOLVE_SENT,
        RESOLVE_QUEUED,
        a_second=Second("refused: mismatch"),
        b_second=FINISHED,
    ),
)
