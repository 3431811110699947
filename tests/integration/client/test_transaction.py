"""A transaction of ours keeps its word: it commits what its block wrote, or says that it did not."""

from collections.abc import Callable
from typing import Any, LiteralString

import psycopg
import pytest

from fencepost import (
    Call,
    Duplicate,
    InFlight,
    InvalidInput,
    Mismatch,
    NotFound,
    NotOwner,
    RefusedTransaction,
)
from fencepost.embedded import Database
from fencepost.kernel import idempotency, lease, outbox
from tests.integration.client.conftest import words
from tests.integration.client.facade import Facade, FacadeTransaction


class ChangeOfMindError(Exception):
    """The user's own reason to roll back."""


def write(tx: FacadeTransaction, word: str) -> None:
    tx.execute("insert into public.note values (%s)", (word,))


def be_refused(tx: FacadeTransaction) -> None:
    tx.run(lease.fence("nobody's", 1))


def fail(tx: FacadeTransaction) -> None:
    tx.execute("select 1 / 0")


def end_own_backend(tx: FacadeTransaction) -> None:
    tx.execute("select pg_terminate_backend(pg_backend_pid())")


def test_a_block_commits_what_it_wrote(facade: Facade, admin: psycopg.Connection) -> None:
    with facade.transaction() as tx:
        write(tx, "mine")
        tx.run(outbox.put("mail", {}))

    assert words(admin) == ["mine"]
    assert admin.execute("select count(*) from fencepost.outbox_messages").fetchone() == (1,)


def test_an_exception_rolls_back_and_leaves_the_block(facade: Facade, admin: psycopg.Connection) -> None:
    def change_of_mind() -> None:
        with facade.transaction() as tx:
            write(tx, "mine")
            raise ChangeOfMindError

    with pytest.raises(ChangeOfMindError):
        change_of_mind()
    assert words(admin) == []


def test_a_refusal_rolls_back_and_leaves_the_block(facade: Facade, admin: psycopg.Connection) -> None:
    def write_late() -> None:
        with facade.transaction() as tx:
            write(tx, "late")
            be_refused(tx)

    with pytest.raises(NotFound):
        write_late()
    assert words(admin) == []


def test_a_refusal_that_was_caught_does_not_commit(facade: Facade, admin: psycopg.Connection) -> None:
    def swallow() -> None:
        with facade.transaction() as tx:
            write(tx, "late")
            with pytest.raises(NotFound):
                be_refused(tx)

    with pytest.raises(RefusedTransaction, match="nobody's") as caught:
        swallow()
    assert isinstance(caught.value.__cause__, NotFound)
    assert words(admin) == []


def test_a_refusal_that_was_caught_outside_a_savepoint_does_not_commit_either(
    facade: Facade, admin: psycopg.Connection
) -> None:
    """PostgreSQL would commit here: the savepoint has undone the failure, and the fence with it."""

    def swallow() -> None:
        with facade.transaction() as tx:
            with pytest.raises(NotFound), tx.savepoint():
                be_refused(tx)
            write(tx, "without a fence")

    with pytest.raises(RefusedTransaction):
        swallow()
    assert words(admin) == []


def test_an_error_that_was_caught_is_no_silent_rollback(facade: Facade, admin: psycopg.Connection) -> None:
    def swallow() -> None:
        with facade.transaction() as tx:
            write(tx, "lost")
            with pytest.raises(psycopg.errors.DivisionByZero):
                fail(tx)

    with pytest.raises(RefusedTransaction, match=r"savepoint\(\)"):
        swallow()
    assert words(admin) == []


def test_a_wrong_argument_that_was_caught_is_no_silent_rollback(facade: Facade) -> None:
    def swallow() -> None:
        with facade.transaction() as tx, pytest.raises(InvalidInput):
            tx.run(lease.acquire("", "me", 60))

    with pytest.raises(RefusedTransaction):
        swallow()


def test_a_savepoint_lets_a_part_fail_alone(facade: Facade, admin: psycopg.Connection) -> None:
    def fail_inside(tx: FacadeTransaction) -> None:
        with tx.savepoint():
            write(tx, "inside")
            fail(tx)

    with facade.transaction() as tx:
        write(tx, "before")
        with pytest.raises(psycopg.errors.DivisionByZero):
            fail_inside(tx)
        write(tx, "after")

    assert words(admin) == ["before", "after"]


def test_a_block_that_ends_its_own_transaction_is_told_so(facade: Facade) -> None:
    def commit_by_hand() -> None:
        with facade.transaction() as tx:
            tx.execute("commit")

    with pytest.raises(RefusedTransaction, match="by itself"):
        commit_by_hand()


def test_nothing_is_written_through_a_transaction_that_has_ended(
    facade: Facade, admin: psycopg.Connection
) -> None:
    with facade.transaction() as tx:
        write(tx, "inside")

    with pytest.raises(RefusedTransaction, match="has ended"):
        write(tx, "outside")
    with pytest.raises(RefusedTransaction, match="has ended"):
        tx.run(outbox.put("mail", {}))
    assert words(admin) == ["inside"]


def test_the_error_of_the_block_is_not_hidden_by_a_dead_connection(facade: Facade) -> None:
    def die_and_change_mind() -> None:
        with facade.transaction() as tx:
            with pytest.raises(psycopg.OperationalError):
                end_own_backend(tx)
            raise ChangeOfMindError

    with pytest.raises(ChangeOfMindError):
        die_and_change_mind()


def test_a_connection_that_broke_inside_the_block_has_committed_nothing(
    facade: Facade, admin: psycopg.Connection
) -> None:
    """That is no doubt: COMMIT was never sent."""

    def die_and_go_on() -> None:
        with facade.transaction() as tx:
            write(tx, "lost")
            with pytest.raises(psycopg.OperationalError):
                end_own_backend(tx)

    with pytest.raises(RefusedTransaction, match="nothing was committed"):
        die_and_go_on()
    assert words(admin) == []


def test_the_first_and_the_last_call_are_part_of_the_transaction(
    facade: Facade, admin: psycopg.Connection
) -> None:
    held = facade.run(lease.acquire("door", "me", 60))

    with facade.transaction(first=lease.fence("door", held.token), last=lambda: lease.release(held)) as tx:
        write(tx, "inside")

    assert words(admin) == ["inside"]
    with pytest.raises(NotOwner):
        facade.run(lease.fence("door", held.token))


def test_a_first_call_that_is_refused_lets_the_block_not_run(
    facade: Facade, admin: psycopg.Connection
) -> None:
    def begin_late() -> None:
        with facade.transaction(first=lease.fence("nobody's", 1)) as tx:
            write(tx, "late")

    with pytest.raises(NotFound, match="nobody's"):
        begin_late()
    with facade.transaction() as tx:
        write(tx, "on the same connection")
    assert words(admin) == ["on the same connection"]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        pytest.param(lambda: lease.fence("nobody's", 1), NotFound, id="refused"),
        pytest.param(lambda: lease.acquire("", "me", 60), InvalidInput, id="wrong argument"),
    ],
)
def test_a_last_call_that_fails_commits_nothing(
    facade: Facade, admin: psycopg.Connection, last: Callable[[], Call[Any]], error: type[Exception]
) -> None:
    def end_late() -> None:
        with facade.transaction(last=last) as tx:
            write(tx, "late")

    with pytest.raises(error):
        end_late()
    with facade.transaction() as tx:
        write(tx, "on the same connection")
    assert words(admin) == ["on the same connection"]


def test_the_last_call_is_not_made_when_the_block_may_not_commit(
    facade: Facade, admin: psycopg.Connection
) -> None:
    calls: list[Call[Any]] = []

    def put() -> Call[Any]:
        calls.append(outbox.put("mail", {}))
        return calls[-1]

    def swallow() -> None:
        with facade.transaction(last=put) as tx, pytest.raises(psycopg.errors.DivisionByZero):
            fail(tx)

    with pytest.raises(RefusedTransaction, match=r"savepoint\(\)"):
        swallow()
    assert calls == []


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_the_texts_of_a_first_call_are_quoted(
    facade: Facade, admin: psycopg.Connection, conforming: LiteralString
) -> None:
    resource = """it's \\'; drop table public.note; -- %s "x" \u00e9\u4e2d"""
    token = facade.run(lease.acquire(resource, "me", 60)).token
    with facade.transaction() as tx:
        tx.execute("set standard_conforming_strings = " + conforming)
    with facade.transaction(first=lease.fence(resource, token)) as tx:
        write(tx, "fenced")
    assert words(admin) == ["fenced"]


def test_the_isolation_level_does_not_follow_the_servers_default(
    facade: Facade, admin: psycopg.Connection, database: Database
) -> None:
    with facade.transaction() as tx:
        tx.execute("set session characteristics as transaction isolation level serializable")

    with facade.transaction() as tx:
        assert tx.run(lease.acquire("door", "me", 60)).token == 1


def test_a_repeated_request_is_answered_with_the_first_response(
    facade: Facade, admin: psycopg.Connection
) -> None:
    with facade.transaction() as tx:
        assert tx.claim("player:7", "grant-9", response={"gold": 5}).claimed
        write(tx, "granted")

    with facade.transaction() as tx:
        claim = tx.claim("player:7", "grant-9")
        if claim.claimed:
            write(tx, "granted twice")

    assert (claim.replayed, claim.response) == (True, {"gold": 5})
    assert words(admin) == ["granted"]


def test_a_replay_commits_nothing_even_if_the_block_writes(facade: Facade, admin: psycopg.Connection) -> None:
    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9", response={"gold": 5})

    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9")
        write(tx, "granted twice")

    assert words(admin) == []


def test_a_replay_beside_a_claim_is_no_silent_rollback_of_the_claim(
    facade: Facade, admin: psycopg.Connection
) -> None:
    with facade.transaction() as tx:
        tx.claim("player:7", "first", response=1)

    def claim_both() -> None:
        with facade.transaction() as tx:
            tx.claim("player:7", "second", response=2)
            tx.claim("player:7", "first")

    with pytest.raises(RefusedTransaction, match="transaction of its own"):
        claim_both()
    assert admin.execute("select key from fencepost.idempotency_keys").fetchall() == [("first",)]


def test_a_repeat_without_a_kept_response_is_a_duplicate(facade: Facade) -> None:
    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9")

    def repeat() -> None:
        with facade.transaction() as tx:
            tx.claim("player:7", "grant-9")

    with pytest.raises(Duplicate) as caught:
        repeat()
    assert (caught.value.noun, caught.value.subject) == ("request", "player:7/grant-9")
    assert caught.value.seen["claimed_at"] is not None


def test_the_same_key_for_another_request_is_a_mismatch(facade: Facade) -> None:
    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9", digest="gold 5", response=1)

    def claim_otherwise() -> None:
        with facade.transaction() as tx:
            tx.claim("player:7", "grant-9", digest="gold 5000", response=1)

    with pytest.raises(Mismatch) as caught:
        claim_otherwise()
    assert caught.value.attempted == {"digest": "gold 5000"}


def test_a_request_that_another_transaction_is_doing_is_in_flight(facade: Facade, database: Database) -> None:
    def claim_as_well() -> None:
        with facade.transaction() as tx:
            tx.claim("player:7", "grant-9")

    with database.connect() as other, other.transaction():
        other.execute("select fencepost.claim('player:7', 'grant-9')")
        with pytest.raises(InFlight):
            claim_as_well()


def test_an_answer_that_user_code_requests_itself_is_left_to_that_code(
    facade: Facade, admin: psycopg.Connection
) -> None:
    with facade.transaction() as tx:
        tx.run(idempotency.claim("player:7", "grant-9"))

    with facade.transaction() as tx:
        assert tx.run(idempotency.claim("player:7", "grant-9")).outcome == "duplicate"
        write(tx, "looked at it")

    assert words(admin) == ["looked at it"]
