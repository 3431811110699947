"""A server's directory: its lock, its socket's place and its log."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.embedded._errors import DirectoryInUseError
from fencepost.embedded._server_dir import SOCKET_PATH_BYTES_MAX, ServerDir


@pytest.fixture
def home(tmp_path: Path) -> Iterator[ServerDir]:
    home = ServerDir(tmp_path / "server", "name.sock")
    home.open()
    yield home
    home.leave()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_directory_has_one_holder_and_the_error_names_it(home: ServerDir) -> None:
    home.sign(4711)
    with pytest.raises(DirectoryInUseError, match="process id 4711"):
        ServerDir(home.directory, "name.sock").open()


def test_a_directory_that_is_being_made_ready_names_us(home: ServerDir) -> None:
    with pytest.raises(DirectoryInUseError, match=f"process id {os.getpid()}"):
        ServerDir(home.directory, "name.sock").open()


def test_a_caller_that_never_had_the_directory_leaves_it_alone(home: ServerDir) -> None:
    assert not ServerDir(home.directory, "name.sock").leave()
    assert home.sockets.exists()


def test_a_caller_that_let_the_directory_go_does_not_remove_the_next_holders_socket(home: ServerDir) -> None:
    home.close()
    next_one = ServerDir(home.directory, "name.sock")
    next_one.open()
    home.leave()
    assert next_one.sockets.exists()
    next_one.leave()


def test_a_directory_that_was_let_go_can_be_taken(home: ServerDir) -> None:
    home.close()
    other = ServerDir(home.directory, "name.sock")
    other.open()
    other.leave()


def test_everything_is_for_the_owner_only(home: ServerDir) -> None:
    assert mode(home.directory) == 0o700
    assert mode(home.sockets) == 0o700
    assert mode(home.log) == 0o600


def test_a_deep_directory_has_its_socket_in_a_short_private_place(tmp_path: Path) -> None:
    home = ServerDir(tmp_path / ("deep" * 30), "name.sock")
    home.open()
    sockets = home.sockets
    assert len(bytes(home.socket)) <= SOCKET_PATH_BYTES_MAX
    assert mode(sockets) == 0o700
    assert home.stray_sockets == (sockets,)
    home.leave()
    assert not sockets.exists()


def test_a_restart_keeps_the_address_of_a_deep_directory(tmp_path: Path) -> None:
    home = ServerDir(tmp_path / ("deep" * 30), "name.sock")
    home.open()
    before = home.socket
    home.close()
    home.open()
    assert home.socket == before
    home.leave()


def test_the_log_of_the_previous_start_is_kept(home: ServerDir) -> None:
    home.log.write_text("the old story\n")
    home.close()
    home.open()
    assert home.log_tail() == ""
    assert home.log.with_suffix(".log.old").read_text() == "the old story\n"


def test_the_tail_of_the_log_is_short(home: ServerDir) -> None:
    home.log.write_text("\n".join(f"line {number}" for number in range(100)))
    assert home.log_tail(lines=2) == "line 98\nline 99"
