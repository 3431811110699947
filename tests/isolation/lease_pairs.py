"""Two calls on one lease. Only a takeover waits for a fence, and a takeover waits for all of them."""

from tests.isolation.pairs import Call, Given, Pair, Second

STATE = "select coalesce(owner, 'free') || ' ' || token from fencepost.lease order by resource"

HOLD = "select fencepost.lease_acquire('r', 'a', '1 hour')"
UNKNOWN = Given((), "", STATE)
HELD = Given((HOLD,), "a 1", STATE)
EXPIRED = Given((HOLD, "select isolation.at(3601)"), "a 1", STATE)
FREE = Given((HOLD, "select fencepost.lease_release('r', 'a', 1)"), "free 1", STATE)

LEFT_BY_A = {"1": "a 1", "2": "a 2"}
LEFT_BY_B = {"1": "b 1", "2": "b 2"}
ACQUIRE_A = Call(
    "acquire by a", "select token from fencepost.lease_acquire('r', 'a', '1 hour')", "1", LEFT_BY_A
)
ACQUIRE_B = Call(
    "acquire by b", "select token from fencepost.lease_acquire('r', 'b', '1 hour')", "2", LEFT_BY_B
)
ACQUIRE_C = Call(
    "acquire by c", "select token from fencepost.lease_acquire('r', 'c', '1 hour')", "2", {"2": "c 2"}
)
RENEW = Call("renew", "select token from fencepost.lease_renew('r', 'a', 1, '1 hour')", "1")
RELEASE = Call("release", "select fencepost.lease_release('r', 'a', 1)", "done", {"done": "free 1"})
FENCE = Call("fence", "select fencepost.lease_fence('r', 1)", "done")

NOT_OWNER = "refused: not_owner"
LATE = "refused: lease_expired"
LOSES = Second(committed=NOT_OWNER)

PAIRS = (
    Pair("the first acquisitions of a resource", UNKNOWN, ACQUIRE_A, ACQUIRE_B.answering("1"), LOSES, LOSES),
    Pair("two acquire a free lease", FREE, ACQUIRE_B, ACQUIRE_C, LOSES, LOSES),
    Pair("two take over an expired lease", EXPIRED, ACQUIRE_B, ACQUIRE_C, LOSES, LOSES),
    Pair("a takeover meets the old owner", EXPIRED, ACQUIRE_A.answering("2"), ACQUIRE_B, LOSES, LOSES),
    Pair("a takeover meets a late renewal", EXPIRED, RENEW.answering(LATE), ACQUIRE_B, LOSES, Second("2")),
    Pair("a takeover meets a late fence", EXPIRED, FENCE.answering(LATE), ACQUIRE_B, LOSES, Second("2")),
    Pair("a takeover meets a late release", EXPIRED, RELEASE, ACQUIRE_B, LOSES, Second("2")),
    # A look takes no lock: a held lease is refused at once, whatever its holder has open.
    Pair(
        "an acquisition meets a release",
        HELD,
        RELEASE,
        ACQUIRE_B.answering(NOT_OWNER),
        a_second=Second("done"),
        b_second=Second(committed="2", while_open=NOT_OWNER),
    ),
    Pair(
        "an acquisition meets a renewal",
        HELD,
        RENEW,
        ACQUIRE_B.answering(NOT_OWNER),
        a_second=Second("1"),
        b_second=Second(NOT_OWNER, while_open=NOT_OWNER),
    ),
    Pair(
        "an acquisition meets a fence",
        HELD,
        FENCE,
        ACQUIRE_B.answering(NOT_OWNER),
        a_second=Second("done"),
        b_second=Second(NOT_OWNER, while_open=NOT_OWNER),
    ),
    Pair("two renewals", HELD, RENEW, RENEW, Second("1"), Second("1")),
    Pair("the owner acquires again and renews", HELD, ACQUIRE_A, RENEW, Second("1"), Second("1")),
    Pair("the owner acquires again and releases", HELD, ACQUIRE_A, RELEASE, Second("2"), Second("done")),
    Pair("two releases", HELD, RELEASE, RELEASE, LOSES, LOSES),
    Pair("a renewal meets a release", HELD, RENEW, RELEASE, LOSES, Second("done")),
    Pair("a fence passes a fence", HELD, FENCE, FENCE, Second("done", "done"), Second("done", "done")),
    Pair("a renewal passes a fence", HELD, FENCE, RENEW, Second("done", "done"), Second("1", "1")),
    Pair(
        "an acquisition by the owner passes its fence",
        HELD,
        FENCE,
        ACQUIRE_A,
        Second("done", "done"),
        Second("1", "1"),
    ),
    # The next acquisition waits for the fence; the release itself need not.
    Pair("a release passes a fence", HELD, FENCE, RELEASE, Second(NOT_OWNER, "done"), Second("done", "done")),
)
