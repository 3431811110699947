"""A backup is restored: what may have been reserved or sent in the lost time is given to no other caller."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, TypeVar

import pytest

from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost.kernel._recover import recover
from tests.integration.kernel.caller import Caller
from tests.integration.nonces.operator import (
    CHAIN,
    LONG,
    RECYCLABLE,
    SIGNER,
    TX_BROADCAST,
    NonceOperator,
    statuses,
)
from tests.isolation.planted_bug import Edit, PlantedBug
from tests.reused_databases import release

T = TypeVar("T")
RECIPIENT = "0x" + "cd" * 20
SUBMIT = "select transaction_id from fencepost.nonce_tx_submit(%s, %s, %s, 'digest', %s, 5, '', 21000)"
TAKE = "select fencepost.nonce_tx_take(%s, %s, %s, %s, 10, 10)"
LOST = "select fencepost.nonce_tx_lost(%s, %s, %s, %s, %s, '0xcc', 7, '0xb7')"
CONFIRM = "select fencepost.nonce_tx_confirm(%s, %s, %s, %s, %s, '0xaa', '{}')"
VOUCH = "select fencepost.nonce_tx_vouch(%s, %s, %s, %s, %s)"
CLOSE = "select fencepost.nonce_tx_close(%s, %s, %s, %s, %s, %s, '{\"block_number\": 7}')"
RESUME = "select * from fencepost.nonce_resume(%s, %s, %s, %s, %s, %s)"
HAND_OVER = "select fencepost.nonce_hand_over(%s, %s, %s, %s)"
OPEN = (
    "select transaction_id, state, nonce, in_doubt_since is not null as in_doubt"
    " from fencepost.managed_transaction"
)


class Backup:
    """A copy of the database, which takes its place after the lost time."""

    def __init__(self, before: Database) -> None:
        self._before = before
        self.database = Database(before.server, f"{before.name}_r")

    def make(self) -> None:
        release(self._before)
        self.database.create(template=self._before.name)

    def restore(self) -> Any:
        return recover(self.database.admin_url, "anna").components["nonces"]


@pytest.fixture
def backup(database: Database) -> Iterator[Backup]:
    backup = Backup(database)
    yield backup
    backup.database.drop()


def at(database: Database, story: Callable[[NonceOperator], T], owner: str = "a") -> T:
    """Tell a part of the story as one node, and leave: a database is copied only when it is alone."""
    caller = Caller(database.url)
    with closing(caller.connection):
        operator = NonceOperator(caller, owner, ttl=LONG)
        operator.acquire()
        told = story(operator)
        caller.execute(HAND_OVER, *operator.key)
        return told


def resume(operator: NonceOperator, latest: int, following: int) -> tuple[int, int]:
    row = operator.caller.row(RESUME, *operator.key, latest, following)
    return row["next_nonce"], row["outside"]


def submit(operator: NonceOperator, key: str) -> int:
    found: int = operator.caller.value(SUBMIT, CHAIN, SIGNER, key, RECIPIENT)
    return found


def transactions(operator: NonceOperator) -> dict[int, tuple[str, int | None, bool]]:
    rows = operator.caller.rows(OPEN)
    return {row["transaction_id"]: (row["state"], row["nonce"], row["in_doubt"]) for row in rows}


def test_nothing_is_reserved_until_a_caller_says_where_it_goes_on(database: Database, backup: Backup) -> None:
    at(database, lambda operator: operator.reserve("r1"))
    backup.make()
    lost = at(database, lambda operator: operator.reserve("r2", "r3"))
    assert backup.restore()["signers"] == 1

    def after(operator: NonceOperator) -> list[int]:
        operator.refused_reserve("not_running", "r4")
        assert operator.reserve("r1") == [0], "what is known is answered"
        assert resume(operator, 0, 3) == (3, 2)
        return operator.reserve("r4", "r5")

    assert set(at(backup.database, after, "b")).isdisjoint(lost)


def test_without_it_the_same_nonce_is_given_twice(database: Database, backup: Backup) -> None:
    """What the test above would not see if a backup knew what comes after it."""
    at(database, lambda operator: operator.reserve("r1"))
    backup.make()
    lost = at(database, lambda operator: operator.reserve("r2"))
    assert at(backup.database, lambda operator: operator.reserve("r4")) == lost


def test_what_was_given_out_above_the_chain_is_held_for_the_caller_that_has_it(
    database: Database, backup: Backup
) -> None:
    at(database, lambda operator: operator.reserve("r1"))
    backup.make()
    backup.restore()

    def after(operator: NonceOperator) -> dict[int, str]:
        # The chain counts three; the fourth and the fifth are somewhere.
        assert resume(operator, 3, 5) == (5, 2)
        operator.floor(4, 4)
        return statuses(operator.caller)

    assert at(backup.database, after, "b") == {0: "CONSUMED", 3: "CONSUMED", 4: "HELD"}


def test_a_gap_of_the_backup_is_not_given_again(database: Database, backup: Backup) -> None:
    """In the lost time another may have taken it; its hold names nothing here."""

    def before(operator: NonceOperator) -> None:
        operator.reserve("r1", "r2")
        operator.recyclable(0)

    at(database, before)
    backup.make()
    lost = at(database, lambda operator: operator.reservations("outside"))
    assert (lost[0]["nonce"], lost[0]["hold"]) == (0, 2)
    assert backup.restore()["nonces"] == 2

    def after(operator: NonceOperator) -> list[int]:
        resume(operator, 0, 2)
        operator.caller.refused("stale_attempt", RECYCLABLE, *operator.key, 0, 2)
        return operator.reserve("r3")

    assert at(backup.database, after, "b") == [2]


def test_a_caller_that_gave_a_nonce_back_in_the_lost_time_does_not_give_it_back_again(
    database: Database, backup: Backup
) -> None:
    """It may be another's since. A caller that still has it asks again, and gets it under a new hold."""
    at(database, lambda operator: operator.reserve("r1"))
    backup.make()

    def meanwhile(operator: NonceOperator) -> list[int]:
        operator.recyclable(0)
        return operator.reserve("another")

    assert at(database, meanwhile) == [0]
    backup.restore()

    def after(operator: NonceOperator) -> None:
        resume(operator, 0, 1)
        operator.caller.refused("stale_attempt", RECYCLABLE, *operator.key, 0, 1)
        assert operator.reserve("r2") == [1]
        (again,) = operator.reservations("r1")
        assert (again["nonce"], again["hold"] > 1_000_000) == (0, True)
        operator.used(0, again["hold"])

    at(backup.database, after, "b")


def test_a_transaction_that_may_have_been_sent_takes_no_nonce(database: Database, backup: Backup) -> None:
    """Queued in the backup, and mined in the lost time: sent again it would be paid twice."""
    queued = at(database, lambda operator: submit(operator, "pay-1"))
    backup.make()
    assert at(database, lambda operator: operator.caller.value(TAKE, *operator.key)) == 1
    assert backup.restore()["transactions_in_doubt"] == 1

    def after(operator: NonceOperator) -> None:
        assert operator.caller.value(TAKE, *operator.key) == 0, "the signer waits"
        resume(operator, 1, 1)
        assert operator.caller.value(TAKE, *operator.key) == 0, "and so does what is in doubt"
        fresh = submit(operator, "pay-2")
        assert fresh > queued + 1_000_000, "an id of the lost time names nothing here"
        assert operator.caller.value(TAKE, *operator.key) == 1
        assert transactions(operator) == {queued: ("QUEUED", None, True), fresh: ("BOUND", 1, False)}
        operator.caller.execute(VOUCH, *operator.key, queued)
        assert operator.caller.value(TAKE, *operator.key) == 1

    at(backup.database, after, "b")


def test_a_nonce_that_was_only_reserved_belongs_to_a_caller_after_a_restore(
    database: Database, backup: Backup
) -> None:
    def before(operator: NonceOperator) -> int:
        bound = submit(operator, "pay-1")
        operator.caller.execute(TAKE, *operator.key)
        return bound

    bound = at(database, before)
    backup.make()
    backup.restore()

    def after(operator: NonceOperator) -> None:
        resume(operator, 0, 1)
        assert transactions(operator) == {bound: ("QUEUED", None, True)}
        assert statuses(operator.caller) == {0: "HELD"}
        assert operator.recycle() == []
        operator.caller.execute(CLOSE, *operator.key, bound, "0xfeed")
        assert transactions(operator) == {bound: ("CONFIRMED", None, False)}

    at(backup.database, after, "b")


def test_a_sent_transaction_in_doubt_never_takes_another_nonce(database: Database, backup: Backup) -> None:
    """In the lost time it may have been replaced: the hash that was mined is not written down here."""

    def before(operator: NonceOperator) -> int:
        sent = submit(operator, "pay-1")
        operator.caller.execute(TAKE, *operator.key)
        operator.tx_signed(sent, "0xaa")
        operator.caller.execute(TX_BROADCAST, *operator.key, sent, 1)
        return sent

    sent = at(database, before)
    backup.make()
    backup.restore()

    def after(operator: NonceOperator) -> None:
        resume(operator, 1, 1)
        operator.caller.refused("mismatch", CLOSE, *operator.key, sent, "0xbb")
        operator.floor(1, 1)
        operator.caller.refused("mismatch", LOST, *operator.key, sent)
        assert transactions(operator) == {sent: ("BOUND", 0, True)}
        operator.caller.execute(CLOSE, *operator.key, sent, "0xbb")
        assert (transactions(operator), statuses(operator.caller)) == (
            {sent: ("CONFIRMED", 0, False)},
            {0: "CONSUMED"},
        )

    at(backup.database, after, "b")


def test_what_has_ended_is_in_doubt_no_longer(database: Database, backup: Backup) -> None:
    """Mined as a version that is recorded here, or cancelled: no person has to decide anything any more."""

    def before(operator: NonceOperator) -> tuple[int, int]:
        sent, waiting = submit(operator, "pay-1"), submit(operator, "pay-2")
        operator.caller.execute("select fencepost.nonce_tx_take(%s, %s, %s, %s, 1, 1)", *operator.key)
        operator.tx_signed(sent, "0xaa")
        return sent, waiting

    sent, waiting = at(database, before)
    backup.make()
    backup.restore()

    def after(operator: NonceOperator) -> None:
        resume(operator, 1, 1)
        assert operator.caller.value("select in_doubt from fencepost.nonce_measures()") == 2
        operator.caller.value(
            "select fencepost.nonce_tx_confirm(%s, %s, %s, %s, %s, '0xaa', '{}')", *operator.key, sent
        )
        operator.caller.value("select fencepost.nonce_tx_cancel(%s)", waiting)
        assert transactions(operator) == {sent: ("CONFIRMED", 0, False), waiting: ("CANCELLED", None, False)}
        assert operator.caller.value("select in_doubt from fencepost.nonce_measures()") == 0

    at(backup.database, after, "b")


def test_a_signer_of_the_lost_time_waits_too_until_the_recovery_is_closed(
    database: Database, backup: Backup, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backup.make()
    backup.restore()
    at(backup.database, lambda operator: operator.refused_reserve("not_running", "r1"), "b")
    monkeypatch.setenv("DATABASE_URL", backup.database.url)

    assert run(["nonces", "resume"]) == ExitCode.USAGE, "no chain can be asked"
    assert run(["nonces", "resume", str(CHAIN), SIGNER, "--next", "4"]) == ExitCode.OK
    assert run(["nonces", "resume"]) == ExitCode.OK

    assert "next nonce 4; 4 below it are outside" in capsys.readouterr().out
    assert at(backup.database, lambda operator: operator.reserve("r1"), "c") == [4]


Story = Callable[[Database, Backup], None]
BUGS: list[tuple[str, Edit, Story]] = [
    (
        "a signer gives out at once",
        Edit("_nonce_reserve", "if v_signer.recovering_since is not null", "if false"),
        test_nothing_is_reserved_until_a_caller_says_where_it_goes_on,
    ),
    (
        "a gap stays a gap",
        Edit("_recover_nonces", "where a.status in ('RELEASED', 'HELD')", "where a.status = 'HELD'"),
        test_a_gap_of_the_backup_is_not_given_again,
    ),
    (
        "holds go on where they were",
        Edit("_recover_nonces", "hold = a.hold + fencepost._recover_jump()", "hold = a.hold"),
        test_a_caller_that_gave_a_nonce_back_in_the_lost_time_does_not_give_it_back_again,
    ),
    (
        "what is in doubt is taken",
        Edit("nonce_tx_take", "and t.in_doubt_since is null", ""),
        test_a_transaction_that_may_have_been_sent_takes_no_nonce,
    ),
    (
        "what is in doubt is lost",
        Edit("nonce_tx_lost", "v_tx.in_doubt_since is not null\n     or ", ""),
        test_a_sent_transaction_in_doubt_never_takes_another_nonce,
    ),
    (
        "an unsigned reservation is ours as before",
        Edit("_recover_nonces", "caller_signs = true,", ""),
        test_a_nonce_that_was_only_reserved_belongs_to_a_caller_after_a_restore,
    ),
]


@pytest.mark.parametrize(("title", "edit", "story"), BUGS, ids=[bug[0] for bug in BUGS])
def test_a_planted_bug_is_noticed(
    database: Database, backup: Backup, title: str, edit: Edit, story: Story
) -> None:
    PlantedBug(title, "", (edit,)).plant(database)

    with pytest.raises((AssertionError, pytest.fail.Exception)):
        story(database, backup)
