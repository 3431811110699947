"""The record of refusals is best effort: it never blocks its caller, and it counts what it leaves out."""

import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from fencepost import NotOwner
from fencepost._refusal_recorder import RefusalRecorder
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline


class Drops:
    """Counts what was left out."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def drops() -> Drops:
    return Drops()


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes a connection and never says a word."""
    with tempfile.TemporaryDirectory(prefix="fp-") as directory, socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(Path(directory) / ".s.PGSQL.5432"))
        silent.listen(5)
        yield f"postgresql:///shop?host={directory}"


def refusal(number: int) -> NotOwner:
    return NotOwner("no", noun="lease", subject=f"door {number}")


def recorded(admin: psycopg.Connection) -> list[str]:
    return [
        subject for (subject,) in admin.execute("select subject from fencepost.refusals order by refusal_id")
    ]


def test_what_is_noted_is_written_down_in_order(
    database: Database, admin: psycopg.Connection, drops: Drops
) -> None:
    recorder = RefusalRecorder(database.url, "me", on_drop=drops)
    for number in range(20):
        recorder.note(refusal(number))

    recorder.close()

    assert recorded(admin) == [f"door {number}" for number in range(20)]
    assert drops.count == 0


def test_a_flood_is_sampled_and_what_is_left_out_is_counted(
    database: Database, admin: psycopg.Connection, drops: Drops
) -> None:
    recorder = RefusalRecorder(database.url, "me", waiting_max=5, per_second_max=1, on_drop=drops)
    for number in range(1000):
        recorder.note(refusal(number))

    recorder.close()

    assert 5 <= len(recorded(admin)) <= 10
    assert len(recorded(admin)) + drops.count == 1000


def test_a_recorder_can_be_used_again_after_it_was_closed(
    database: Database, admin: psycopg.Connection, drops: Drops
) -> None:
    recorder = RefusalRecorder(database.url, "me", on_drop=drops)
    for number in range(2):
        recorder.note(refusal(number))
        recorder.close()

    assert (recorded(admin), drops.count) == (["door 0", "door 1"], 0)


def test_a_server_that_is_not_there_costs_the_caller_nothing(tmp_path: Path, drops: Drops) -> None:
    recorder = RefusalRecorder(f"postgresql:///shop?host={tmp_path}", "me", on_drop=drops)
    began = time.monotonic()
    for number in range(100):
        recorder.note(refusal(number))
    noted = time.monotonic() - began

    recorder.close()

    assert noted < 1
    assert drops.count == 100


def test_a_server_that_never_answers_blocks_neither_note_nor_close(silent_server: str, drops: Drops) -> None:
    recorder = RefusalRecorder(silent_server, "me", waiting_max=10, connect_seconds=30, on_drop=drops)
    began = time.monotonic()
    for number in range(100):
        recorder.note(refusal(number))

    recorder.close(wait_seconds=0.2)

    assert time.monotonic() - began < 5
    # One of them is still in the writer's hand.
    assert drops.count == 99


def test_after_a_lost_connection_it_writes_again(
    session_url: str, admin: psycopg.Connection, drops: Drops
) -> None:
    recorder = RefusalRecorder(session_url, "me", on_drop=drops)
    recorder.note(refusal(0))
    Deadline(60, "the first is recorded").wait(lambda: recorded(admin) == ["door 0"])
    admin.execute(
        "select pg_terminate_backend(pid, 10000) from pg_stat_activity"
        " where application_name = 'fencepost-refusals' and datname = current_database()"
    )

    recorder.note(refusal(1))
    recorder.note(refusal(2))
    recorder.close()

    assert (recorded(admin), drops.count) == (["door 0", "door 2"], 1)


def test_a_refusal_that_cannot_be_stored_is_counted_and_the_next_is_written(
    database: Database, admin: psycopg.Connection, drops: Drops
) -> None:
    recorder = RefusalRecorder(database.url, "me", on_drop=drops)
    recorder.note(NotOwner("no", noun="lease", subject="x" * 5000))
    recorder.note(refusal(1))

    recorder.close()

    assert (recorded(admin), drops.count) == (["door 1"], 1)
