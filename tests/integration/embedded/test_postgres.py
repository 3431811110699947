"""The embedded PostgreSQL: how it starts, how it ends, and what survives."""

import os
import signal
import stat
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from fencepost.embedded import DirectoryInUseError, NotRunningError, PostgresServer, ServerStartError
from fencepost.embedded._binaries import DEBIAN_POSTGRES, FoundBinaries, find_postgres
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._reaper import process_table


def ask(server: PostgresServer, query: str) -> object:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row and row[0]


def do(server: PostgresServer, statement: str) -> None:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(statement.encode())


def is_gone(pid: int) -> bool:
    entry = process_table().get(pid)
    return entry is None or entry.state == "Z"


def test_an_answered_commit_is_on_disk_by_default(directory: Path) -> None:
    with PostgresServer(directory) as server:
        assert ask(server, "show fsync") == "on"
        assert ask(server, "show synchronous_commit") == "on"
        assert ask(server, "show full_page_writes") == "on"


def test_it_listens_on_a_private_socket_and_nowhere_else(own_postgres: PostgresServer) -> None:
    assert ask(own_postgres, "show listen_addresses") == ""
    (sockets,) = parse_qs(urlsplit(own_postgres.url()).query)["host"]
    assert stat.S_IMODE(Path(sockets).stat().st_mode) == 0o700


def test_over_tcp_no_caller_enters(directory: Path) -> None:
    with PostgresServer(directory) as server:
        methods = "select array_agg(distinct auth_method) from pg_hba_file_rules where type like 'host%'"
        assert ask(server, methods) == ["reject"]


def test_settings_reach_the_server(directory: Path) -> None:
    settings: dict[str, str | int] = {
        "fsync": "off",
        "max_connections": 17,
        "application_name": "it's a test",
    }
    with PostgresServer(directory, settings=settings) as server:
        assert ask(server, "show fsync") == "off"
        assert ask(server, "show max_connections") == "17"


def test_variables_of_our_environment_do_not_reach_the_server(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGDATA", "/nowhere")
    with PostgresServer(directory) as server:
        environment = Path(f"/proc/{server.pids[0]}/environ").read_bytes()
        assert b"/nowhere" not in environment
        assert b"PGPORT" not in environment


def test_a_stopped_server_keeps_its_data_for_the_next_one(directory: Path) -> None:
    with PostgresServer(directory) as server:
        do(server, "create table kept as select 7 as n")
    with PostgresServer(directory) as server:
        assert ask(server, "select n from kept") == 7


def test_stop_is_orderly_and_can_be_repeated(directory: Path) -> None:
    server = PostgresServer(directory).start()
    server.stop()
    assert "database system is shut down" in server.log.read_text()
    assert not server.running
    server.stop()


def test_stop_does_not_wait_for_clients(own_postgres: PostgresServer) -> None:
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("select 1")
        own_postgres.stop()
        assert not own_postgres.running
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")


def test_a_crash_keeps_what_was_committed_and_nothing_else(own_postgres: PostgresServer) -> None:
    do(own_postgres, "create table kept (n int)")
    do(own_postgres, "insert into kept values (1)")
    with psycopg.connect(own_postgres.url()) as connection:
        connection.execute("insert into kept values (2)")
        own_postgres.kill()
        assert not own_postgres.running
        connection.close()
    own_postgres.start()
    assert ask(own_postgres, "select array_agg(n) from kept") == [1]
    assert "was interrupted" in own_postgres.log.read_text()


def segments_of(pid: int) -> set[str]:
    """The System V segments that a process has mapped, by id."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[4] for line in lines if "SYSV" in line}


def segments_of_the_machine() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def test_a_crash_leaves_no_process_and_no_shared_memory(own_postgres: PostgresServer) -> None:
    pids = own_postgres.pids
    segments = segments_of(pids[0])
    assert len(pids) > 1
    assert segments
    own_postgres.kill()
    assert all(is_gone(pid) for pid in pids)
    assert not segments & segments_of_the_machine()


def test_a_server_that_another_process_killed_is_cleared_up_when_it_is_stopped(
    own_postgres: PostgresServer,
) -> None:
    segments = segments_of(own_postgres.pids[0])
    assert segments
    os.kill(own_postgres.pids[0], signal.SIGKILL)
    own_postgres.stop()
    assert not segments & segments_of_the_machine()


def test_nothing_is_kept_in_the_machines_shared_memory_directory(own_postgres: PostgresServer) -> None:
    maps = [Path(f"/proc/{pid}/maps").read_text() for pid in own_postgres.pids]
    assert "/PostgreSQL." not in "".join(maps)


def test_a_restart_keeps_the_address(own_postgres: PostgresServer) -> None:
    url, pid = own_postgres.url(), own_postgres.pids[0]
    own_postgres.restart()
    assert own_postgres.url() == url
    assert own_postgres.pids[0] != pid
    assert ask(own_postgres, "select 1") == 1


def test_a_crashed_server_can_be_restarted(own_postgres: PostgresServer) -> None:
    own_postgres.kill()
    own_postgres.restart()
    assert ask(own_postgres, "select 1") == 1


def test_a_server_that_ended_by_itself_can_be_started_again(own_postgres: PostgresServer) -> None:
    os.kill(own_postgres.pids[0], signal.SIGQUIT)
    Deadline(60, "the server has ended").wait(lambda: not own_postgres.running)
    with pytest.raises(NotRunningError):
        own_postgres.pause()
    own_postgres.start()
    assert ask(own_postgres, "select 1") == 1


def test_a_paused_server_answers_no_caller_until_it_is_resumed(own_postgres: PostgresServer) -> None:
    with psycopg.connect(own_postgres.url(), autocommit=True) as connection:
        own_postgres.pause()
        table = process_table()
        assert {table[pid].state for pid in own_postgres.pids} == {"T"}
        connection.pgconn.send_query(b"select 42")
        own_postgres.resume()
        result = connection.pgconn.get_result()
        assert result is not None
        assert result.get_value(0, 0) == b"42"
        assert connection.pgconn.get_result() is None


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_paused_server_can_still_be_ended(own_postgres: PostgresServer, end: str) -> None:
    pids = own_postgres.pids
    own_postgres.pause()
    getattr(own_postgres, end)()
    assert all(is_gone(pid) for pid in pids)


def test_a_directory_serves_one_server_at_a_time(own_postgres: PostgresServer) -> None:
    second = PostgresServer(own_postgres.directory)
    with pytest.raises(DirectoryInUseError, match=f"process id {own_postgres.pids[0]}"):
        second.start()
    assert ask(own_postgres, "select 1") == 1


def test_the_data_of_a_server_that_another_process_started_is_refused(
    own_postgres: PostgresServer, directory: Path
) -> None:
    stranger = directory / "stranger"
    stranger.mkdir()
    (stranger / "data").symlink_to(own_postgres.directory / "data")
    with pytest.raises(DirectoryInUseError, match=f"process id {own_postgres.pids[0]}"):
        PostgresServer(stranger).start()
    assert ask(own_postgres, "select 1") == 1


def test_a_stale_pid_file_does_not_stop_the_start(own_postgres: PostgresServer) -> None:
    note = own_postgres.directory / "data" / "postmaster.pid"
    text = note.read_text()
    own_postgres.kill()
    assert note.exists()
    # The pid now belongs to another process: to us, as after a container's restart.
    note.write_text(text.replace(text.splitlines()[0], str(os.getpid()), 1))
    own_postgres.start()
    assert ask(own_postgres, "select 1") == 1


def test_a_start_that_fails_ends_with_the_servers_own_words(directory: Path) -> None:
    server = PostgresServer(directory, settings={"no_such_setting": 1}, ephemeral=True)
    with pytest.raises(ServerStartError, match='unrecognized configuration parameter "no_such_setting"'):
        server.start()
    assert not server.running
    assert server.log.exists()


def test_a_deep_directory_works(directory: Path) -> None:
    deep = directory / ("deep" * 20) / ("deeper, with a comma" * 4)
    with PostgresServer(deep) as server:
        assert ask(server, "select 1") == 1


def test_an_ephemeral_server_leaves_nothing(directory: Path) -> None:
    with PostgresServer(directory / "postgres", ephemeral=True) as server:
        assert ask(server, "select 1") == 1
    assert list(directory.iterdir()) == []


def test_initdb_runs_once_for_many_servers(directory: Path) -> None:
    cache = directory / "cache"
    with PostgresServer(directory / "first", cache=cache):
        templates = list(cache.iterdir())
    with PostgresServer(directory / "second", cache=cache) as server:
        assert ask(server, "select 1") == 1
        assert "Success" not in server.log.read_text()
    assert [path.name.partition("-")[0] for path in templates] == ["initdb"]
    assert list(cache.iterdir()) == templates


def test_without_a_usable_cache_initdb_runs_anyway(directory: Path) -> None:
    (directory / "cache").write_text("not a directory")
    with PostgresServer(directory / "postgres", cache=directory / "cache") as server:
        assert ask(server, "select 1") == 1


def test_an_interrupted_creation_is_cleared_away(directory: Path) -> None:
    (directory / "new-abandoned" / "data").mkdir(parents=True)
    with PostgresServer(directory) as server:
        assert ask(server, "select 1") == 1
    assert not list(directory.glob("new-*"))


def every_binary() -> list[Path]:
    return [find_postgres().path, *sorted(DEBIAN_POSTGRES.glob("*/bin/postgres"))]


@pytest.mark.parametrize("binary", every_binary(), ids=lambda path: path.parts[-3])
def test_every_server_on_this_machine_starts_and_recovers(directory: Path, binary: Path) -> None:
    with PostgresServer(directory, binary=FoundBinaries(binary, "a test")) as server:
        do(server, "create table kept as select 7 as n")
        server.kill()
        server.start()
        assert ask(server, "select n from kept") == 7
