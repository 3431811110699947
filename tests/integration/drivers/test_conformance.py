"""What every driver must do: our calls live and die with the user's own transaction."""

from typing import Any

import psycopg
import pytest

from fencepost import Call, FencepostError, InvalidInput, Lease, NotOwner, WrongIsolation
from fencepost.embedded import Database
from fencepost.kernel import _refusal as refusal
from fencepost.kernel import idempotency, lease
from fencepost.kernel.call import scalar
from tests.integration.drivers.port import Port


class ChangeOfMindError(Exception):
    """The user's own reason to roll back."""


@pytest.fixture
def outside(users_database: Database) -> Any:
    """Another session, which sees only what was committed."""
    with users_database.connect_admin() as connection:
        yield connection


def words(outside: psycopg.Connection[Any]) -> list[str]:
    return [word for (word,) in outside.execute("select word from public.note order by ctid")]


def keys(outside: psycopg.Connection[Any]) -> list[str]:
    return [key for (key,) in outside.execute("select key from fencepost.idempotency_keys")]


def held_lease(port: Port) -> Lease:
    with port.transaction():
        return port.run(lease.acquire("door", "me", 60))


def test_a_call_commits_with_the_users_own_rows(port: Port, outside: psycopg.Connection[Any]) -> None:
    with port.transaction():
        port.execute("insert into public.note values ('mine')")
        claim = port.run(idempotency.claim("scope", "key"))

    assert claim.claimed
    assert (words(outside), keys(outside)) == (["mine"], ["key"])


def test_a_call_rolls_back_with_the_users_own_rows(port: Port, outside: psycopg.Connection[Any]) -> None:
    def change_of_mind() -> None:
        with port.transaction():
            port.execute("insert into public.note values ('mine')")
            port.run(idempotency.claim("scope", "key"))
            raise ChangeOfMindError

    with pytest.raises(ChangeOfMindError):
        change_of_mind()
    assert (words(outside), keys(outside)) == ([], [])


def test_nothing_of_ours_begins_or_commits(port: Port, outside: psycopg.Connection[Any]) -> None:
    with port.transaction():
        port.execute("insert into public.note values (pg_current_xact_id()::text)")
        port.run(idempotency.claim("scope", "key"))
        port.execute("insert into public.note values (pg_current_xact_id()::text)")
        seen_before_the_commit = words(outside), keys(outside)

    before, after = words(outside)
    assert before == after
    assert seen_before_the_commit == ([], [])


def test_a_refusal_arrives_as_our_exception_with_what_was_seen(
    port: Port, outside: psycopg.Connection[Any]
) -> None:
    held = held_lease(port)

    def write_late() -> None:
        with port.transaction():
            port.execute("insert into public.note values ('late')")
            port.run(lease.fence("door", held.token + 1))

    with pytest.raises(NotOwner, match="lease door: not_owner") as caught:
        write_late()
    refused = caught.value
    assert (refused.reason, refused.noun, refused.subject) == ("not_owner", "lease", "door")
    assert refused.attempted == {"token": held.token + 1, "op": "fence"}
    assert (refused.seen["owner"], refused.seen["token"]) == ("me", held.token)
    assert refused.__cause__ is not None
    assert not isinstance(refused.__cause__, FencepostError)
    assert words(outside) == []


def test_a_refused_call_is_not_tried_again(port: Port, outside: psycopg.Connection[Any]) -> None:
    held = held_lease(port)

    with pytest.raises(NotOwner), port.transaction():
        port.run(lease.fence("door", held.token + 1))

    counts = outside.execute("select refused from fencepost.refusal_counts() where reason = 'not_owner'")
    assert counts.fetchone() == (1,)


def test_after_a_refusal_the_transaction_is_left_as_it_is(port: Port) -> None:
    """We neither roll back nor begin anew: PostgreSQL refuses everything until the user ends it."""
    held = held_lease(port)

    def go_on_after_the_refusal() -> None:
        with port.transaction():
            with pytest.raises(NotOwner):
                port.run(lease.fence("door", held.token + 1))
            port.execute("insert into public.note values ('after the refusal')")

    with pytest.raises(Exception, match="current transaction is aborted"):
        go_on_after_the_refusal()


def test_a_refusal_inside_the_users_savepoint_leaves_them_the_rest(
    port: Port, outside: psycopg.Connection[Any]
) -> None:
    held = held_lease(port)

    def fence_inside() -> None:
        with port.savepoint():
            port.execute("insert into public.note values ('inside')")
            port.run(lease.fence("door", held.token + 1))

    with port.transaction():
        port.execute("insert into public.note values ('before')")
        with pytest.raises(NotOwner):
            fence_inside()
        port.execute("insert into public.note values ('after')")

    assert words(outside) == ["before", "after"]


def test_the_connection_goes_on_working_after_a_refusal(port: Port) -> None:
    held = held_lease(port)
    with pytest.raises(NotOwner), port.transaction():
        port.run(lease.fence("door", held.token + 1))

    with port.transaction():
        renewed = port.run(lease.renew(held, 60))

    assert renewed.token == held.token


def test_a_wrong_argument_is_named_by_its_field(port: Port) -> None:
    with pytest.raises(InvalidInput, match="resource must not be empty") as caught, port.transaction():
        port.run(lease.acquire("", "me", 60))

    assert caught.value.field == "resource"


def test_the_wrong_isolation_level_is_said_plainly(port: Port) -> None:
    def acquire_in_an_old_snapshot() -> None:
        with port.transaction():
            port.execute("set transaction isolation level repeatable read")
            port.run(lease.acquire("door", "me", 60))

    with pytest.raises(WrongIsolation, match="REPEATABLE READ"):
        acquire_in_an_old_snapshot()


def test_an_error_that_is_not_ours_passes_unchanged(port: Port) -> None:
    with pytest.raises(Exception, match="division by zero") as caught, port.transaction():
        port.run(Call("select 1 / 0", (), scalar))

    assert not isinstance(caught.value, FencepostError)


def test_an_answer_without_rows_is_an_empty_list(port: Port) -> None:
    with port.transaction():
        assert port.run(refusal.explain("job:1")) == []
