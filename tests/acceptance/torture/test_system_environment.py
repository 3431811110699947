"""An outcome is ambiguous when a call can have reached the server, and only then; and tokens are watched."""

from collections.abc import Callable

import psycopg

from fencepost import InFlight
from fencepost.testing import Breach
from fencepost_torture._system_environment import SystemEnvironment
from fencepost_torture._system_run import tokens_grew, watch_tokens


def fails_once(env: SystemEnvironment, how: Callable[[], object]) -> int:
    """How many outcomes are ambiguous after a call that failed so once, and then succeeded."""
    turns = iter([how])

    def act() -> object:
        turn = next(turns, None)
        return turn and turn()

    before = env.ambiguous
    env.insist(act)
    return env.ambiguous - before


def nobody_is_there() -> None:
    raise psycopg.OperationalError("connection refused")


def test_a_caller_that_did_not_reach_the_server_knows_that_nothing_happened(env: SystemEnvironment) -> None:
    assert fails_once(env, nobody_is_there) == 0


def test_a_caller_that_reached_it_without_an_answer_does_not_know(env: SystemEnvironment) -> None:
    def lost() -> None:
        with env.connect():
            nobody_is_there()

    def lost_in_a_transaction() -> None:
        with env.asking():
            nobody_is_there()

    assert fails_once(env, lost) == 1
    assert fails_once(env, lost_in_a_transaction) == 1


def test_a_connection_that_died_while_no_caller_used_it_has_carried_nothing(env: SystemEnvironment) -> None:
    with env.asking() as connection:
        pid = connection.info.backend_pid

    def found_dead() -> None:
        env.rows("select pg_terminate_backend(%s, 60000)", (pid,))
        with env.asking() as connection:
            connection.execute("select 1")

    assert fails_once(env, found_dead) == 0


def test_one_that_is_still_open_may_happen_yet(env: SystemEnvironment) -> None:
    def open_still() -> None:
        with env.connect():
            raise InFlight("one of ours is still open")

    assert fails_once(env, open_still) == 1


def test_a_look_of_ours_that_fails_is_no_outcome(env: SystemEnvironment) -> None:
    env.rows("select 1")
    with env.database.connect_admin() as admin:
        admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid()"
            " and datname = current_database() and backend_type = 'client backend'"
        )

    assert env.value("select 2") == 2
    assert env.ambiguous == 0


def test_a_token_that_goes_back_is_seen_whatever_the_system_looks_at(env: SystemEnvironment) -> None:
    watch_tokens(env)
    with env.database.connect_admin() as admin:
        for _ in range(2):
            admin.execute("select fencepost.lease_acquire('printer', gen_random_uuid()::text, '1 minute')")
            env.clock.advance(61)
        assert tokens_grew(env) == []
        admin.execute("update fencepost.lease set token = token - 1")
        admin.execute("delete from fencepost.lease")

    assert [str(breach) for breach in tokens_grew(env)] == [
        str(Breach("tokens grow", "printer", "2 was followed by 1")),
        str(Breach("tokens grow", "printer", "the lease was deleted")),
    ]
