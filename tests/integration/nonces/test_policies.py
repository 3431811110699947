"""Deadlines, batches and lists in the database: no nonce is forgotten, no key accepts two contents, and a
list reads its own page and no more."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked
from tests.integration.nonces.operator import CHAIN, LONG, SIGNER, TX_BROADCAST, NonceOperator, statuses
from tests.integration.nonces.test_nonce_plans import MORE_PAGES, pages
from tests.isolation.planted_bug import Edit, PlantedBug

OTHER = "0x" + "cd" * 20
SUBMIT: LiteralString = (
    "select * from fencepost.nonce_tx_submit(%s, %s, %s, 'digest', null, 5, 'code', 50000, %s, 'standard',"
    " null, fencepost.clock() + make_interval(secs => %s))"
)
MANY: LiteralString = (
    "select * from fencepost.nonce_tx_submit_many(%s::bigint[], %s::text[], %s::text[], %s::text[],"
    " %s::text[], %s::numeric[], %s::bytea[], %s::bigint[], %s::text[], %s::text[], %s::numeric[],"
    " %s::timestamptz[])"
)
TAKE: LiteralString = "select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)"
EXPIRE: LiteralString = "select fencepost.nonce_tx_expire(%s, %s, %s, %s, 10)"
PAGE: LiteralString = "select fencepost.nonce_tx_page(%s, %s, %s::text[], %s, %s, %s, %s)"
CONFIRM: LiteralString = (
    "select fencepost.nonce_tx_confirm(%s, %s, %s, %s, %s, %s, '{\"block_number\": 7}'::jsonb)"
)
ORDER: LiteralString = "select idempotency_key from fencepost.managed_transaction order by nonce"


@pytest.fixture
def node(app: Caller, clock: Clock) -> NonceOperator:
    operator = NonceOperator(app, "a/boot-1", ttl=LONG)
    operator.acquire()
    return operator


def submit(node: NonceOperator, key: str, seconds: float | None = None, webhook: str | None = None) -> int:
    row = node.caller.row(SUBMIT, CHAIN, SIGNER, key, webhook, seconds)
    return int(row["transaction_id"])


def batch(keys: Sequence[str], digests: Sequence[str] | None = None, signer: str = SIGNER) -> tuple[Any, ...]:
    size = len(keys)
    return (
        [CHAIN] * size,
        [signer] * size,
        list(keys),
        list(digests or ["digest"] * size),
        [None] * size,
        [5] * size,
        [b"code"] * size,
        [50_000] * size,
        [None] * size,
        ["standard"] * size,
        [None] * size,
        [None] * size,
    )


def sent(node: NonceOperator, transaction_id: int, tx_hash: str) -> None:
    node.caller.execute(TAKE, *node.key)
    node.tx_signed(transaction_id, tx_hash)
    node.caller.execute(TX_BROADCAST, *node.key, transaction_id, 1)


def shown(node: NonceOperator, transaction_id: int) -> tuple[Any, ...]:
    row = node.caller.row(
        "select state, nonce, error, cancel_requested_at is not null as marked,"
        " expired_at is not null as expired from fencepost.managed_transaction where transaction_id = %s",
        transaction_id,
    )
    return tuple(row.values())


TOO_LATE = "deadline: it was not mined by its deadline, and was cancelled."


def test_what_waits_is_cancelled_at_its_deadline_and_reported_once(
    node: NonceOperator, clock: Clock, admin: Caller
) -> None:
    late, soon = submit(node, "late", 60, "shop"), submit(node, "soon", 600)
    assert node.caller.value(EXPIRE, *node.key) == 0
    clock.advance(60)

    assert node.caller.value(EXPIRE, *node.key) == 1
    assert node.caller.value(EXPIRE, *node.key) == 0

    assert shown(node, late) == ("CANCELLED", None, TOO_LATE, True, True)
    assert shown(node, soon)[0] == "QUEUED"
    told = admin.column("select payload->>'error' from fencepost.outbox where channel = 'shop'")
    assert told == [TOO_LATE]


def what_was_sent_keeps_its_nonce(node: NonceOperator, clock: Clock) -> None:
    """It is marked for a no-op, and the no-op's block ends it."""
    late = submit(node, "late", 60)
    sent(node, late, "0xaa")
    clock.advance(60)
    assert node.caller.value(EXPIRE, *node.key) == 0
    assert shown(node, late) == ("BOUND", 0, None, True, True)
    assert statuses(node.caller) == {0: "BROADCAST"}
    no_op: LiteralString = (
        "select fencepost.nonce_tx_signed(%s, %s, %s, %s, %s, 1, '0xab', 'no-op', 'cancel')"
    )
    node.caller.execute(no_op, *node.key, late)
    assert node.caller.value(CONFIRM, *node.key, late, "0xab") == "CANCELLED"
    assert shown(node, late) == ("CANCELLED", 0, TOO_LATE, True, True)
    assert statuses(node.caller) == {0: "CONSUMED"}


def what_is_late_takes_no_nonce(node: NonceOperator, clock: Clock) -> None:
    late = submit(node, "late", 60)
    clock.advance(60)
    assert node.caller.value(TAKE, *node.key) == 0
    assert shown(node, late)[:2] == ("QUEUED", None)


def fees_above_the_cap_are_not_signed(node: NonceOperator, clock: Clock) -> None:
    """Also not by a node of an older version, which does not know of caps."""
    capped = node.caller.value(
        "select transaction_id from fencepost.nonce_tx_submit(%s, %s, 'capped', 'digest', null, 5, 'code',"
        " 50000, null, 'standard', 100)",
        CHAIN,
        SIGNER,
    )
    node.caller.execute(TAKE, *node.key)
    signing: LiteralString = "select fencepost.nonce_tx_signing(%s, %s, %s, %s, %s, 1, %s, 1)"
    node.caller.refused("mismatch", signing, *node.key, capped, 101)
    assert statuses(node.caller) == {0: "HELD"}
    node.caller.execute(signing, *node.key, capped, 100)


def what_went_back_into_the_queue_ends_there(node: NonceOperator, clock: Clock) -> None:
    """Its deadline passed while it had a nonce; then its owner died before it signed."""
    late = submit(node, "late", 60)
    asked = submit(node, "asked", 60)
    node.caller.execute(TAKE, *node.key)
    node.caller.execute("select fencepost.nonce_tx_cancel(%s)", asked)
    clock.advance(60)
    node.caller.execute(EXPIRE, *node.key)
    assert shown(node, late)[0] == "BOUND"
    clock.advance(7200)
    successor = NonceOperator(node.caller, "b/boot-1", ttl=LONG)
    successor.acquire()
    assert [shown(node, one)[:2] for one in (late, asked)] == [("QUEUED", None)] * 2

    assert node.caller.value(EXPIRE, *successor.key) == 2

    assert [shown(node, one)[0] for one in (late, asked)] == ["CANCELLED"] * 2
    assert node.caller.value(TAKE, *successor.key) == 0


def test_what_is_mined_in_spite_of_its_no_op_is_confirmed(node: NonceOperator, clock: Clock) -> None:
    late = submit(node, "late", 60)
    sent(node, late, "0xaa")
    clock.advance(60)
    node.caller.execute(EXPIRE, *node.key)

    assert node.caller.value(CONFIRM, *node.key, late, "0xaa") == "CONFIRMED"

    assert shown(node, late)[:3] == ("CONFIRMED", 0, None)


def test_what_is_in_a_block_or_in_doubt_or_cancelled_is_left_alone(
    node: NonceOperator, clock: Clock, admin: Caller
) -> None:
    mined, doubtful, cancelled = (submit(node, key, 60) for key in ("mined", "doubtful", "cancelled"))
    sent(node, mined, "0xaa")
    node.caller.execute(
        "select fencepost.nonce_tx_mined(%s, %s, %s, %s, %s, '0xaa', 7, '0xb7')", *node.key, mined
    )
    admin.execute(
        "update fencepost.nonce_transaction set in_doubt_since = now() where transaction_id = %s", doubtful
    )
    node.caller.execute("select fencepost.nonce_tx_cancel(%s)", cancelled)
    clock.advance(60)

    assert node.caller.value(EXPIRE, *node.key) == 0

    assert not any(shown(node, one)[-1] for one in (mined, doubtful, cancelled))


def the_order_of_a_batch_is_the_order_of_its_nonces(node: NonceOperator, clock: Clock) -> None:
    keys = ["z", "a", "m", "b"]
    answers = node.caller.rows(MANY, *batch(keys))
    assert [(one["idempotency_key"], one["state"], one["repeated"]) for one in answers] == [
        (key, "QUEUED", False) for key in keys
    ]
    node.caller.execute(TAKE, *node.key)
    assert node.caller.column(ORDER) == keys


def another_content_is_a_mismatch_and_stops_no_other(node: NonceOperator, clock: Clock) -> None:
    first = submit(node, "known")
    answers = node.caller.rows(MANY, *batch(["known", "new", "new", "new"], ["other", "d", "d", "e"]))
    assert [one["refusal"] for one in answers] == ["mismatch", None, None, "mismatch"]
    assert [one["repeated"] for one in answers] == [None, False, True, None]
    assert answers[1]["transaction_id"] == answers[2]["transaction_id"]
    again = node.caller.rows(MANY, *batch(["known", "new"], ["digest", "d"]))
    assert [one["transaction_id"] for one in again] == [first, answers[1]["transaction_id"]]
    assert all(one["repeated"] for one in again)
    (refused,) = node.caller.rows(MANY, *batch(["known"], signer=OTHER))
    assert refused["refusal"] == "mismatch", "a key of another signer"


Story = Callable[[NonceOperator, Clock], None]
BUGS: list[tuple[str, Edit, Story]] = [
    (
        "a deadline forgets the nonce of what was sent",
        Edit("nonce_tx_expire", "case when t.state <> 'QUEUED' then t.state when", "case when"),
        what_was_sent_keeps_its_nonce,
    ),
    (
        "what is late takes a nonce",
        Edit("nonce_tx_take", "and (t.deadline is null or t.deadline > v_now)", ""),
        what_is_late_takes_no_nonce,
    ),
    (
        "a deadline that was acted on once is forgotten when the nonce is given back",
        Edit(
            "nonce_tx_expire",
            "(t.state = 'QUEUED' or t.cancel_requested_at is null)",
            "t.cancel_requested_at is null",
        ),
        what_went_back_into_the_queue_ends_there,
    ),
    (
        "fees above the cap are signed",
        Edit("nonce_tx_signing", "p_max_fee > v_tx.fee_cap", "false"),
        fees_above_the_cap_are_not_signed,
    ),
    (
        "a batch gives its transactions the order of their keys",
        Edit(
            "nonce_tx_submit_many",
            "select v_ids[i.place], s.signer_id",
            "select v_ids[row_number() over (order by i.key)], s.signer_id",
        ),
        the_order_of_a_batch_is_the_order_of_its_nonces,
    ),
    (
        "a batch takes a known key with another content for a repeat",
        Edit("nonce_tx_submit_many", "and (t.seen).digest = i.digest as same", "as same"),
        another_content_is_a_mismatch_and_stops_no_other,
    ),
]


@pytest.mark.parametrize("story", [bug[2] for bug in BUGS], ids=[bug[2].__name__ for bug in BUGS])
def test_the_rule_holds(node: NonceOperator, clock: Clock, story: Story) -> None:
    story(node, clock)


@pytest.mark.parametrize(("title", "edit", "story"), BUGS, ids=[bug[0] for bug in BUGS])
def test_a_planted_bug_is_noticed(
    database: Database, node: NonceOperator, clock: Clock, title: str, edit: Edit, story: Story
) -> None:
    PlantedBug(title, "", (edit,)).plant(database)

    with pytest.raises((AssertionError, psycopg.Error, pytest.fail.Exception)):
        story(node, clock)


def test_two_batches_with_the_same_keys_in_other_orders_wait_and_do_not_deadlock(
    node: NonceOperator, connect: Callable[[], Caller]
) -> None:
    with closing(connect()) as second, closing(connect()) as watching:
        node.caller.execute("begin")
        first = node.caller.rows(MANY, *batch(["a", "b", "c"]))
        with begun(second, MANY, *batch(["c", "b", "a", "d"])) as beside:
            wait_until_blocked(watching, second)
            node.caller.execute("commit")
        answers = {one["idempotency_key"]: one for one in beside.result(60)}

    assert {key: one["repeated"] for key, one in answers.items()} == {
        "a": True, "b": True, "c": True, "d": False,
    }  # fmt: skip
    assert [answers[key]["transaction_id"] for key in "abc"] == [one["transaction_id"] for one in first]


@pytest.mark.parametrize(
    ("field", "place", "wrong"),
    [
        ("signers", 1, []),
        ("chain_ids", 0, []),
        ("digests", 3, ["a", "b"]),
        ("values", 5, []),
        ("deadlines", 11, None),
        ("value", 5, [-1]),
        ("gas", 7, [0]),
        ("speed", 9, ["at once"]),
        ("fee_cap", 10, [0]),
        ("to", 4, ["0x12"]),
    ],
)
def test_a_batch_that_cannot_be_read_names_what_is_wrong(
    app: Caller, field: str, place: int, wrong: Any
) -> None:
    asked = list(batch(["a"]))
    asked[place] = wrong
    app.invalid(field, MANY, *asked)


@pytest.mark.parametrize("size", [0, 501])
def test_a_batch_has_from_1_to_500(app: Caller, size: int) -> None:
    app.invalid("transactions", MANY, *batch([str(number) for number in range(size)]))


def listed(caller: Caller, **named: Any) -> list[int]:
    """The ids of all pages of two."""
    found: list[int] = []
    below: int | None = None
    signer = named.get("signer")
    while page := caller.column(
        PAGE,
        signer and CHAIN,
        signer,
        named.get("states"),
        named.get("since"),
        named.get("until"),
        below,
        2,
    ):
        found += page
        below = page[-1]
    return found


def test_a_list_is_filtered_by_signer_state_and_time_and_its_pages_meet(
    app: Caller, clock: Clock, admin: Caller
) -> None:
    ids: list[int] = []
    for number in range(6):
        signer = OTHER if number % 2 else SIGNER
        ids.append(app.row(SUBMIT, CHAIN, signer, f"pay-{number}", None, None)["transaction_id"])
        # A repeat uses an id up, which no transaction has.
        app.execute(SUBMIT, CHAIN, signer, f"pay-{number}", None, None)
        clock.advance(60)
    for one in (ids[0], ids[3]):
        app.execute("select fencepost.nonce_tx_cancel(%s)", one)
    times = app.column("select created_at from fencepost.managed_transaction order by transaction_id")

    assert listed(app) == ids[::-1]
    assert listed(app, signer=SIGNER) == [ids[4], ids[2], ids[0]]
    assert listed(app, states=["CANCELLED"]) == [ids[3], ids[0]]
    assert listed(app, states=["CANCELLED", "QUEUED", "QUEUED"]) == ids[::-1]
    assert listed(app, signer=OTHER, states=["CANCELLED"]) == [ids[3]]
    assert listed(app, since=times[1], until=times[4]) == [ids[3], ids[2], ids[1]]
    assert listed(app, signer=OTHER, since=times[1], until=times[5], states=["QUEUED"]) == [ids[1]]
    assert listed(app, signer="0x" + "ee" * 20) == []
    assert app.column(PAGE, None, None, None, None, None, ids[2] + 1, 10) == [ids[2], ids[1], ids[0]]
    assert app.column(PAGE, None, None, None, None, None, ids[0] - 1, 10) == []
    app.invalid("state", PAGE, None, None, ["GONE"], None, None, None, 10)


OLD: LiteralString = """
    insert into fencepost.nonce_transaction
      (signer_id, idempotency_key, digest, state, recipient, value, data, gas_limit, created_at, updated_at)
    select s.signer_id, 'old-' || s.signer_id || '-' || i, 'digest', 'CONFIRMED', null, 5, '', 50000,
           now() - make_interval(secs => i), now()
    from fencepost.nonce_signer s, generate_series(1, 60000) i
"""
LISTS: list[tuple[Any, ...]] = [
    (None, None, None, None, None, None, 10),
    (CHAIN, SIGNER, None, None, None, None, 10),
    (CHAIN, SIGNER, ["CANCELLED"], None, None, None, 10),
    (None, None, ["REJECTED"], None, None, None, 10),
    (CHAIN, SIGNER, None, "now", None, None, 10),
    (None, None, ["CONFIRMED"], "-infinity", "2000-01-01", None, 10),
    (None, None, None, None, None, 5, 10),
]


def some_of_each(app: Caller) -> None:
    for number in range(12):
        app.execute(SUBMIT, CHAIN, OTHER if number % 3 == 0 else SIGNER, f"pay-{number}", None, None)


def test_a_long_history_costs_a_list_nothing(app: Caller, admin: Caller) -> None:
    some_of_each(app)
    before = [min(pages(admin, PAGE, *asked) for _ in range(8)) for asked in LISTS]
    admin.execute(OLD)

    after = [min(pages(admin, PAGE, *asked) for _ in range(3)) for asked in LISTS]

    for asked, few, many in zip(LISTS, before, after, strict=True):
        assert many <= few + MORE_PAGES, (asked, few, many)


def test_a_scan_of_a_list_would_be_seen(app: Caller, admin: Caller) -> None:
    some_of_each(app)
    before = min(pages(admin, PAGE, *LISTS[3]) for _ in range(8))
    admin.execute(OLD)
    # The other one too: with few signers a skip scan over it would do.
    admin.execute("drop index fencepost.nonce_transaction_by_state, fencepost.nonce_transaction_by_signer")

    assert min(pages(admin, PAGE, *LISTS[3]) for _ in range(3)) > before + MORE_PAGES
