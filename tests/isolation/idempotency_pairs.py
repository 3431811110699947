"""Two requests with one key. Neither waits for the other request: it is answered as in flight."""

from dataclasses import replace

from tests.isolation.pairs import Call, Given, Pair, Second

STATE = """
select key || coalesce(' ' || digest, '') || coalesce(' ' || response::text, '')
from fencepost.idempotency_keys order by key
"""

NEW = Given((), "", STATE)
KNOWN = Given(("select fencepost.claim('s', 'k', 'd', '1')", "select isolation.at(3600)"), "k d 1", STATE)

CLAIM = Call(
    "claim",
    "select outcome || coalesce(' ' || response::text, '') from fencepost.claim('s', 'k', 'd', '1')",
    "claimed 1",
    {"claimed 1": "k d 1"},
)
CLAIM_REPEATED = Call(
    "repeat",
    "select outcome || coalesce(' ' || response::text, '') from fencepost.claim('s', 'k', 'd', '2')",
    "claimed 2",
    {"claimed 2": "k d 2"},
)
CLAIM_OTHER = Call(
    "claim another",
    "select outcome || coalesce(' ' || response::text, '') from fencepost.claim('s', 'k', 'e', '2')",
    "claimed 2",
    {"claimed 2": "k e 2"},
)
CLAIM_BARE = Call("claim", "select outcome from fencepost.claim('s', 'k')", "claimed", {"claimed": "k"})
REMEMBER = Call("remember", "select fencepost.remember('s', 'k', '3')", "refused: not_found")
CLEAN = Call("clean", "select fencepost.idempotency_clean('30 minutes', 10)", "1", {"1": ""})

CLAIM_UP = Call(
    "claim k, l",
    "select key || ' ' || outcome from fencepost.claim_many('s', array['k', 'l'])",
    "k claimed, l claimed",
    dict.fromkeys(("k claimed, l claimed", "k claimed, l duplicate", "k in_flight, l claimed"), "k; l"),
)
CLAIM_DOWN = replace(
    CLAIM_UP,
    name="claim l, k",
    sql="select key || ' ' || outcome from fencepost.claim_many('s', array['l', 'k'])",
)

# The UUIDv7 of the moment at which the stage's clock begins.
CLAIM_ORDERED = Call(
    "claim",
    "select outcome from fencepost.claim_ordered('s', '01b8dac5-b400-7000-8000-000000000000')",
    "claimed",
    {"claimed": "01b8dac5-b400-7000-8000-000000000000"},
)

PAIRS = (
    Pair(
        "a request and its repeat",
        NEW,
        CLAIM,
        CLAIM_REPEATED,
        a_second=Second("replay 2", while_open="in_flight"),
        b_second=Second("replay 1", while_open="in_flight"),
    ),
    Pair(
        "two requests without a response",
        NEW,
        CLAIM_BARE,
        CLAIM_BARE,
        a_second=Second("duplicate", while_open="in_flight"),
        b_second=Second("duplicate", while_open="in_flight"),
    ),
    Pair(
        "two different requests under one key",
        NEW,
        CLAIM,
        CLAIM_OTHER,
        a_second=Second("mismatch", while_open="in_flight"),
        b_second=Second("mismatch", while_open="in_flight"),
    ),
    Pair(
        "a response for another request",
        NEW,
        CLAIM,
        REMEMBER,
        a_second=Second("claimed 1"),
        b_second=Second("refused: duplicate", while_open="refused: not_found"),
    ),
    Pair(
        "many requests in opposite orders",
        NEW,
        CLAIM_UP,
        CLAIM_DOWN,
        a_second=Second("k duplicate, l duplicate", while_open="k in_flight, l in_flight"),
        b_second=Second("k duplicate, l duplicate", while_open="k in_flight, l in_flight"),
        # Each key is answered by itself: stopped between its two, each call may have one.
        overlapping=(
            ("k claimed, l duplicate", "k in_flight, l claimed"),
            ("k claimed, l in_flight", "k in_flight, l claimed"),
            ("k in_flight, l claimed", "k claimed, l duplicate"),
            ("k in_flight, l claimed", "k claimed, l in_flight"),
        ),
    ),
    Pair(
        "two requests with a time-ordered key",
        NEW,
        CLAIM_ORDERED,
        CLAIM_ORDERED,
        a_second=Second("duplicate", while_open="in_flight"),
        b_second=Second("duplicate", while_open="in_flight"),
    ),
    Pair(
        "a late repeat meets the cleaning",
        KNOWN,
        CLAIM_REPEATED.answering("replay 1"),
        CLEAN,
        a_second=Second("claimed 2"),
        b_second=Second("1", while_open="1"),
    ),
    Pair("two cleanings", KNOWN, CLEAN, CLEAN, Second("0", while_open="0"), Second("0", while_open="0")),
)
