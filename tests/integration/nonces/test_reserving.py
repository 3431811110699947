"""One sequence for each signer: gaps first, one nonce for a request, nothing signed is ever given back."""

from typing import LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import (
    BROADCAST,
    CHAIN,
    LONG,
    RECYCLABLE,
    RESERVE,
    SIGNED,
    SIGNER,
    SIGNING,
    TX_BROADCAST,
    TX_SIGNED,
    TX_SIGNING,
    USED,
    NonceOperator,
    statuses,
)

MARK_MANY: LiteralString = (
    "select * from fencepost.nonce_mark_many(%s, %s, %s, %s, %s::bigint[], %s::bigint[], %s::text[])"
)
SUBMIT: LiteralString = "select fencepost.nonce_tx_submit(%s, %s, %s, 'digest', null, 5, 'code', 50000)"


@pytest.fixture
def node(app: Caller, clock: Clock) -> NonceOperator:
    operator = NonceOperator(app, "a/boot-1")
    operator.acquire()
    return operator


def test_a_sequence_begins_at_zero_and_has_no_holes(node: NonceOperator) -> None:
    assert [node.reserve(f"r{i}") for i in range(3)] == [[0], [1], [2]]
    assert node.reserve("r3", "r4", "r5") == [3, 4, 5]


def test_a_sequence_begins_where_the_chain_is(app: Caller) -> None:
    operator = NonceOperator(app, "a/boot-1", ttl=LONG)
    operator.acquire(first_nonce=41)

    assert operator.reserve("r1") == [41]


def test_a_signer_that_a_transaction_named_first_begins_where_the_chain_is(app: Caller) -> None:
    app.execute(
        "select fencepost.nonce_tx_submit(%s, %s, 'pay-1', 'digest', %s, 5, '', 21000)",
        CHAIN,
        SIGNER,
        "0x" + "cd" * 20,
    )
    operator = NonceOperator(app, "a/boot-1", ttl=LONG)
    operator.acquire(first_nonce=41)

    assert operator.reserve("r1") == [41]


def test_a_later_start_does_not_move_a_sequence_that_exists(node: NonceOperator) -> None:
    node.reserve("r1")

    node.acquire(first_nonce=99)

    assert node.reserve("r2") == [1]


def test_the_lowest_gap_is_taken_first(node: NonceOperator) -> None:
    node.reserve("a", "b", "c", "d")
    node.recyclable(2)
    node.recyclable(1)

    assert node.reserve("e", "f", "g") == [1, 2, 4]
    assert [row["hold"] for row in node.reservations("e", "f", "g")] == [2, 2, 1]


def test_a_repeated_request_gets_its_nonce_again(node: NonceOperator) -> None:
    assert node.reserve("r1") == [0]
    assert node.reserve("r1") == [0]
    assert node.reserve("r0", "r1", "r0", "r2") == [1, 0, 1, 2]


def test_a_repeat_after_the_use_says_that_it_was_used(node: NonceOperator) -> None:
    node.reserve("r1")
    node.used(0, tx_hash="0xaa")

    (again,) = node.reservations("r1")

    assert (again["nonce"], again["status"], again["tx_hash"]) == (0, "CONSUMED", "0xaa")


def test_a_late_word_of_an_earlier_hold_is_refused(node: NonceOperator) -> None:
    """The nonce was given back and given out again: who held it first must not release it a second time."""
    node.reserve("r1")
    node.recyclable(0)
    assert node.reserve("r2") == [0]

    refused = node.caller.refused("stale_attempt", RECYCLABLE, *node.key, 0, 1)

    assert (refused.attempted["hold"], refused.seen["hold"]) == (1, 2)
    node.caller.refused("stale_attempt", USED, *node.key, 0, 1, "0xaa")
    assert statuses(node.caller) == {0: "HELD"}


def test_what_is_said_twice_happens_once(node: NonceOperator) -> None:
    node.reserve("a", "b")
    node.recyclable(0)
    node.recyclable(0)
    node.used(1, tx_hash="0xaa")
    node.used(1, tx_hash="0xaa")

    node.caller.refused("already_finished", USED, *node.key, 1, 1, "0xbb")
    assert statuses(node.caller) == {0: "RELEASED", 1: "CONSUMED"}


def test_the_whole_way_of_a_signed_nonce(node: NonceOperator, admin: Caller) -> None:
    node.reserve("a")
    node.signing(0)
    node.signed(0, "0xaa")
    node.signed(0, "0xaa")
    node.broadcast(0)
    node.signed(0, "0xbb")

    assert statuses(node.caller) == {0: "BROADCAST"}
    node.used(0, tx_hash="0xaa")
    assert statuses(node.caller) == {0: "CONSUMED"}
    versions = admin.rows("select version, tx_hash from fencepost.nonce_signature order by version")
    assert [(row["version"], row["tx_hash"]) for row in versions] == [(1, "0xaa"), (2, "0xbb")]


@pytest.mark.parametrize("reached", ["SIGNING", "SIGNED", "BROADCAST"])
def test_what_may_have_been_signed_is_never_given_back(
    node: NonceOperator, clock: Clock, app: Caller, reached: str
) -> None:
    node.reserve("a", caller_signs=False, locked="1 second")
    node.signing(0)
    if reached != "SIGNING":
        node.signed(0, "0xaa")
    if reached == "BROADCAST":
        node.broadcast(0)

    node.caller.refused("mismatch", RECYCLABLE, *node.key, 0, 1)
    clock.advance(5)
    assert node.recycle() == []
    clock.advance(60)
    successor = NonceOperator(app, "b/boot-1")
    assert successor.acquire()["adopted"] == 1
    assert statuses(app) == {0: reached}
    assert successor.reserve("b") == [1]


def test_signing_comes_before_the_bytes_and_the_bytes_before_the_broadcast(node: NonceOperator) -> None:
    node.reserve("a")
    node.caller.refused("mismatch", SIGNED, *node.key, 0, 1, "0xaa", b"bytes")
    node.caller.refused("mismatch", BROADCAST, *node.key, 0, 1)
    node.signing(0)
    node.caller.refused("mismatch", BROADCAST, *node.key, 0, 1)
    node.signed(0, "0xaa")
    node.caller.refused("mismatch", SIGNING, *node.key, 0, 1)


def test_time_gives_back_only_what_we_would_have_signed_ourselves(node: NonceOperator, clock: Clock) -> None:
    node.reserve("ours", caller_signs=False, locked="5 seconds")
    node.reserve("his", caller_signs=True, locked="5 seconds")
    clock.advance(4.9)
    assert node.recycle() == []
    clock.advance(0.1)

    assert node.recycle() == [0]
    assert statuses(node.caller) == {0: "RELEASED", 1: "HELD"}


def test_the_chain_is_a_floor_and_nothing_else(node: NonceOperator) -> None:
    node.reserve("a", "b", "c")
    node.recyclable(0)

    assert node.floor(2) == {"next_nonce": 3, "consumed": 2}
    assert statuses(node.caller) == {0: "CONSUMED", 1: "CONSUMED", 2: "HELD"}
    assert node.floor(1) == {"next_nonce": 3, "consumed": 0}
    assert node.floor(10) == {"next_nonce": 10, "consumed": 1}
    assert node.reserve("d") == [10]


def test_the_newest_block_lifts_the_sequence_and_consumes_nothing(node: NonceOperator) -> None:
    node.reserve("a")

    assert node.floor(0, latest=7) == {"next_nonce": 7, "consumed": 0}
    assert statuses(node.caller) == {0: "HELD"}


def test_what_we_signed_is_left_to_the_caller_that_follows_it(node: NonceOperator) -> None:
    node.reserve("a", caller_signs=False)
    node.signing(0)
    node.signed(0, "0xaa")

    assert node.floor(5)["consumed"] == 0
    assert statuses(node.caller) == {0: "SIGNED"}


def test_a_caller_that_speaks_after_the_chain_has_proved_it_adds_the_hash(node: NonceOperator) -> None:
    """The chain counts, and knows no request. The caller is late, and right."""
    node.reserve("a")
    node.floor(1)
    assert statuses(node.caller) == {0: "CONSUMED"}

    node.used(0, tx_hash="0xaa")
    node.used(0, tx_hash="0xaa")

    assert node.reservations("a")[0]["tx_hash"] == "0xaa"
    node.caller.refused("already_finished", USED, *node.key, 0, 1, "0xbb")
    node.caller.refused("already_finished", RECYCLABLE, *node.key, 0, 1)


def test_many_ends_are_answered_each(node: NonceOperator) -> None:
    node.reserve("a", "b", "c")

    rows = node.caller.rows(
        MARK_MANY,
        *node.key,
        [2, 0, 1, 9],
        [1, 1, 7, 1],
        ["used", "recyclable", "used", "used"],
    )

    assert {row["nonce"]: row["refusal"] for row in rows} == {
        0: None,
        1: "stale_attempt",
        2: None,
        9: "not_found",
    }


def test_the_nonce_of_a_managed_transaction_is_its_own_to_settle(node: NonceOperator) -> None:
    """Given back under it, the gap would be the transaction's still, and could not be taken."""
    take: LiteralString = "select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)"
    node.caller.execute(SUBMIT, CHAIN, SIGNER, "pay-1")
    assert node.caller.value(take, *node.key) == 1

    for refused in (
        node.caller.refused("mismatch", RECYCLABLE, *node.key, 0, 1),
        node.caller.refused("mismatch", USED, *node.key, 0, 1, "0xaa"),
    ):
        assert refused.seen["transaction_id"] == 1
    (answer,) = node.caller.rows(MARK_MANY, *node.key, [0], [1], ["recyclable"])
    assert answer["refusal"] == "mismatch"

    assert statuses(node.caller) == {0: "HELD"}
    node.caller.execute(SUBMIT, CHAIN, SIGNER, "pay-2")
    assert node.caller.value(take, *node.key) == 1


def test_no_caller_stores_bytes_for_the_nonce_of_a_managed_transaction(
    node: NonceOperator, admin: Caller
) -> None:
    """They would be sent in its name, and mined they would count as it: something else would be paid."""
    node.caller.execute(SUBMIT, CHAIN, SIGNER, "pay-1")
    node.caller.execute("select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)", *node.key)

    node.caller.refused("mismatch", SIGNING, *node.key, 0, 1)
    assert statuses(node.caller) == {0: "HELD"}
    node.caller.execute(TX_SIGNING, *node.key, 1, 1)
    refused = node.caller.refused("mismatch", SIGNED, *node.key, 0, 1, "0xbb", b"not its bytes")
    assert (refused.seen["transaction_id"], refused.attempted["op"]) == (1, "signed")
    node.caller.execute(TX_SIGNED, *node.key, 1, 1, "0xaa", b"its bytes")
    node.caller.refused("mismatch", SIGNED, *node.key, 0, 1, "0xbb", b"not its bytes")
    node.caller.refused("mismatch", BROADCAST, *node.key, 0, 1)

    assert statuses(node.caller) == {0: "SIGNED"}
    assert admin.column("select tx_hash from fencepost.nonce_signature") == ["0xaa"]
    node.caller.execute(TX_BROADCAST, *node.key, 1, 1)
    node.caller.refused("mismatch", SIGNED, *node.key, 0, 1, "0xbb", b"not its bytes")
    assert statuses(node.caller) == {0: "BROADCAST"}


def test_the_bytes_of_a_transaction_are_stored_for_its_own_nonce_only(node: NonceOperator) -> None:
    """A stale hold, a transaction without a nonce, and one that has ended."""
    node.caller.execute(SUBMIT, CHAIN, SIGNER, "pay-1")
    node.caller.refused("mismatch", TX_SIGNED, *node.key, 1, 1, "0xaa", b"bytes")
    node.caller.execute("select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)", *node.key)
    node.caller.execute(TX_SIGNING, *node.key, 1, 1)
    node.caller.refused("stale_attempt", TX_SIGNED, *node.key, 1, 2, "0xaa", b"bytes")
    node.caller.execute(TX_SIGNED, *node.key, 1, 1, "0xaa", b"bytes")
    node.caller.refused("stale_attempt", TX_BROADCAST, *node.key, 1, 2)
    node.caller.value("select fencepost.nonce_tx_confirm(%s, %s, %s, %s, 1, '0xaa', '{}')", *node.key)
    node.caller.refused("already_finished", TX_SIGNED, *node.key, 1, 1, "0xbb", b"bytes")


BAD: list[tuple[str, LiteralString, tuple[object, ...]]] = [
    ("chain_id", RESERVE, (0, "s", "a", 1, ["r"])),
    ("chain_id", RESERVE, (None, "s", "a", 1, ["r"])),
    ("signer", RESERVE, (1, "", "a", 1, ["r"])),
    ("signer", RESERVE, (1, "0xAB" + "0" * 38, "a", 1, ["r"])),
    ("signer", RESERVE, (1, "0x12", "a", 1, ["r"])),
    ("token", RESERVE, (1, "s", "a", None, ["r"])),
    ("request_id", RESERVE, (1, "s", "a", 1, [""])),
    ("request_id", RESERVE, (1, "s", "a", 1, [None])),
    ("request_id", RESERVE, (1, "s", "a", 1, ["x" * 201])),
    ("request_id", RESERVE, (1, "s", "a", 1, ["tx:7"])),
    ("request_id", RESERVE, (1, "s", "a", 1, ["good", "recovered:0:1"])),
    ("request_ids", RESERVE, (1, "s", "a", 1, None)),
    ("hold", USED, (1, "s", "a", 1, 0, None, None)),
    ("nonce", USED, (1, "s", "a", 1, None, 1, None)),
    ("tx_hash", USED, (1, "s", "a", 1, 0, 1, "x" * 129)),
    ("raw", SIGNED, (1, "s", "a", 1, 0, 1, "0xaa", b"")),
]


def test_bad_input_is_named_and_nothing_is_reserved(app: Caller) -> None:
    for field, query, values in BAD:
        app.invalid(field, query, *values)
    assert app.rows("select * from fencepost.signer_nonce_allocation") == []
