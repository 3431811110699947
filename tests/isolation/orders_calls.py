"""The calls on one order, and the states that it can be in before two of them meet.

The state names an order by its key, because a rolled-back acceptance has used up its id. It ends with a
error unless the audit tells an unbroken story: every line begins where the one before it ended, and the
last one ends in the order's present state.
"""

from tests.isolation.pairs import Call, Given

STATE = """
select o.idempotency_key || ' ' || o.status || case when o.open_since is null then '' else ' open' end
  || coalesce(' by ' || o.owner, '') || coalesce(', ' || x.status, '')
  || coalesce(', followed ' || (
       select f.take from fencepost.orders_fill_tracking f where f.order_id = o.id), '')
  || case when exists (select from (
         select a.status_from, lag(a.status_to) over (order by a.audit_id) as before
         from fencepost.outbox_audit a where a.outbox_id = o.id) a
       where a.status_from is distinct from a.before)
       or o.status is distinct from (select a.status_to from fencepost.outbox_audit a where a.outbox_id = o.id
                                     order by a.audit_id desc limit 1)
     then ', and the audit is broken' else '' end
from fencepost.outbox_orders o left join fencepost.exec_result x on x.outbox_id = o.id order by o.id
"""

DECLARE = "select fencepost.orders_broker_declare('b', 1000000, 1000000, 1000, '10 seconds')"
ACCEPT_SQL = """
select outcome from fencepost.orders_accept('k', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's', 'o',
                                            p_keep => '1 hour')
"""
QUEUED = Given((DECLARE, ACCEPT_SQL), "k queued", STATE)
NOTHING = Given((DECLARE,), "", STATE)
TOO_LATE = Given(
    (
        DECLARE,
        """select outcome from fencepost.orders_accept('k', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's',
                                                       'o', p_expires => '2030-01-01 00:00:05+00')""",
        "select isolation.at(10)",
    ),
    "k queued",
    STATE,
)
HALTED = Given(
    (*QUEUED.statements, "select fencepost.orders_halt('b', 'a', 'anna', 'stop')"), "k queued", STATE
)
TAKE_BY_W = "select take from fencepost.orders_take('b', 'w', '1 hour', 10)"
TAKEN = Given((*QUEUED.statements, TAKE_BY_W), "k sending open by w", STATE)
SILENT = Given((*TAKEN.statements, "select isolation.at(3601)"), TAKEN.left, STATE)
DOUBT_SQL = """
select coalesce(refusal, state)
from fencepost.orders_settle('b', 'w', array[1], array[1], array['unknown'], array['unproved'],
  array['BROKER_5XX'], array[null], array[null::interval], array[null::jsonb], array['failed'])
"""
UNSURE = Given((*TAKEN.statements, DOUBT_SQL), "k unknown open", STATE)
ASKED = Given(
    (*UNSURE.statements, "select fencepost.orders_take_unknown('b', 'r', '1 hour', 10)"),
    "k unknown open by r",
    STATE,
)
ASKED_LONG_AGO = Given((*ASKED.statements, "select isolation.at(3601)"), ASKED.left, STATE)
PARKED = Given(
    (
        *ASKED.statements,
        """select fencepost.orders_settle('b', 'r', array[1], array[2], array['parked'], array['unproved'],
             array['UNKNOWN'], array[null], array[null::interval], array[null::jsonb], array[null])""",
    ),
    "k parked open",
    STATE,
)
DEAD = Given((*QUEUED.statements, "select fencepost.orders_cancel(1, 'anna', 'not wanted')"), "k dead", STATE)
SENT_SQL = """
select fencepost.orders_settle('b', 'w', array[1], array[1], array['sent'], array['unproved'], array[null],
  array[null], array[null::interval], array['{"digest": "d", "status": "new", "open": true}']::jsonb[],
  array['ok'])
"""
FOLLOWED = Given((*TAKEN.statements, SENT_SQL, "select isolation.at(10)"), "k sent, new, followed 0", STATE)
ASKED_FOR_FILLS = Given(
    (*FOLLOWED.statements, "select fencepost.orders_fill_take('b', '1 hour', 10)"),
    "k sent, new, followed 1",
    STATE,
)
ASKED_FOR_FILLS_LONG_AGO = Given(
    (*ASKED_FOR_FILLS.statements, "select isolation.at(10000)"), ASKED_FOR_FILLS.left, STATE
)
# An hour later the key's time is over, and so is the retention of the pruning below.
DEAD_LONG_AGO = Given((*DEAD.statements, "select isolation.at(7200)"), DEAD.left, STATE)

ACCEPT = Call("accept", ACCEPT_SQL, "accepted", {"accepted": "k queued"})
ACCEPT_OTHER = Call(
    "accept another",
    """select outcome from fencepost.orders_accept('k', '{"qty": "2"}', 'sha256:' || repeat('1', 64), 'b',
                                                   'a', 's', 'o', p_keep => '1 hour')""",
    "accepted",
    {"accepted": "k queued"},
)
TAKE_V = Call(
    "take by v",
    "select take from fencepost.orders_take('b', 'v', '1 hour', 10)",
    "1",
    {"1": "k sending open by v", "2": "k sending open by v"},
)
TAKE_W = Call("take by w", TAKE_BY_W, "1", {"1": "k sending open by w"})
# A take sets aside what has expired: its answer says nothing of that, so the order is looked at afterwards.
TAKE_AND_LOOK = Call(
    "take",
    """select fencepost.orders_take('b', 'v', '1 hour', 10);
       select status from fencepost.outbox_orders""",
    "queued",
)
EXPIRE_DUE = Call("end what is due", "select fencepost.orders_expire_due(10)", "1", {"1": "k dead"})
CANCEL = Call("cancel", "select fencepost.orders_cancel(1, 'anna', 'not wanted')", "done", {"done": "k dead"})
DROP_QUEUED = Call(
    "resolve as dead",
    "select fencepost.orders_resolve(1, 'queued', 'dead', 'bert', 'not wanted')",
    "done",
    {"done": "k dead"},
)
RECOVER = Call(
    "recover",
    "select fencepost.orders_recover('b', 'anna')",
    "1",
    {"1": "k unknown open"},
)
SETTLE = Call(
    "settle",
    """select coalesce(refusal, state)
       from fencepost.orders_settle('b', 'w', array[1], array[1], array['sent'], array['unproved'],
         array[null], array[null], array[null::interval],
         array['{"digest": "d", "status": "filled"}']::jsonb[], array['ok'])""",
    "sent",
    {"sent": "k sent, filled"},
)
DOUBT = Call("settle as unknown", DOUBT_SQL, "unknown", {"unknown": "k unknown open"})
FAIL = Call(
    "settle as failed",
    """select coalesce(refusal, state)
       from fencepost.orders_settle('b', 'w', array[1], array[1], array['failed'], array['not_this'],
         array['NETWORK_TIMEOUT'], array[null], array[null::interval], array[null::jsonb],
         array['failed'])""",
    "failed",
    {"failed": "k failed"},
)
RENEW = Call(
    "renew",
    "select coalesce(refusal, 'renewed') from fencepost.outbox_renew(array[1], array[1], 'w', '1 hour')",
    "renewed",
)
EXPIRE_TAKES = Call("expire", "select fencepost.orders_expire_takes('b', 10)", "1", {"1": "k unknown open"})
ASK_Q = Call(
    "ask by q",
    "select take from fencepost.orders_take_unknown('b', 'q', '1 hour', 10)",
    "2",
    {"2": "k unknown open by q", "3": "k unknown open by q"},
)
ASK_R = Call(
    "ask by r",
    "select take from fencepost.orders_take_unknown('b', 'r', '1 hour', 10)",
    "2",
    {"2": "k unknown open by r"},
)
FIND = Call(
    "find",
    """select coalesce(refusal, state)
       from fencepost.orders_settle('b', 'r', array[1], array[2], array['sent'], array['unproved'],
         array[null], array[null], array[null::interval],
         array['{"digest": "d", "status": "filled"}']::jsonb[], array['ok'])""",
    "sent",
    {"sent": "k sent, filled"},
)
SAY_SENT = Call(
    "resolve as sent",
    "select fencepost.orders_resolve(1, 'unknown', 'sent', 'anna', 'seen at the broker')",
    "done",
    {"done": "k sent, followed 0"},
)
SAY_QUEUED = Call(
    "resolve as queued",
    "select fencepost.orders_resolve(1, 'unknown', 'queued', 'bert', 'never arrived')",
    "done",
    {"done": "k queued"},
)
UNPARK_SENT = Call(
    "resolve as sent",
    "select fencepost.orders_resolve(1, 'parked', 'sent', 'anna', 'seen at the broker')",
    "done",
    {"done": "k sent, followed 0"},
)
UNPARK_QUEUED = Call(
    "resolve as queued",
    "select fencepost.orders_resolve(1, 'parked', 'queued', 'bert', 'never arrived')",
    "done",
    {"done": "k queued"},
)
RESEND_PARKED = Call(
    "resend",
    """select 'resent' from fencepost.orders_resend(1, 'parked', 'anna', 'again',
         'sha256:' || repeat('0', 64), '{"idempotency_key": "k2"}', 'o')""",
    "resent",
    {"resent": "k dead; k2 queued"},
)
RESEND_DEAD = Call(
    "resend",
    """select 'resent' from fencepost.orders_resend(1, 'dead', 'anna', 'again', 'sha256:' || repeat('0', 64),
                                                    '{"idempotency_key": "k2"}', 'o')""",
    "resent",
    {"resent": "k dead; k2 queued"},
)
PRUNE = Call(
    "prune",
    """select fencepost.orders_prune('1 hour', 10);
       select coalesce(string_agg(idempotency_key, ' ' order by id), 'none') from fencepost.outbox_orders""",
    "none",
    {"none": "", "k2": "k2 queued"},
)
HALT = Call("halt", "select fencepost.orders_halt('b', null, 'anna', 'stop')", "done")
HALT_ACCOUNT = Call("halt", "select fencepost.orders_halt('b', 'a', 'anna', 'stop')", "done")
RESUME_ACCOUNT = Call("resume", "select fencepost.orders_resume('b', 'a', 'anna', 'go on')", "done")
FOLLOW = Call(
    "ask for fills",
    "select take from fencepost.orders_fill_take('b', '1 hour', 10)",
    "1",
    {"1": "k sent, new, followed 1", "2": "k sent, new, followed 2"},
)
HEAR = Call(
    "hear of the fill",
    """select coalesce(refusal, state)
       from fencepost.orders_fill_settle('b', 'r', array[1], array[1],
         array['{"digest": "e", "status": "filled"}']::jsonb[], array[true], array[null::interval],
         array['ok'])""",
    "changed",
    {"changed": "k sent, filled"},
)
HEAR_PART = Call(
    "hear of a part",
    """select coalesce(refusal, state)
       from fencepost.orders_fill_settle('b', 'q', array[1], array[1],
         array['{"digest": "p", "status": "part", "open": true}']::jsonb[], array[false],
         array['1 hour'::interval], array['ok'])""",
    "changed",
    {"changed": "k sent, part, followed 1"},
)

ASK_PARKED = Call(
    "ask about what is parked",
    "select take from fencepost.orders_take_unknown('b', 'q', '1 hour', 10, true)",
    "3",
    {"3": "k parked open by q"},
)
# Two orders of different keys, both under way; named in opposite orders by two settlements.
TWO_TAKEN = (
    DECLARE,
    """select fencepost.orders_accept('k1', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's', 'x')""",
    """select fencepost.orders_accept('k2', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's', 'y')""",
    TAKE_BY_W,
)

CREDENTIALS_STATE = """
select (select count(*) from fencepost.outbox_orders where status = 'dead') || ' dead, '
  || (select count(*) from fencepost.outbox_orders where status = 'queued') || ' queued, '
  || coalesce((select b.halted_code from fencepost.orders_broker b), 'open')
"""
CREDENTIALS = Given(TWO_TAKEN, "0 dead, 0 queued, open", CREDENTIALS_STATE)
_LEFT = {"dead": "1 dead, 0 queued, UNAUTHORIZED", "queued": "1 dead, 1 queued, UNAUTHORIZED"}
REFUSE_FIRST = Call(
    "refuse the first",
    """select coalesce(refusal, state)
       from fencepost.orders_settle('b', 'w', array[1], array[1], array['dead'], array['not_this'],
         array['UNAUTHORIZED'], array['401'], array[null::interval], array[null::jsonb],
         array['unauthorized'])""",
    "dead",
    _LEFT,
)
REFUSE_SECOND = Call(
    "refuse the second",
    """select coalesce(refusal, state)
       from fencepost.orders_settle('b', 'w', array[2], array[1], array['dead'], array['not_this'],
         array['UNAUTHORIZED'], array['401'], array[null::interval], array[null::jsonb],
         array['unauthorized'])""",
    "dead",
    _LEFT,
)
PAUSED = Given(
    (
        *QUEUED.statements,
        TAKE_BY_W,
        """select fencepost.orders_settle('b', 'w', array[1], array[1], array['queued'], array['not_this'],
             array['RATE_LIMITED'], array[null], array['1 hour'::interval], array[null::jsonb],
             array['limited'])""",
    ),
    "k queued",
    STATE,
)
RESUME = Call("resume", "select fencepost.orders_resume('b', null, 'anna', 'go on')", "done")
TAKE_PAUSED = Call(
    "take what was limited",
    "select take from fencepost.orders_take('b', 'v', '1 hour', 10)",
    "nothing",
    {"2": "k sending open by v"},
)
PROBE = Call("try it", "select idempotency_key from fencepost.orders_probe_take('b')", "k1")
HALTED_BY_ANSWER = Given(
    (
        "select fencepost.orders_broker_declare('b', 1000000, 1000000, 1000, '10 seconds', null, null, true)",
        """select fencepost.orders_accept('k1', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's', 'x')""",
        """select fencepost.orders_accept('k2', '{}', 'sha256:' || repeat('0', 64), 'b', 'a', 's', 'y')""",
        "select fencepost.orders_take('b', 'w', '1 hour', 1)",
        """select fencepost.orders_settle('b', 'w', array[1], array[1], array['queued'], array['not_this'],
             array['UNAUTHORIZED'], array['401'], array[null::interval], array[null::jsonb],
             array['unauthorized'])""",
        "select isolation.at(20)",
    ),
    "0 dead, 2 queued, UNAUTHORIZED",
    CREDENTIALS_STATE,
)
RESUME_ANSWERED = Call(
    "resume",
    "select fencepost.orders_resume('b', null, 'anna', 'a new key')",
    "done",
    {"done": "0 dead, 2 queued, open"},
)
