"""The wrong forms of this lease, each planted once: what we lean on is what keeps the late writer out.

A scenario answers whether the wrong thing happened. It must not with the functions as they are, and it must
with the bug planted: otherwise the scenario sees nothing.
"""

from collections.abc import Callable
from concurrent.futures import TimeoutError as NotYet
from dataclasses import dataclass

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.testing import Clock
from tests.integration.kernel.caller import Caller
from tests.integration.kernel.overlap import begun
from tests.integration.nonces.operator import CHAIN, RESOURCE, SIGNER, TTL, NonceOperator
from tests.isolation.planted_bug import Edit, PlantedBug

ACQUIRE = "select * from fencepost.nonce_acquire(%s, %s, %s, %s::interval)"
LOOK = "where l.resource = v_resource and l.token = p_token and l.owner = p_owner for key share;"


@dataclass
class WrongForms:
    old: NonceOperator
    new: NonceOperator
    clock: Clock
    admin: Caller
    connect: Callable[[], Caller]


def passes(operator: NonceOperator, request_id: str) -> bool:
    """Whether the node's reservation is accepted."""
    try:
        operator.reserve(request_id)
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith("ZF"):
            return False
        raise
    return True


def the_old_owner_inserts_a_fresh_nonce(harness: WrongForms) -> bool:
    """What the new owner has written is guarded in any case; there is no row yet of the next nonce."""
    harness.clock.advance(10)
    harness.new.acquire()
    harness.new.reserve("new")
    with pytest.raises(psycopg.Error) as refused:
        harness.old.used(0)
    assert (refused.value.sqlstate or "").startswith("ZF"), "the guard does not even guard a written row"
    return passes(harness.old, "late")


def a_takeover_passes_an_open_write(harness: WrongForms) -> bool:
    """The old owner has written and not committed when the other takes over.

    A mark and not a reservation: that one locks the signer's row too, where the takeover would wait as well.
    """
    harness.old.reserve("open")
    harness.old.caller.execute("begin")
    harness.old.used(0)
    harness.clock.advance(10)
    with begun(harness.new.caller, ACQUIRE, CHAIN, SIGNER, harness.new.owner, TTL) as taking:
        try:
            taking.result(1)
        except NotYet:
            passed = False
        else:
            passed = True
        harness.old.caller.execute("commit")
    return passed


def the_owners_renewal_waits(harness: WrongForms) -> bool:
    renewing = harness.connect()
    renewing.execute("set lock_timeout = '300ms'")
    harness.old.caller.execute("begin")
    harness.old.reserve("open")
    try:
        renewing.execute("select fencepost.lease_renew(%s, 'a/boot-1', 1, '10 seconds')", RESOURCE)
    except psycopg.errors.LockNotAvailable:
        return True
    finally:
        harness.old.caller.execute("commit")
    return False


def an_old_transaction_does_not_notice_the_expiry(harness: WrongForms) -> bool:
    harness.old.caller.execute("begin")
    harness.old.reserve("first")
    harness.clock.advance(10)
    accepted = passes(harness.old, "late")
    harness.old.caller.execute("rollback")
    return accepted


def a_restarted_node_shares_the_dead_ones_token(harness: WrongForms) -> bool:
    restarted = NonceOperator(harness.new.caller, harness.old.owner.replace("boot-1", "boot-2"))
    if restarted.acquire()["outcome"] == "not_owner":
        harness.clock.advance(10)
        restarted.acquire()
    return passes(harness.old, "late")


def a_deleted_row_lets_the_token_begin_again(harness: WrongForms) -> bool:
    harness.admin.execute("delete from fencepost.lease")
    successor = NonceOperator(harness.new.caller, harness.old.owner)
    successor.acquire()
    return passes(harness.old, "late")


WRONG_FORMS = (
    PlantedBug(
        "tokens are compared on the written row: it does not know a row that is not there yet",
        "the_old_owner_inserts_a_fresh_nonce",
        (
            Edit("_nonce_fence", "if v_refusal is not null then", "if false then"),
            Edit("_nonce_fence", "v_highest is distinct from p_token", "false"),
            Edit(
                "_nonce_move",
                "if v_row.hold is distinct from p_hold then",
                "if v_row.hold is distinct from p_hold or v_row.fencing_token > p_token then",
            ),
            Edit(
                "_nonce_reserve",
                "where a.signer_id = p_signer_id and a.nonce = any (v_gaps)",
                "where a.signer_id = p_signer_id and a.nonce = any (v_gaps) and a.fencing_token <= p_token",
            ),
        ),
    ),
    PlantedBug(
        "the lease is checked and not locked",
        "a_takeover_passes_an_open_write",
        (Edit("_nonce_fence", "for key share;", ";"),),
    ),
    PlantedBug(
        "KEY SHARE is taken while the token is in no key",
        "a_takeover_passes_an_open_write",
        (Edit("_lease_try", "where l.resource = p_resource for update", "where l.resource = p_resource"),),
        ("alter table fencepost.lease drop constraint lease_fence_key",),
    ),
    PlantedBug(
        "the lock blocks the owner's own renewal",
        "the_owners_renewal_waits",
        (Edit("_nonce_fence", "for key share;", "for share;"),),
    ),
    PlantedBug(
        "expiry is judged by now()",
        "an_old_transaction_does_not_notice_the_expiry",
        (Edit("_nonce_fence", "v_now := fencepost.clock();", "v_now := now();"),),
    ),
    PlantedBug(
        "an owner is a name without a boot id",
        "a_restarted_node_shares_the_dead_ones_token",
        (
            Edit(
                "nonce_acquire",
                "_lease_try(v_resource, p_owner, p_ttl)",
                "_lease_try(v_resource, split_part(p_owner, '/', 1) || '/boot-1', p_ttl)",
            ),
        ),
    ),
    PlantedBug(
        "a new lease row begins at token 1, whatever was before",
        "a_deleted_row_lets_the_token_begin_again",
        (Edit("nonce_acquire", "v_held.token <= v_signer.fencing_token", "false"),),
    ),
)
SCENARIOS: dict[str, Callable[[WrongForms], bool]] = {
    scenario.__name__: scenario
    for scenario in (
        the_old_owner_inserts_a_fresh_nonce,
        a_takeover_passes_an_open_write,
        the_owners_renewal_waits,
        an_old_transaction_does_not_notice_the_expiry,
        a_restarted_node_shares_the_dead_ones_token,
        a_deleted_row_lets_the_token_begin_again,
    )
}


@pytest.fixture
def harness(connect: Callable[[], Caller], clock: Clock, admin: Caller) -> WrongForms:
    old = NonceOperator(connect(), "a/boot-1")
    old.acquire()
    return WrongForms(old, NonceOperator(connect(), "b/boot-1"), clock, admin, connect)


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_it_does_not_happen(harness: WrongForms, scenario: Callable[[WrongForms], bool]) -> None:
    assert not scenario(harness)


@pytest.mark.parametrize("bug", WRONG_FORMS, ids=lambda bug: bug.title)
def test_it_happens_when_the_bug_is_planted(harness: WrongForms, database: Database, bug: PlantedBug) -> None:
    bug.plant(database)

    assert SCENARIOS[bug.noticed_by](harness)
