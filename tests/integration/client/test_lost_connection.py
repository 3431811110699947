"""A connection that breaks while COMMIT is under way leaves a doubt, and only that does."""

from typing import LiteralString

import psycopg
import pytest

from fencepost import Call, IndeterminateCommit
from fencepost.kernel import lease
from fencepost.kernel.call import scalar
from tests.integration.client.conftest import words
from tests.integration.client.facade import Facade

# What happens when a transaction that has written a note commits. Deferred triggers run inside COMMIT.
_AT_COMMIT: LiteralString = """
    create function public.at_commit() returns trigger language plpgsql as $$
    begin perform public.misfortune(); return null; end $$;
    create constraint trigger at_commit after insert on public.note deferrable initially deferred
      for each row execute function public.at_commit();
"""
_BACKEND_DIES: LiteralString = """
    create function public.misfortune() returns void language sql as $$
    select pg_terminate_backend(pg_backend_pid()) $$;
"""
_SERVER_SAYS_NO: LiteralString = """
    create function public.misfortune() returns void language plpgsql as $$
    begin raise exception 'a victim was chosen' using errcode = 'deadlock_detected'; end $$;
"""


def lost_commits(facade: Facade) -> float | None:
    return facade.metrics.registry.get_sample_value("fencepost_indeterminate_commits_total")


def write_note(facade: Facade) -> None:
    with facade.transaction() as tx:
        tx.claim("player:7", "grant-9")
        tx.execute("insert into public.note values ('granted')")


def test_a_connection_that_dies_in_commit_leaves_a_doubt(facade: Facade, admin: psycopg.Connection) -> None:
    admin.execute(_BACKEND_DIES + _AT_COMMIT)

    with pytest.raises(IndeterminateCommit, match="claim the same request again"):
        write_note(facade)

    assert lost_commits(facade) == 1


def test_the_doubt_is_settled_by_claiming_the_same_request_again(
    facade: Facade, admin: psycopg.Connection
) -> None:
    admin.execute(_BACKEND_DIES + _AT_COMMIT)
    with pytest.raises(IndeterminateCommit):
        write_note(facade)
    admin.execute("drop trigger at_commit on public.note")

    write_note(facade)

    assert words(admin) == ["granted"]


def test_a_server_that_says_no_to_commit_leaves_no_doubt(facade: Facade, admin: psycopg.Connection) -> None:
    """A deadlock is an operational error by its class, but it is an answer: nothing was committed."""
    admin.execute(_SERVER_SAYS_NO + _AT_COMMIT)

    with pytest.raises(psycopg.errors.DeadlockDetected):
        write_note(facade)

    assert lost_commits(facade) == 0
    assert words(admin) == []


def test_a_connection_that_dies_under_a_single_call_leaves_a_doubt_too(facade: Facade) -> None:
    with pytest.raises(IndeterminateCommit, match="may have happened") as caught:
        facade.run(Call("select pg_terminate_backend(pg_backend_pid())", (), scalar))

    assert isinstance(caught.value, psycopg.OperationalError), "a loop that repeats fenced calls catches this"
    assert lost_commits(facade) == 1


def test_the_pool_replaces_a_connection_that_died(facade: Facade) -> None:
    with pytest.raises(IndeterminateCommit):
        facade.run(Call("select pg_terminate_backend(pg_backend_pid())", (), scalar))

    assert facade.run(lease.acquire("door", "me", 60)).token == 1


def test_an_error_of_a_single_call_is_no_doubt(facade: Facade) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        facade.run(Call("select 1 / 0", (), scalar))

    assert lost_commits(facade) == 0
