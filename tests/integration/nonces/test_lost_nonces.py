"""A signed transaction gives its nonce up only for a named foreign transaction; else it waits.

The database holds the rule too: whatever a process believes, a hash that was signed here is no stranger's.
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.errors import Mismatch
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked
from tests.integration.nonces.operator import (
    CHAIN,
    LONG,
    RECYCLABLE,
    SIGNED,
    SIGNER,
    TX_BROADCAST,
    TX_SIGNED,
    NonceOperator,
    statuses,
)
from tests.isolation.planted_bug import Edit, PlantedBug

SUBMIT: LiteralString = "select fencepost.nonce_tx_submit(%s, %s, %s, 'digest', null, 5, 'code', 50000)"
TAKE: LiteralString = "select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)"
LOST: LiteralString = "select fencepost.nonce_tx_lost(%s, %s, %s, %s, 1, %s, %s, %s)"
UNPROVED: LiteralString = "select fencepost.nonce_tx_unproved(%s, %s, %s, %s, 1, 'unproved: why')"
VOUCH: LiteralString = "select fencepost.nonce_tx_vouch(%s, %s, %s, %s, 1)"
CLOSE: LiteralString = "select fencepost.nonce_tx_close(%s, %s, %s, %s, 1, '0xcc', '{\"block_number\": 7}')"
SHOWN: LiteralString = (
    "select state, nonce, error, unproved_since is not null as unproved from fencepost.managed_transaction"
)


@pytest.fixture
def node(app: Caller, clock: Clock) -> NonceOperator:
    """Its transaction 1 was sent with nonce 0, and replaced once."""
    operator = NonceOperator(app, "a/boot-1", ttl=LONG)
    operator.acquire()
    app.execute(SUBMIT, CHAIN, SIGNER, "pay-1")
    app.execute(TAKE, *operator.key)
    operator.tx_signed(1, "0xaa")
    app.execute(TX_BROADCAST, *operator.key, 1, 1)
    app.execute(TX_SIGNED, *operator.key, 1, 1, "0xab", b"replacement")
    return operator


def shown(node: NonceOperator) -> tuple[str, int | None, bool]:
    row: dict[str, Any] = node.caller.row(SHOWN)
    return row["state"], row["nonce"], row["unproved"]


def unproved(node: NonceOperator) -> int:
    count: int = node.caller.value("select unproved from fencepost.nonce_measures()")
    return count


@pytest.mark.parametrize(
    ("used_by", "number", "block"),
    [
        (None, None, None),
        (None, 7, "0xb7"),
        ("0xcc", None, "0xb7"),
        ("0xcc", 7, None),
        ("0xab", 7, "0xb7"),
        ("0xaa", 7, "0xb7"),
        ("0xAA", 7, "0xb7"),
    ],
    ids=["no proof", "no hash", "no number", "no block", "the newest version", "the first version", "case"],
)
def test_without_a_transaction_of_another_process_no_nonce_is_given_up(
    node: NonceOperator, used_by: str | None, number: int | None, block: str | None
) -> None:
    node.floor(1, 1)

    node.caller.refused("mismatch", LOST, *node.key, used_by, number, block)

    assert (shown(node), statuses(node.caller)) == (("BOUND", 0, False), {0: "BROADCAST"})


def test_before_the_chain_has_counted_it_for_good_no_nonce_is_given_up(node: NonceOperator) -> None:
    node.floor(0, 1)
    node.caller.refused("mismatch", LOST, *node.key, "0xcc", 7, "0xb7")
    assert shown(node) == ("BOUND", 0, False)


def test_for_a_foreign_transaction_it_takes_another_nonce_and_reports_which(node: NonceOperator) -> None:
    node.floor(1, 1)
    node.caller.execute(UNPROVED, *node.key)

    node.caller.execute(LOST, *node.key, "0xcc", 7, "0xb7")

    assert shown(node) == ("QUEUED", None, False)
    assert "used by 0xcc in block 7" in node.caller.row(SHOWN)["error"]
    (lost,) = node.caller.rows("select status, tx_hash from fencepost.signer_nonce_allocation")
    assert (lost["status"], lost["tx_hash"]) == ("CONSUMED", "0xcc")
    assert node.caller.value(TAKE, *node.key) == 1
    assert shown(node) == ("BOUND", 1, False)


def test_what_is_not_proved_keeps_its_nonce_and_is_shown_after_a_minute(
    node: NonceOperator, clock: Clock
) -> None:
    node.floor(1, 1)

    node.caller.execute(UNPROVED, *node.key)

    assert shown(node) == ("BOUND", 0, True)
    assert unproved(node) == 0, "an endpoint that lags catches up"
    clock.advance(61)
    node.caller.execute(UNPROVED, *node.key)
    assert unproved(node) == 1, "being asked again does not make it younger"
    node.caller.execute("select fencepost.nonce_tx_mined(%s, %s, %s, %s, 1, '0xaa', 7, '0xb7')", *node.key)
    assert (shown(node), unproved(node)) == (("MINED", 0, False), 0)


def test_a_person_closes_what_is_not_proved_or_has_it_sent_again(node: NonceOperator) -> None:
    node.caller.refused("mismatch", CLOSE, *node.key)
    node.caller.execute(UNPROVED, *node.key)
    for decision in (CLOSE, VOUCH):
        node.caller.refused("mismatch", decision, *node.key)
    node.floor(1, 1)

    node.caller.execute(VOUCH, *node.key)

    assert (shown(node), statuses(node.caller)) == (("QUEUED", None, False), {0: "CONSUMED"})
    node.caller.refused("mismatch", CLOSE, *node.key)


def test_a_person_tells_as_what_it_was_mined(node: NonceOperator) -> None:
    node.floor(1, 1)
    node.caller.execute(UNPROVED, *node.key)
    node.caller.execute(CLOSE, *node.key)
    assert (shown(node), statuses(node.caller)) == (("CONFIRMED", 0, False), {0: "CONSUMED"})


def a_version_of_ours_is_no_strangers(node: NonceOperator) -> None:
    node.floor(1, 1)
    node.caller.refused("mismatch", LOST, *node.key, "0xab", 7, "0xb7")


def a_stranger_has_a_name(node: NonceOperator) -> None:
    node.floor(1, 1)
    node.caller.refused("mismatch", LOST, *node.key, None, 7, "0xb7")


def a_count_that_may_be_taken_back_is_no_proof(node: NonceOperator) -> None:
    node.floor(0, 1)
    node.caller.refused("mismatch", LOST, *node.key, "0xcc", 7, "0xb7")


def bytes_from_outside_are_refused(node: NonceOperator) -> None:
    node.caller.refused("mismatch", SIGNED, *node.key, 0, 1, "0xdd", b"not its bytes")


def a_mark_that_waited_for_the_binding_is_refused(node: NonceOperator) -> None:
    """A gap is being bound to a transaction when a caller that guesses the next hold marks it."""
    (gap,) = node.reserve("gap")
    node.recyclable(gap)
    node.caller.execute(SUBMIT, CHAIN, SIGNER, "pay-2")
    with closing(Caller(node.caller.url)) as outside, closing(Caller(node.caller.url)) as watching:
        node.caller.execute("begin")
        node.caller.execute(TAKE, *node.key)
        with begun(outside, RECYCLABLE, *node.key, gap, 2) as marking:
            wait_until_blocked(watching, outside)
            node.caller.execute("commit")
        with pytest.raises(psycopg.Error) as refused:
            marking.result(60)
    assert refused.value.sqlstate == Mismatch.sqlstate
    assert statuses(node.caller)[gap] == "HELD"


MARK = (
    "perform fencepost._nonce_mark(p_op, p_chain_id, p_signer, p_owner, p_token, p_nonce, p_hold, p_tx_hash);"
)
REFUSE_BOUND = "perform fencepost._nonce_refuse_bound(p_op, p_chain_id, p_signer, p_nonce, p_hold);"
BUGS: list[tuple[str, Edit, Callable[[NonceOperator], None]]] = [
    (
        "a version of ours counts as a stranger's",
        Edit("nonce_tx_lost", "lower(n.tx_hash) = lower(p_used_by)", "false"),
        a_version_of_ours_is_no_strangers,
    ),
    (
        "a nonce is given up without a stranger's name",
        Edit("nonce_tx_lost", "or p_used_by is null or", "or"),
        a_stranger_has_a_name,
    ),
    (
        "a nonce is given up before it is counted for good",
        Edit("nonce_tx_lost", "and s.chain_count > v_tx.nonce", ""),
        a_count_that_may_be_taken_back_is_no_proof,
    ),
    (
        "bytes from outside are stored for a managed transaction",
        Edit(
            "nonce_mark_signed",
            "perform fencepost._nonce_refuse_bound('signed', p_chain_id, p_signer, p_nonce, p_hold);",
            "",
        ),
        bytes_from_outside_are_refused,
    ),
    (
        "whether a transaction holds the nonce is asked before the nonce is locked",
        Edit(
            "_nonce_mark_unmanaged",
            f"{MARK}\n  {REFUSE_BOUND}",
            f"{REFUSE_BOUND}\n  {MARK}",
        ),
        a_mark_that_waited_for_the_binding_is_refused,
    ),
]


@pytest.mark.parametrize("story", [bug[2] for bug in BUGS], ids=[bug[2].__name__ for bug in BUGS])
def test_the_rule_holds(node: NonceOperator, story: Callable[[NonceOperator], None]) -> None:
    story(node)


@pytest.mark.parametrize(("title", "edit", "story"), BUGS, ids=[bug[0] for bug in BUGS])
def test_a_planted_bug_is_noticed(
    database: Database, node: NonceOperator, title: str, edit: Edit, story: Callable[[NonceOperator], None]
) -> None:
    PlantedBug(title, "", (edit,)).plant(database)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        story(node)
