"""The servers run as root, as nobody and as another user, and no directory is opened for it."""

import os
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Pair, PostgresServer
from fencepost.embedded._identity import NOBODY, Identity
from fencepost.embedded._process import run_to_end

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")

DROPPED = Identity("drop", NOBODY, NOBODY)

USE_A_PAIR = """
import os, sys
from pathlib import Path
import psycopg
from fencepost.embedded import Pair

for _ in range(2):
    with Pair(Path(sys.argv[1])) as pair:
        pair.postgres.kill()
        pair.postgres.start()
        with psycopg.connect(pair.admin_url) as connection:
            assert connection.execute("select 1").fetchone() == (1,)
print(os.geteuid())
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def works(server: PostgresServer) -> bool:
    with psycopg.connect(server.url()) as connection:
        return connection.execute("select 1").fetchone() == (1,)


def real_uids(pids: Iterable[int]) -> set[int]:
    """The user ids that the kernel knows, whatever a namespace shows.

    A process that has ended meanwhile has none: the backend of the connection just closed takes its time
    to leave.
    """
    found: set[int] = set()
    for pid in pids:
        with suppress(FileNotFoundError):
            found.add(Path(f"/proc/{pid}").stat().st_uid)
    return found


def user_namespace(pid: int) -> Path:
    return Path(f"/proc/{pid}/ns/user").readlink()


def effective_capabilities(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("CapEff")), 16)


@as_root
def test_root_runs_it_in_a_namespace_and_changes_nothing_on_disk(directory: Path) -> None:
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    with PostgresServer(closed / "postgres") as server:
        assert works(server)
        owners = {path.lstat().st_uid for path in closed.rglob("*")}
        assert user_namespace(server.pids[0]) != user_namespace(os.getpid())
    assert owners == {0}
    assert mode(closed) == 0o700


@as_root
def test_where_namespaces_are_refused_root_becomes_nobody(directory: Path) -> None:
    directory.chmod(0o711)
    with PostgresServer(directory / "postgres", identity=DROPPED) as server:
        assert works(server)
        assert real_uids(server.pids) == {NOBODY}
        assert {path.lstat().st_uid for path in (server.directory / "data").rglob("*")} == {NOBODY}
        assert effective_capabilities(server.pids[0]) == 0


@as_root
def test_no_caller_passes_through_a_closed_directory_that_stays_closed(directory: Path) -> None:
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    with PostgresServer(closed / "postgres", identity=DROPPED, cache=closed / "cache") as server:
        assert works(server)
        assert real_uids(server.pids) == {NOBODY}
        # Reading and searching, and nothing else.
        assert effective_capabilities(server.pids[0]) in {1 << 1, 1 << 2}
        server.kill()
        server.start()
        assert works(server)
    assert mode(closed) == 0o700
    assert closed.stat().st_uid == 0


@as_root
def test_root_runs_another_accounts_data_as_that_account(directory: Path) -> None:
    with PostgresServer(directory / "postgres", identity=DROPPED):
        pass
    with PostgresServer(directory / "postgres") as server:
        assert works(server)
        assert real_uids(server.pids[:1]) == {NOBODY}


@as_root
@pytest.mark.parametrize("uid", [NOBODY, 4711], ids=["a named account", "an account without a name"])
def test_an_ordinary_account_runs_a_pair(directory: Path, monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    os.chown(directory, uid, uid)
    # Python itself may lie in root's home.
    identity = Identity("drop", uid, uid).reaching(Path(sys.executable), Path(__file__))
    log = directory / "log"
    command = [sys.executable, "-c", USE_A_PAIR, str(directory / "pair")]
    assert run_to_end(command, identity, log, seconds=60) == 0, log.read_text()
    assert log.read_text() == f"{uid}\n"
    assert {path.lstat().st_uid for path in (directory / "pair").rglob("*")} == {uid}


def test_this_account_runs_a_pair(directory: Path) -> None:
    with Pair(directory) as pair:
        assert works(pair.postgres)
