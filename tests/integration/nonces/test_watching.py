"""What is watched of all signers, and what is forgotten of them: never a nonce, and never a key."""

from typing import Any

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Clock
from fencepost_nonces._settings import NoncesSettings
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import CHAIN, SIGNER, NonceOperator, statuses
from tests.integration.nonces.test_http import served

SUBMIT = "select * from fencepost.nonce_tx_submit(%s, %s, %s, 'digest', null, 0, 'contract', 50000)"
PRUNE = "select fencepost.nonce_prune('30 minutes', %s)"


def measures(app: Caller) -> dict[str, Any]:
    return app.row("select * from fencepost.nonce_measures()")


def operator(app: Caller) -> NonceOperator:
    node = NonceOperator(app, "a/boot-1")
    node.acquire()
    return node


def test_a_gap_is_counted_for_any_holder_of_the_signer_and_apart_when_it_blocks(
    app: Caller, clock: Clock
) -> None:
    node = operator(app)
    node.reserve("a", "b")
    node.recyclable(1)
    assert (measures(app)["gaps"], measures(app)["jamming"]) == (1, 0), "nothing is under way above it"
    node.recyclable(0)
    node.reserve("c", "d", "e")
    node.recyclable(1, hold=2)

    clock.advance(11)

    assert (measures(app)["gaps"], measures(app)["jamming"]) == (1, 1), "also when no node holds the signer"


def test_a_caller_that_says_nothing_in_its_time_is_counted_and_asked_for(app: Caller, clock: Clock) -> None:
    node = operator(app)
    node.reserve("mine", "told", locked="5 seconds")
    node.reserve("ours", caller_signs=False, locked="5 seconds")
    node.used(1)
    node.signing(0)
    assert measures(app)["overdue"] == 0
    clock.advance(5)

    assert measures(app)["overdue"] == 1
    unanswered = "select * from fencepost.nonce_unanswered(%s, 10)"
    assert app.rows(unanswered, [CHAIN, 7]) == [{"chain_id": CHAIN, "signer": SIGNER, "nonce": 0}]
    assert app.rows(unanswered, [7]) == []


def submitted(app: Caller, key: str) -> int:
    return int(app.row(SUBMIT, CHAIN, SIGNER, key)["transaction_id"])


def test_pruning_forgets_bytes_and_data_and_neither_a_nonce_nor_a_key(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    node = operator(app)
    node.reserve("a", "b")
    for nonce, tx_hash in enumerate(("0xaa", "0xbb")):
        node.signing(nonce)
        node.signed(nonce, tx_hash)
    node.used(0, tx_hash="0xaa")
    ended, waiting = submitted(app, "pay-1"), submitted(app, "pay-2")
    app.execute("select * from fencepost.nonce_tx_cancel(%s)", ended)
    assert app.value(PRUNE, 10) == 0, "nothing has had its time"
    clock.advance(3600)

    assert app.value(PRUNE, 10) == 1
    assert app.value(PRUNE, 10) == 0

    assert admin.column("select nonce from fencepost.nonce_signature") == [1], "it may still be sent"
    kept = admin.rows("select transaction_id, data from fencepost.nonce_transaction order by 1")
    assert [(row["transaction_id"], bytes(row["data"])) for row in kept] == [
        (ended, b""),
        (waiting, b"contract"),
    ]
    node.acquire()
    assert statuses(app) == {0: "CONSUMED", 1: "SIGNED"}
    assert node.reserve("a", "b", "c") == [0, 1, 2], "a repeat is a repeat, however late"
    repeat = app.row(SUBMIT, CHAIN, SIGNER, "pay-1")
    assert (repeat["transaction_id"], repeat["state"], repeat["repeated"]) == (ended, "CANCELLED", True)


def test_the_bytes_of_a_transaction_that_is_followed_are_kept(
    app: Caller, admin: Caller, clock: Clock
) -> None:
    """As after a report that its nonce is used; which version was mined, only the bytes tell."""
    node = operator(app)
    followed = submitted(app, "pay-1")
    app.execute("select fencepost.nonce_tx_take(%s, %s, %s, %s, 1, 1)", *node.key)
    node.tx_signed(followed, "0xaa")
    admin.execute("update fencepost.nonce_allocation set status = 'CONSUMED'")
    clock.advance(3600)

    assert app.value(PRUNE, 10) == 0
    assert admin.column("select nonce from fencepost.nonce_signature") == [0]


def test_a_service_does_its_maintenance_by_itself(
    app: Caller, admin: Caller, database: Database, clock: Clock
) -> None:
    """It watches, asks, and forgets, in this order: who has forgotten has done the rest too."""
    node = operator(app)
    node.reserve("a")
    node.signing(0)
    node.signed(0, "0xaa")
    node.used(0)
    clock.advance(86_400)

    with served(database, NoncesSettings(keep_days=0.5), roles=["nonces"]):
        Deadline(60, "the bytes are forgotten").wait(
            lambda: admin.column("select nonce from fencepost.nonce_signature") == []
        )


def test_pruning_is_done_in_portions(app: Caller, clock: Clock) -> None:
    node = operator(app)
    node.reserve("a", "b", "c")
    for nonce in range(3):
        node.signing(nonce)
        node.signed(nonce, f"0x{nonce}")
        node.used(nonce)
    clock.advance(3600)

    assert [app.value(PRUNE, 2) for _ in range(3)] == [2, 1, 0]
