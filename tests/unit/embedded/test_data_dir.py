"""What stands in a data directory's pid file, and what is believed of it."""

import os
from pathlib import Path

import pytest

from fencepost.embedded._data_dir import PidFile, default_cache, refuse_or_clear_pid_file

STARTING = "{pid}\n/data\n1700000000\n5432\n/sockets\n\n  1234  98765\n"


def write_pid_file(data: Path, text: str) -> Path:
    path = data / "postmaster.pid"
    path.write_text(text)
    return path


def test_a_starting_server_is_not_ready(tmp_path: Path) -> None:
    write_pid_file(tmp_path, STARTING.format(pid=42) + "starting\n")
    note = PidFile.read(tmp_path)
    assert note is not None
    assert (note.pid, note.is_ready(), note.shared_memory_id()) == (42, False, 98765)


def test_a_ready_server_says_so(tmp_path: Path) -> None:
    write_pid_file(tmp_path, STARTING.format(pid=42) + "ready   \n")
    note = PidFile.read(tmp_path)
    assert note is not None
    assert note.is_ready()


@pytest.mark.parametrize("text", ["", "\n", "not a number\n"])
def test_a_half_written_note_is_no_note(tmp_path: Path, text: str) -> None:
    write_pid_file(tmp_path, text)
    assert PidFile.read(tmp_path) is None


def test_a_note_without_shared_memory_has_no_segment(tmp_path: Path) -> None:
    write_pid_file(tmp_path, "42\n/data\n")
    note = PidFile.read(tmp_path)
    assert note is not None
    assert note.shared_memory_id() is None
    assert not note.is_ready()


def test_no_note_is_nothing_to_refuse(tmp_path: Path) -> None:
    refuse_or_clear_pid_file(tmp_path)


def test_the_note_of_a_dead_server_is_cleared(tmp_path: Path) -> None:
    # No process has this pid: the kernel's largest is 4194304.
    path = write_pid_file(tmp_path, STARTING.format(pid=4194304 + 1))
    refuse_or_clear_pid_file(tmp_path)
    assert not path.exists()


def test_a_pid_that_another_program_has_now_does_not_count(tmp_path: Path) -> None:
    path = write_pid_file(tmp_path, STARTING.format(pid=os.getpid()))
    refuse_or_clear_pid_file(tmp_path)
    assert not path.exists()


def test_the_cache_follows_the_usual_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "fencepost"


def test_an_account_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert default_cache() is None
