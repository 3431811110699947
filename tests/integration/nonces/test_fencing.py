"""No owner writes after it was taken over: not a fresh nonce, not an old one, not after a restart."""

from collections.abc import Callable
from typing import LiteralString

import pytest

from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun, wait_until_blocked
from tests.integration.nonces.operator import (
    BROADCAST,
    CHAIN,
    LONG,
    RECYCLABLE,
    RESERVE,
    RESOURCE,
    SIGNED,
    SIGNER,
    SIGNING,
    TTL,
    USED,
    NonceOperator,
    statuses,
)

ACQUIRE = "select * from fencepost.nonce_acquire(%s, %s, %s, %s::interval)"


@pytest.fixture
def old(connect: Callable[[], Caller], clock: Clock) -> NonceOperator:
    operator = NonceOperator(connect(), "a/boot-1")
    operator.acquire()
    return operator


@pytest.fixture
def new(connect: Callable[[], Caller]) -> NonceOperator:
    return NonceOperator(connect(), "b/boot-1")


def test_a_takeover_raises_the_token_and_names_the_old_owner(
    old: NonceOperator, new: NonceOperator, clock: Clock
) -> None:
    clock.advance(10)

    row = new.acquire()

    assert (row["token"], row["outcome"]) == (old.token + 1, "acquired")
    events = new.caller.rows("select event, actor, token from fencepost.events order by event_id")
    assert [(e["event"], e["actor"], e["token"]) for e in events] == [
        ("acquired", "a/boot-1", 1),
        ("taken_over", "b/boot-1", 2),
    ]


def test_a_caller_that_asks_while_another_holds_it_is_told_its_name(
    old: NonceOperator, new: NonceOperator
) -> None:
    row = new.acquire()

    assert (row["owner"], row["outcome"], new.token) == ("a/boot-1", "not_owner", 0)


def test_the_old_owner_cannot_insert_a_fresh_nonce(
    old: NonceOperator, new: NonceOperator, clock: Clock
) -> None:
    """The row that it would write is one that the new owner has not touched: only the lease can tell."""
    old.reserve("r1")
    clock.advance(10)
    new.acquire()

    refused = old.refused_reserve("not_owner", "r2")

    assert refused.attempted == {"op": "reserve", "owner": "a/boot-1", "token": 1}
    assert (refused.seen["token"], refused.seen["owner"]) == (2, "b/boot-1")
    assert new.reserve("r2") == [1]


WRITES: dict[str, tuple[LiteralString, tuple[object, ...]]] = {
    "nonce_hand_over": ("select fencepost.nonce_hand_over(%s, %s, %s, %s)", ()),
    "nonce_reserve": (RESERVE, (["r2"],)),
    "nonce_mark_used": (USED, (0, 1, "0xaa")),
    "nonce_mark_recyclable": (RECYCLABLE, (0, 1)),
    "nonce_mark_signing": (SIGNING, (0, 1)),
    "nonce_mark_signed": (SIGNED, (0, 1, "0xaa", b"bytes")),
    "nonce_mark_broadcast": (BROADCAST, (0, 1)),
    "nonce_mark_many": (
        "select * from fencepost.nonce_mark_many(%s, %s, %s, %s, '{0}', '{1}', '{used}')",
        (),
    ),
    "nonce_recycle": ("select * from fencepost.nonce_recycle(%s, %s, %s, %s)", ()),
    "nonce_floor": ("select * from fencepost.nonce_floor(%s, %s, %s, %s, %s)", (5,)),
    "nonce_resume": ("select * from fencepost.nonce_resume(%s, %s, %s, %s, 5, 5)", ()),
    "nonce_tx_expire": ("select fencepost.nonce_tx_expire(%s, %s, %s, %s, 10)", ()),
    "nonce_tx_take": ("select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)", ()),
    "nonce_tx_signing": ("select fencepost.nonce_tx_signing(%s, %s, %s, %s, 1, 1, 5, 1)", ()),
    "nonce_tx_signed": ("select fencepost.nonce_tx_signed(%s, %s, %s, %s, 1, 1, '0xaa', 'bytes')", ()),
    "nonce_tx_broadcast": ("select fencepost.nonce_tx_broadcast(%s, %s, %s, %s, 1, 1)", ()),
    "nonce_tx_unproved": ("select fencepost.nonce_tx_unproved(%s, %s, %s, %s, 1, 'why')", ()),
    "nonce_tx_mined": ("select fencepost.nonce_tx_mined(%s, %s, %s, %s, 1, '0xaa', 1, '0xbb')", ()),
    "nonce_tx_confirm": ("select fencepost.nonce_tx_confirm(%s, %s, %s, %s, 1, '0xaa', '{}')", ()),
    "nonce_tx_lost": ("select fencepost.nonce_tx_lost(%s, %s, %s, %s, 1)", ()),
    "nonce_tx_reject": ("select fencepost.nonce_tx_reject(%s, %s, %s, %s, 1, 'REJECTED', 'why')", ()),
    "nonce_tx_note": ("select fencepost.nonce_tx_note(%s, %s, %s, %s, 1, 'why')", ()),
    "nonce_tx_vouch": ("select fencepost.nonce_tx_vouch(%s, %s, %s, %s, 1)", ()),
    "nonce_tx_close": ("select fencepost.nonce_tx_close(%s, %s, %s, %s, 1, '0xaa', '{}')", ()),
}
FENCED = """
    select proname from pg_proc where pronamespace = 'fencepost'::regnamespace and proname ~ '^nonce_'
    and proargnames[1:4] = '{p_chain_id,p_signer,p_owner,p_token}'
"""


def test_every_write_of_the_old_owner_is_refused(
    old: NonceOperator, new: NonceOperator, clock: Clock
) -> None:
    assert set(WRITES) == set(new.caller.column(FENCED)), "a fenced function that is not tried here"
    old.reserve("r1")
    clock.advance(10)
    new.acquire()

    for query, more in WRITES.values():
        old.caller.refused("not_owner", query, *old.key, *more)
    assert statuses(new.caller) == {0: "HELD"}


def test_the_owner_moves_only_what_is_its_and_where_it_can_go(old: NonceOperator) -> None:
    note, _ = WRITES["nonce_tx_note"]
    assert old.caller.refused("not_found", note, *old.key).seen == {}
    submitted = old.caller.value(
        "select transaction_id from fencepost.nonce_tx_submit(%s, %s, 'pay', 'digest', %s, 5, '', 21000)",
        CHAIN,
        SIGNER,
        SIGNER,
    )
    assert submitted == 1, "the one that all writes are about"

    seen = old.caller.refused("mismatch", note, *old.key).seen
    assert (seen["state"], seen["nonce"]) == ("QUEUED", None)

    take, _ = WRITES["nonce_tx_take"]
    old.caller.execute(take, *old.key)
    confirm, _ = WRITES["nonce_tx_confirm"]
    refused = old.caller.refused("mismatch", confirm, *old.key)
    assert refused.attempted == {"op": "confirm", "tx_hash": "0xaa"}, "that was never signed"
    old.caller.execute("select fencepost.nonce_tx_reject(%s, %s, %s, %s, 1, 'REJECTED', 'why')", *old.key)
    old.caller.refused("already_finished", note, *old.key)


def test_no_caller_goes_on_more_than_a_hundred_thousand_nonces_above(old: NonceOperator) -> None:
    resume = "select next_nonce from fencepost.nonce_resume(%s, %s, %s, %s, %s, %s)"
    old.caller.invalid("next_nonce", resume, *old.key, 7, 100_008)
    assert old.caller.value(resume, *old.key, 100_000_000, 100_000_003) == 100_000_003, "by the chain's count"


def test_a_takeover_waits_for_the_write_that_passed_its_fence(
    old: NonceOperator, new: NonceOperator, clock: Clock, admin: Caller
) -> None:
    """A check without a lock would let the takeover pass between the check and the commit."""
    old.reserve("r1")
    old.caller.execute("begin")
    old.used(0)
    clock.advance(10)
    with begun(new.caller, ACQUIRE, CHAIN, SIGNER, new.owner, TTL) as taking:
        wait_until_blocked(admin, new.caller)
        assert not taking.done()
        old.caller.execute("commit")
        (row,) = taking.result(30)
    new.token = row["token"]
    assert new.reserve("r2") == [1]


def test_the_owners_renewal_passes_its_own_open_write(
    old: NonceOperator, connect: Callable[[], Caller], clock: Clock
) -> None:
    other = connect()
    other.execute("set lock_timeout = '5s'")
    with old.caller.transaction():
        old.reserve("r1")
        renewed = other.row(
            "select * from fencepost.lease_renew(%s, %s, %s, '10 seconds')", RESOURCE, old.owner, old.token
        )
    assert renewed["token"] == old.token


def test_expiry_is_judged_at_the_statement_and_not_at_the_start_of_the_transaction(
    old: NonceOperator, clock: Clock
) -> None:
    with pytest.raises(Exception, match="lease_expired"), old.caller.transaction():  # noqa: PT012
        old.reserve("r1")
        clock.advance(10)
        old.reserve("r2")
    assert statuses(old.caller) == {}


def test_a_restart_under_the_same_name_does_not_get_the_old_token(
    old: NonceOperator, connect: Callable[[], Caller], clock: Clock
) -> None:
    """The boot id makes the restarted node another owner: it waits, and the dead one's writes are refused."""
    restarted = NonceOperator(connect(), "a/boot-2")
    assert restarted.acquire()["outcome"] == "not_owner"
    clock.advance(10)
    restarted.acquire()

    old.refused_reserve("not_owner", "late")
    # Also with the token of the new boot, which it may have read somewhere.
    old.token = restarted.token
    old.refused_reserve("not_owner", "late")


def test_a_deleted_lease_row_does_not_turn_the_token_back(
    old: NonceOperator, new: NonceOperator, clock: Clock, admin: Caller
) -> None:
    clock.advance(10)
    new.acquire()
    assert new.token == 2
    admin.execute("delete from fencepost.lease")

    new.refused_reserve("not_found", "r1")
    old.refused_reserve("not_found", "r1")
    third = NonceOperator(new.caller, "c/boot-1")
    assert third.acquire()["token"] == 3
    old.refused_reserve("not_owner", "r1")
    new.refused_reserve("not_owner", "r1")
    assert third.reserve("r1") == [0]


def test_a_lease_row_that_was_made_by_hand_is_no_right(old: NonceOperator, admin: Caller) -> None:
    """As the deletion, but the row came back from elsewhere with a token that was given out before."""
    admin.execute("update fencepost.nonce_signer set fencing_token = 7")

    old.refused_reserve("not_owner", "r1")


def test_a_takeover_settles_what_the_old_owner_left(
    old: NonceOperator, new: NonceOperator, clock: Clock
) -> None:
    old.reserve("ours", "ours too", "signed", caller_signs=False)
    old.reserve("his", caller_signs=True)
    old.signing(2)
    clock.advance(10)

    row = new.acquire()

    assert (row["released"], row["adopted"]) == (2, 1)
    assert statuses(new.caller) == {0: "RELEASED", 1: "RELEASED", 2: "SIGNING", 3: "HELD"}
    assert new.reserve("next") == [0]


def test_a_release_hands_over_at_once(old: NonceOperator, new: NonceOperator) -> None:
    old.caller.execute("select fencepost.nonce_hand_over(%s, %s, %s, %s)", *old.key)

    assert new.acquire()["token"] == 2
    old.refused_reserve("not_owner", "late")


def test_the_views_show_the_lease_and_the_nonces(old: NonceOperator) -> None:
    old.reserve("r1")

    lease = old.caller.row("select * from fencepost.signer_lease")
    nonce = old.caller.row("select * from fencepost.signer_nonce_allocation")

    columns = {"signer", "owner_node", "fencing_token", "acquired_at", "expires_at", "updated_at"}
    assert columns <= lease.keys()
    assert (lease["signer"], lease["owner_node"], lease["fencing_token"]) == (SIGNER, "a/boot-1", 1)
    columns = {
        "signer",
        "nonce",
        "status",
        "locked_until",
        "fencing_token",
        "tx_hash",
        "created_at",
        "updated_at",
    }
    assert columns <= nonce.keys()


def test_signers_and_chains_do_not_touch_each_other(app: Caller) -> None:
    for chain, name in [(1, "alice"), (1, "bob"), (2, "alice")]:
        token = app.row(ACQUIRE, chain, name, "a", LONG)["token"]
        assert app.row(RESERVE, chain, name, "a", token, ["r"])["nonce"] == 0
