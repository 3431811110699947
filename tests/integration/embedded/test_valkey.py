"""The embedded Valkey: how it starts, how it ends, and what survives."""

import stat
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from fencepost.embedded import DirectoryInUseError, NotRunningError, ServerStartError, ValkeyServer
from fencepost.embedded._reaper import process_table


@contextmanager
def client(server: ValkeyServer) -> Generator[Any]:
    # Typed as Any: the client's own annotations answer every call with "perhaps awaitable".
    connection: Any = redis.Redis.from_url(server.url, decode_responses=True)  # pyright: ignore[reportUnknownMemberType]
    with connection:
        yield connection


def test_it_listens_on_a_private_socket_and_nowhere_else(own_valkey: ValkeyServer) -> None:
    with client(own_valkey) as connection:
        assert connection.config_get("port") == {"port": "0"}
    assert own_valkey.url.startswith("unix:///")
    assert own_valkey.url.endswith("/valkey.sock?db=0")
    path = Path(own_valkey.url.removeprefix("unix://").partition("?")[0])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_speaks_streams_scripts_and_functions(own_valkey: ValkeyServer) -> None:
    with client(own_valkey) as connection:
        connection.xadd("stream", {"n": 1})
        connection.xgroup_create("stream", "group", id="0")
        assert connection.xreadgroup("group", "me", {"stream": ">"})
        assert connection.xautoclaim("stream", "group", "other", min_idle_time=0)[1]
        assert connection.eval("return redis.call('xlen', KEYS[1])", 1, "stream") == 1


def test_without_append_only_a_stop_forgets(directory: Path) -> None:
    with ValkeyServer(directory) as server:
        with client(server) as connection:
            connection.set("key", "value")
        server.restart()
        with client(server) as connection:
            assert connection.get("key") is None


def test_with_append_only_a_restart_remembers_at_the_same_address(own_valkey: ValkeyServer) -> None:
    url = own_valkey.url
    with client(own_valkey) as connection:
        connection.set("key", "value")
        own_valkey.restart()
        assert own_valkey.url == url
        assert connection.get("key") == "value"


def test_a_crash_leaves_no_process_and_can_be_followed_by_a_start(own_valkey: ValkeyServer) -> None:
    pids = own_valkey.pids
    own_valkey.kill()
    assert not own_valkey.running
    assert not set(pids) & set(process_table())
    own_valkey.start()
    with client(own_valkey) as connection:
        assert connection.ping()


def test_a_wipe_loses_data_scripts_and_incarnation(own_valkey: ValkeyServer) -> None:
    with client(own_valkey) as connection:
        connection.set("key", "value")
        digest = connection.script_load("return 1")
        before = connection.info("server")["run_id"]
        own_valkey.wipe()
        assert connection.get("key") is None
        assert connection.script_exists(digest) == [False]
        assert connection.info("server")["run_id"] != before


def test_a_stopped_server_can_be_wiped(directory: Path) -> None:
    server = ValkeyServer(directory, append_only=True).start()
    with client(server) as connection:
        connection.set("key", "value")
    server.stop()
    server.wipe()
    assert not server.running
    with server, client(server) as connection:
        assert connection.get("key") is None


def test_a_flush_empties_every_database_and_keeps_the_server(own_valkey: ValkeyServer) -> None:
    with client(own_valkey) as connection:
        connection.set("key", "value")
        digest = connection.script_load("return 1")
        before = connection.info("server")["run_id"]
        own_valkey.flush()
        assert connection.dbsize() == 0
        assert connection.script_exists(digest) == [False]
        assert connection.info("server")["run_id"] == before


def test_a_paused_server_does_not_answer_until_it_is_resumed(own_valkey: ValkeyServer) -> None:
    own_valkey.pause()
    table = process_table()
    assert {table[pid].state for pid in own_valkey.pids} == {"T"}
    own_valkey.resume()
    with client(own_valkey) as connection:
        assert connection.ping()


def test_a_paused_server_can_still_be_stopped(own_valkey: ValkeyServer) -> None:
    own_valkey.pause()
    own_valkey.stop()
    assert not own_valkey.running


def test_a_directory_serves_one_server_at_a_time(own_valkey: ValkeyServer) -> None:
    with pytest.raises(DirectoryInUseError, match=f"process id {own_valkey.pids[0]}"):
        ValkeyServer(own_valkey.directory).start()


def test_a_server_that_does_not_run_cannot_be_paused(directory: Path) -> None:
    with pytest.raises(NotRunningError):
        ValkeyServer(directory).pause()


def test_a_start_that_fails_ends_with_the_servers_own_words(directory: Path) -> None:
    data = directory / "data" / "appendonlydir"
    data.mkdir(parents=True)
    (data / "appendonly.aof.manifest").write_text("nonsense\n")
    server = ValkeyServer(directory, append_only=True)
    with pytest.raises(ServerStartError, match="AOF"):
        server.start()
    assert not server.running


def test_a_deep_directory_works(directory: Path) -> None:
    with ValkeyServer(directory / ("deep " * 40)) as server, client(server) as connection:
        assert connection.ping()
