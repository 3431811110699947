"""Every writer of a player's tables holds the player's row: the service, operators and batch jobs alike.

The writers are found in the catalog, by what their source writes and calls. Each is called in an open
transaction, and another session must then be unable to lock the row; and it must itself wait for a session
that has it.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing

import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost_players._queries import audit_check
from tests.integration.kernel.caller import Caller
from tests.integration.players import env

Act = Callable[[Caller], object]
NOWAIT = "select from fencepost.player where player_id = 'ann' for update nowait"
TABLES = """
    select relname::text from pg_class where relnamespace = 'fencepost'::regnamespace and relkind = 'r'
      and (relname = 'player' or exists (select from pg_constraint
           where conrelid = pg_class.oid and confrelid = 'fencepost.player'::regclass))
"""
FUNCTIONS = "select proname::text as name, prosrc from pg_proc where pronamespace = 'fencepost'::regnamespace"
PLAN = {"parties": [{"player": "ann", "change": {"resources": {"gold": 1}}}]}


def execute(caller: Caller) -> None:
    (version,) = caller.column("select data_version from fencepost.players where user_id = 'ann'")
    caller.execute(
        "select fencepost.player_execute('player:ann', 'k1', 'd', null, 'Grant', null, %s, %s, null, false)",
        version,
        json.dumps(PLAN),
    )


def execute_many(caller: Caller) -> None:
    """It does not wait: a player whose row is held has no row in the answer, and nothing of it is written."""
    (version,) = caller.column("select data_version from fencepost.players where user_id = 'ann'")
    done = caller.rows(
        "select * from fencepost.player_execute_many(array['player:ann'], array['k3'], array['d'],"
        " array[null::text], array['Grant'], array[null], array[%s], array[%s::jsonb], null, false, false)",
        version,
        json.dumps(PLAN),
    )
    if not done:
        raise psycopg.errors.LockNotAvailable


def distribute(caller: Caller) -> None:
    version = caller.value("select fencepost.player_bump('ann')")
    caller.execute("select fencepost.claim('player:ann', 'k2')")
    change = json.dumps({"resources": {"gold": 1}})
    caller.execute("select fencepost.player_distribute('ann', %s, 'k2', 'quest', %s)", version, change)


def bump(caller: Caller) -> None:
    caller.execute("select fencepost.player_bump('ann')")


WRITERS: dict[str, Act] = {
    "player_execute": execute,
    "player_execute_many": execute_many,
    "player_distribute": distribute,
    "player_bump": bump,
}


@pytest.fixture
def admin(database: Database) -> Iterator[Caller]:
    with database.connect() as connection:
        for call in env.calls():
            run(connection, call)
    with closing(Caller(database.admin_url)) as caller:
        caller.execute(
            "select fencepost.player_execute('player:ann', 'k0', 'd', null, 'CreatePlayer', null, null, %s)",
            json.dumps({"create": True, "parties": [{"player": "ann", "change": {}}]}),
        )
        # Half a minute of waiting is right for a service, and long for a test.
        caller.execute("alter function fencepost.player_bump set lock_timeout = '100ms'")
        caller.execute(
            "alter function fencepost.player_execute(text,text,text,text,text,text,bigint,jsonb,interval,"
            "boolean) set lock_timeout = '100ms'"
        )
        yield caller


def writers(admin: Caller) -> set[str]:
    """The functions that others may call and that write a player's table, themselves or through others."""
    tables = "|".join(admin.column(TABLES))
    writes = re.compile(rf"(insert\s+into|update|delete\s+from)\s+fencepost\.({tables})\b", re.IGNORECASE)
    sources = {row["name"]: row["prosrc"] for row in admin.rows(FUNCTIONS)}
    writing = {name for name, source in sources.items() if writes.search(source)}
    while True:
        calls = re.compile(rf"fencepost\.({'|'.join(writing)})\s*\(")
        grown = writing | {name for name, source in sources.items() if calls.search(source)}
        if grown == writing:
            return {name for name in writing if not name.startswith("_")}
        writing = grown


def test_every_writer_is_known_here(admin: Caller) -> None:
    assert writers(admin) == set(WRITERS)
    tables = set(admin.column(TABLES))
    assert {"player", "player_resource", "player_stack", "player_piece", "player_audit"} <= tables


def test_an_unexpected_writer_is_found(admin: Caller) -> None:
    admin.execute(
        """create function fencepost.player_cheat() returns void language sql
           as $$ update fencepost.player_resource set balance = 9 $$"""
    )
    admin.execute(
        """create function fencepost.player_gift() returns void language sql
           as $$ select fencepost.player_cheat() $$"""
    )
    assert writers(admin) - set(WRITERS) == {"player_cheat", "player_gift"}


def test_every_writer_holds_the_row_and_waits_for_it(admin: Caller, database: Database) -> None:
    for name, act in WRITERS.items():
        assert _holds(act, admin, database), name
        assert _waits(act, admin, database), name


def test_a_writer_without_the_lock_is_caught(admin: Caller, database: Database) -> None:
    admin.execute(
        """create function fencepost.player_cheat() returns void language sql security definer
           as $$ insert into fencepost.player_lesson values ('ann', 'cheating', now()) $$"""
    )
    admin.execute("alter table fencepost.player_lesson drop constraint player_lesson_has_a_player")
    admin.execute("grant execute on function fencepost.player_cheat() to fencepost_app")

    def cheat(caller: Caller) -> None:
        caller.execute("select fencepost.player_cheat()")

    assert not _holds(cheat, admin, database)
    assert not _waits(cheat, admin, database)


def test_nothing_is_distributed_without_its_key_or_without_the_lock(
    admin: Caller, database: Database
) -> None:
    give = "select fencepost.player_distribute('ann', %s, 'k', 'quest', '{}')"
    with closing(Caller(database.url)) as app:
        with app.transaction():
            version = app.value("select fencepost.player_bump('ann')")
            assert app.value("select fencepost.player_bump('ann')") == version, "once in a transaction"
        app.refused("not_found", give, version)
        app.execute("begin")
        app.execute("select fencepost.claim('player:ann', 'k')")
        app.refused("not_owner", give, version)
        app.execute("rollback")
        app.refused("not_found", "select fencepost.player_bump('nobody')")


def test_the_audit_notices_what_it_does_not_explain(admin: Caller, database: Database) -> None:
    with database.connect() as connection:
        assert run(connection, audit_check("ann")) == []
        admin.execute("insert into fencepost.player_resource values ('ann', 'gold', 5)")
        admin.execute("insert into fencepost.player_stack values ('ann', 'box', 2)")
        admin.execute(
            "insert into fencepost.player_piece values (gen_random_uuid(), 'ann', 'sword', 0, 0, '{}')"
        )
        admin.execute("update fencepost.player set version = 9 where player_id = 'ann'")
        differences = run(connection, audit_check("ann"))
    found = {(one.what, one.held is None, one.audited is None) for one in differences}
    assert found == {
        ("resource", False, True),
        ("stack", False, True),
        ("piece", False, True),
        ("version", False, False),
    }


def test_the_view_has_the_columns_that_operators_know(admin: Caller) -> None:
    row = admin.row("select * from fencepost.player_mutation_idempotency")
    assert list(row) == ["user_id", "request_id", "created_at"]
    assert (row["user_id"], row["request_id"]) == ("ann", "k0")


def _holds(act: Act, admin: Caller, database: Database) -> bool:
    with closing(Caller(database.url)) as app:
        app.execute("begin")
        act(app)
        try:
            admin.execute(NOWAIT)
        except psycopg.errors.LockNotAvailable:
            return True
        finally:
            app.execute("rollback")
    return False


def _waits(act: Act, admin: Caller, database: Database) -> bool:
    with closing(Caller(database.url)) as app, admin.transaction():
        admin.execute(NOWAIT)
        app.execute("begin")
        app.execute("set local lock_timeout = '100ms'")
        try:
            act(app)
        except psycopg.errors.LockNotAvailable:
            return True
    return False
