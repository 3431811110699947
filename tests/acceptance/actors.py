"""What the processes of these tests run: holders that stand still, and mutations that are killed.

The holders speak to PostgreSQL with nothing but psycopg, as a worker in another language would.
"""

import sys
from collections.abc import Callable
from typing import Any

import psycopg

Connection = psycopg.Connection[tuple[Any, ...]]

# More than the sockets' buffers hold, so that the backend stands in the middle of its answer.
BIG_RESULT = b"select repeat('x', 1000) from generate_series(1, 50000)"


def hold_lease(url: str, posture: str, lease: str) -> None:
    """Acquire, fence and write; stand still in a posture until told to go on; commit."""
    with psycopg.connect(url, autocommit=True) as connection:
        acquire = "select token from fencepost.lease_acquire('printer', 'old', %s::interval)"
        (token,) = _row(connection, acquire, (lease,))
        connection.execute("begin")
        connection.execute("select fencepost.lease_fence('printer', %s)", (token,))
        _write(connection, token)
        _stand_and_commit(connection, posture, lambda: None)


def hold_job(url: str, posture: str, job_id: int) -> None:
    """Claim, fence and write; stand still in a posture until told to go on; finish and commit."""
    with psycopg.connect(url, autocommit=True) as connection:
        (attempt,) = _row(connection, "select attempt from fencepost.job_claim(%s, 'old')", (job_id,))
        connection.execute("begin")
        connection.execute("select fencepost.job_fence(%s, %s, 'old')", (job_id, attempt))
        _write(connection, attempt)
        finish = "select fencepost.job_finish(%s, %s, 'old')"
        _stand_and_commit(connection, posture, lambda: connection.execute(finish, (job_id, attempt)))


def hold_player(url: str, posture: str, player: str) -> None:
    """Lock the player's row; stand still in a posture until told to go on; commit."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("begin")
        connection.execute("select fencepost.player_bump(%s)", (player,))
        _stand_and_commit(connection, posture, lambda: None)


def _stand_and_commit(connection: Connection, posture: str, finish: Callable[[], object]) -> None:
    try:
        POSTURES[posture](connection)
        finish()
        connection.execute("commit")
    except psycopg.Error as error:
        _say(f"outcome failed: {error.sqlstate or 'connection lost'}")
    else:
        _say("outcome committed")


def _stand_idle(connection: Connection) -> None:
    _say(f"holding {connection.info.backend_pid}")
    sys.stdin.readline()


def _stand_in_copy(connection: Connection) -> None:
    with connection.cursor().copy("copy note (text) from stdin") as copy:
        copy.write_row(("begun",))
        _say(f"holding {connection.info.backend_pid}")
        sys.stdin.readline()
        copy.write_row(("ended",))


def _stand_with_unread_result(connection: Connection) -> None:
    connection.pgconn.send_query(BIG_RESULT)
    connection.pgconn.flush()
    _say(f"holding {connection.info.backend_pid}")
    sys.stdin.readline()
    while connection.pgconn.get_result() is not None:
        pass


POSTURES = {"idle": _stand_idle, "copy": _stand_in_copy, "unread": _stand_with_unread_result}


def _write(connection: Connection, token: int) -> None:
    connection.execute("insert into ledger (key, token, who) values ('page-1', %s, 'old')", (token,))


def _row(connection: Connection, query: Any, parameters: tuple[Any, ...]) -> tuple[Any, ...]:
    row = connection.execute(query, parameters).fetchone()
    assert row is not None
    return row


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
