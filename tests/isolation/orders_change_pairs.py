"""Two calls on a change of an order at its broker, or on the change and on the order's fills."""

from tests.isolation.orders_calls import ASKED_FOR_FILLS, FOLLOWED
from tests.isolation.pairs import Call, Given, Pair, Second

# A change that was refused leaves nothing behind that another call could meet.
STATE = """
select o.idempotency_key || ' ' || o.status || coalesce(', ' || x.status, '')
  || coalesce(', followed ' || (
       select f.take from fencepost.orders_fill_tracking f where f.order_id = o.id), '')
  || coalesce(' | ' || (select string_agg(c.kind || ' ' || c.state || ' ' || c.requests, ', ' order by c.kind)
                        from fencepost.orders_changes c where c.order_id = o.id and c.state <> 'refused'), '')
from fencepost.outbox_orders o left join fencepost.exec_result x on x.outbox_id = o.id
"""
ABLE_SQL = "select fencepost.orders_broker_abilities('b', true, true)"
CANCEL_SQL = "select fencepost.orders_cancel_at_broker(1, 'c', 'anna', 'not wanted')"
TAKE_SQL = "select state from fencepost.orders_change_take('b', 'w', '1 hour', 10)"
OPEN = Given((*FOLLOWED.statements, ABLE_SQL), "k sent, new, followed 0", STATE)
OPEN_AND_ASKED = Given((*ASKED_FOR_FILLS.statements, ABLE_SQL), "k sent, new, followed 1", STATE)
WANTED = Given((*OPEN.statements, CANCEL_SQL), "k sent, new, followed 0 | cancel queued 0", STATE)
CANCELLING = Given((*WANTED.statements, TAKE_SQL), "k sent, new, followed 0 | cancel sending 1", STATE)
CANCELLING_AND_ASKED = Given(
    (*OPEN_AND_ASKED.statements, CANCEL_SQL, TAKE_SQL), "k sent, new, followed 1 | cancel sending 1", STATE
)
CANCELLING_LONG_AGO = Given((*CANCELLING.statements, "select isolation.at(10000)"), CANCELLING.left, STATE)

CANCEL = Call(
    "cancel at the broker",
    CANCEL_SQL,
    "requested",
    {"requested": "k sent, new, followed 0 | cancel queued 0"},
)
CANCEL_ALSO = Call(
    "cancel under another key",
    "select fencepost.orders_cancel_at_broker(1, 'd', 'bert', 'not wanted')",
    "requested",
    {"requested": "k sent, new, followed 0 | cancel queued 0"},
)
REPLACE = Call(
    "replace",
    "select outcome from fencepost.orders_replace(1, 'r', '{\"qty\": \"7\"}', 'bert', 'less')",
    "accepted",
    {"accepted": "k sent, new, followed 0 | replace queued 0"},
)
TAKE = Call(
    "take the change",
    TAKE_SQL,
    "sending",
    {
        "sending": "k sent, new, followed 0 | cancel sending 1",
        "unknown": "k sent, new, followed 0 | cancel unknown 1",
    },
)
# Its id is not known: ids of changes are not given out again.
DONE_SQL = """
select coalesce(refusal, state)
from fencepost.orders_change_settle('b', 'w', array(select change_id from fencepost.orders_changes), array[1],
  array['done'], array['none'], array[null], array[null], array[null::interval],
  array['{"digest": "c", "status": "cancelled", "open": false}']::jsonb[], array[null::jsonb], array['ok'])
"""
DONE = Call("it is cancelled", DONE_SQL, "done", {"done": "k sent, cancelled | cancel done 1"})
HEAR = Call(
    "hear of the fill",
    """select coalesce(refusal, state)
       from fencepost.orders_fill_settle('b', 'r', array[1], array[1],
         array['{"digest": "e", "status": "filled"}']::jsonb[], array[true], array[null::interval],
         array['ok'])""",
    "changed",
    {"changed": "k sent, filled | cancel sending 1"},
)

CHANGES = (
    Pair("a cancel at the broker and its repeat", OPEN, CANCEL, CANCEL, Second("replay"), Second("replay")),
    Pair(
        "two cancels at the broker",
        OPEN,
        CANCEL,
        CANCEL_ALSO,
        Second("refused: in_flight"),
        Second("refused: in_flight"),
    ),
    Pair(
        "a cancel at the broker meets a replacement",
        OPEN,
        CANCEL,
        REPLACE,
        Second("requested"),
        Second("refused: in_flight"),
    ),
    Pair("two takes of a change", WANTED, TAKE, TAKE, Second("nothing"), Second("nothing")),
    Pair(
        "two settlements of a change",
        CANCELLING,
        DONE,
        DONE,
        Second("already_finished"),
        Second("already_finished"),
    ),
    Pair(
        "a late settlement of a change meets the next question",
        CANCELLING_LONG_AGO,
        DONE,
        TAKE.answering("unknown"),
        Second("stale_attempt"),
        Second("nothing", while_open="nothing"),
    ),
    Pair(
        "a cancel that is done meets a word about the fills",
        CANCELLING_AND_ASKED,
        DONE,
        HEAR,
        Second("done"),
        Second("not_found"),
    ),
)
