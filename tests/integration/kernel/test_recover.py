"""A backup is restored in the middle of things: holders that were active in the lost time are refused."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, LiteralString

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from fencepost.embedded import Database, PostgresServer
from fencepost.errors import InvalidInput, MigrationFailed, ServerUnavailable
from fencepost.kernel._recover import Recovery, recover
from tests.integration.kernel.caller import Caller


class Restored:
    """A database, and the backup of it that took its place after some time."""

    def __init__(self, before: Database) -> None:
        self._before = before
        self.database = Database(before.server, f"{before.name}_r")

    def back_up(self) -> None:
        with psycopg.connect(self._before.server.url(), autocommit=True) as admin:
            # A pooler keeps its sessions, and a database is copied only when it is alone.
            admin.execute(
                "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s",
                (self._before.name,),
            )
        self.database.create(template=self._before.name)

    def recover(self) -> Recovery:
        return recover(self.database.admin_url, "anna")


@pytest.fixture
def restored(database: Database) -> Iterator[Restored]:
    restored = Restored(database)
    yield restored
    restored.database.drop()


def on(database: Database, story: Callable[[Caller], Any]) -> Any:
    """Tell a part of the story on one connection, and leave: a database is copied only when it is alone."""
    caller = Caller(database.url)
    with closing(caller.connection):
        return story(caller)


def acquire(owner: str) -> Callable[[Caller], int]:
    return lambda caller: caller.value("select token from fencepost.lease_acquire('r', %s, '1 hour')", owner)


def expire(database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute(
            "update fencepost.lease set acquired_at = now() - interval '2 h',"
            " expires_at = now() - interval '1 h'"
        )


def refused(database: Database, reason: str, query: LiteralString, *values: Any) -> None:
    on(database, lambda caller: caller.refused(reason, query, *values))


FENCE = "select fencepost.lease_fence('r', %s)"


def test_a_holder_of_the_lost_time_is_refused(database: Database, restored: Restored) -> None:
    on(database, acquire("a"))
    expire(database)
    restored.back_up()
    # In the lost time b takes over; after the restore c does, and is given the same token.
    zombie = on(database, acquire("b"))
    restored.recover()
    assert on(restored.database, acquire("c")) > zombie + 1_000_000
    refused(restored.database, "not_owner", FENCE, zombie)


def test_without_it_the_same_token_is_handed_out_twice(database: Database, restored: Restored) -> None:
    """What the test above would not see if tokens did not go back."""
    on(database, acquire("a"))
    expire(database)
    restored.back_up()
    assert on(database, acquire("b")) == on(restored.database, acquire("c"))


def test_a_holder_from_before_the_backup_is_refused_too(database: Database, restored: Restored) -> None:
    """In the lost time another may have taken over from it."""
    token = on(database, acquire("a"))
    restored.back_up()
    found = restored.recover()
    assert found.leases == 1
    refused(restored.database, "not_owner", FENCE, token)


def test_it_waits_for_a_fenced_write_that_is_open(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a write commits before the tokens jump, or not at all; never after."""
    token = on(database, acquire("a"))
    with database.connect() as holder, holder.transaction():
        holder.execute(FENCE, (token,))
        monkeypatch.setenv("PGOPTIONS", "-c lock_timeout=200ms")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            recover(database.admin_url, "anna")
    assert recover(database.admin_url, "anna").leases == 1


SUBMIT = "select job_id from fencepost.job_submit('q', 'kind', '{}', p_lease => '1 hour')"
CLAIM = "select attempt from fencepost.job_claim(%s, %s)"
FINISH = "select fencepost.job_finish(%s, %s, %s)"


def test_a_running_job_runs_again_and_its_old_owner_cannot_finish_it(
    database: Database, restored: Restored
) -> None:
    job_id = on(database, lambda caller: caller.value(SUBMIT))
    attempt = on(database, lambda caller: caller.value(CLAIM, job_id, "a"))
    restored.back_up()
    assert restored.recover().jobs == 1
    refused(restored.database, "stale_attempt", FINISH, job_id, attempt, "a")
    again = on(
        restored.database, lambda caller: caller.row("select * from fencepost.job_claim(%s, 'a')", job_id)
    )
    assert (again["attempt"] > attempt + 1_000_000, again["tries"]) == (True, 1)
    refused(restored.database, "stale_attempt", FINISH, job_id, attempt, "a")


def test_a_job_that_was_replayed_in_the_lost_time_does_not_meet_its_zombie(
    database: Database, restored: Restored
) -> None:
    job_id = on(database, lambda caller: caller.value(SUBMIT))
    attempt = on(database, lambda caller: caller.value(CLAIM, job_id, "a"))
    on(
        database,
        lambda caller: caller.execute("select fencepost.job_bury(%s, %s, 'a', 'no')", job_id, attempt),
    )
    restored.back_up()

    def replay(caller: Caller) -> int:
        caller.execute("select fencepost.job_replay(%s, 'anna')", job_id)
        return int(caller.value(CLAIM, job_id, "a"))

    zombie = on(database, replay)
    restored.recover()
    assert on(restored.database, replay) > zombie + 1_000_000
    refused(restored.database, "stale_attempt", FINISH, job_id, zombie, "a")


def test_ids_of_the_lost_time_are_not_given_to_others(database: Database, restored: Restored) -> None:
    restored.back_up()
    lost = on(database, lambda caller: caller.value(SUBMIT))
    message = on(database, lambda caller: caller.value("select fencepost.outbox_put('c', null, '{}')"))
    restored.recover()
    refused(restored.database, "not_found", CLAIM, lost, "a")
    assert on(restored.database, lambda caller: caller.value(SUBMIT)) > lost + 1_000_000
    put = "select fencepost.outbox_put('c', null, '{}')"
    assert on(restored.database, lambda caller: caller.value(put)) > message + 1_000_000


def test_what_was_driven_is_driven_again(database: Database, restored: Restored) -> None:
    def drive(caller: Caller) -> None:
        caller.execute(SUBMIT)
        caller.execute("select fencepost.job_dispatched(array[1::bigint], array['1-1'], 'a former life')")

    on(database, drive)
    restored.back_up()
    restored.recover()
    due = on(
        restored.database,
        lambda caller: caller.column("select job_id from fencepost.job_dispatch('q', 1, 10)"),
    )
    assert due == [1]


def test_a_relay_of_the_lost_time_cannot_settle(database: Database, restored: Restored) -> None:
    def take(caller: Caller) -> dict[str, Any]:
        caller.execute("select fencepost.outbox_put('c', 'k', '{}')")
        return caller.row("select id, take from fencepost.outbox_take('c', 'w', '1 hour', 1)")

    taken = on(database, take)
    restored.back_up()
    assert restored.recover().messages == 1
    settle = "select fencepost.outbox_settle(%s, %s, 'w', 'sent')"
    refused(restored.database, "stale_attempt", settle, taken["id"], taken["take"])
    expire = "select fencepost.outbox_expire('c', 'queued', 10)"
    assert on(restored.database, lambda caller: caller.column(expire)) == [taken["id"]]


def test_it_may_be_repeated_and_is_written_down(database: Database) -> None:
    first = recover(database.admin_url, "anna")
    second = recover(database.admin_url, "bert")
    assert second.floor > first.floor
    with database.connect_admin() as admin:
        rows = admin.execute(
            "select actor, token from fencepost.event where event = 'recovered' order by event_id"
        ).fetchall()
    assert rows == [("anna", first.floor), ("bert", second.floor)]
    assert set(first.components) >= {"orders"}


def test_the_services_role_may_not(database: Database) -> None:
    with pytest.raises(MigrationFailed, match="MIGRATION_DATABASE_URL"):
        recover(database.url, "anna")


def test_bad_input_changes_nothing(database: Database, postgres: PostgresServer) -> None:
    with pytest.raises(InvalidInput, match="actor must not be empty"):
        recover(database.admin_url, "")
    with pytest.raises(InvalidInput, match="NUL"):
        recover(database.admin_url, "a\0")
    with pytest.raises(ServerUnavailable, match="cannot be reached"):
        recover(postgres.url("nowhere"), "anna")
    with database.connect_admin() as admin:
        assert admin.execute("select floor from fencepost.token_floor").fetchone() == (0,)


BROKEN = """
    create or replace function fencepost._recover_orders(p_actor text) returns jsonb language sql
    as $$ select to_jsonb(1 / length(left(p_actor, 0))) $$
"""


def test_it_fails_as_a_whole(database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute(BROKEN)
    with pytest.raises(psycopg.errors.DivisionByZero):
        recover(database.admin_url, "anna")
    with database.connect_admin() as admin:
        assert admin.execute("select floor from fencepost.token_floor").fetchone() == (0,)


HOSTILE = """
    create schema hostile;
    create function hostile.pg_get_serial_sequence(text, text) returns text language plpgsql as
      $$ begin raise exception 'a function of another schema is called here'; end $$;
    grant usage on schema hostile to public;
"""


def test_a_recovery_is_made_at_its_own_level_and_with_its_own_functions(database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute(HOSTILE)
    url = make_conninfo(
        database.admin_url,
        options="-c default_transaction_isolation=serializable -c search_path=hostile,pg_catalog",
    )

    assert recover(url, "anna").leases == 0
