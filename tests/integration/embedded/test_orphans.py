"""Whichever process is killed, no server stays behind."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from fencepost.embedded import Pair
from fencepost.embedded import _reaper as reaper
from fencepost.embedded._deadline import Deadline
from fencepost.embedded._reaper import process_table

STARTER = Path(__file__).with_name("starter.py")


@dataclass(frozen=True)
class Started:
    """A program that has started a pair, and all the processes below it."""

    program: subprocess.Popen[bytes]
    pids: list[int]
    forked: int | None
    admin_url: str

    def kill(self) -> None:
        self.program.kill()
        self.program.wait()


@contextlib.contextmanager
def started(directory: Path, manner: str = "plain") -> Generator[Started]:
    command = [sys.executable, str(STARTER), str(directory), manner]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        report = json.loads(program.stdout.readline())
        try:
            yield Started(program, **report)
        finally:
            program.kill()
            if report["forked"]:
                os.kill(report["forked"], signal.SIGKILL)


def living(pids: list[int]) -> list[int]:
    table = process_table()
    return [pid for pid in pids if pid in table and table[pid].state != "Z"]


def wait_until_gone(pids: list[int]) -> None:
    Deadline(60, "no process of the servers is left").wait(lambda: not living(pids))


@pytest.mark.parametrize("manner", ["plain", "from-a-thread", "paused", "with-a-fork"])
def test_no_server_outlives_the_process_that_started_it(directory: Path, manner: str) -> None:
    with started(directory, manner) as starter:
        # Two keepers, Valkey, the postmaster and its children.
        assert len(living(starter.pids)) >= 8
        starter.kill()
        wait_until_gone(starter.pids)


def test_servers_started_from_a_thread_outlive_the_thread(directory: Path) -> None:
    with started(directory, "from-a-thread") as starter, psycopg.connect(starter.admin_url) as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def test_a_killed_keeper_takes_its_server_along(directory: Path) -> None:
    with started(directory) as starter:
        table = process_table()
        # A child of PostgreSQL's may have ended since they were counted.
        keepers = [pid for pid in starter.pids if pid in table and table[pid].parent == starter.program.pid]
        assert len(keepers) == 2
        for keeper in keepers:
            os.kill(keeper, signal.SIGKILL)
        wait_until_gone(starter.pids)


def test_a_keeper_that_is_told_to_stop_stops_its_server(directory: Path) -> None:
    with Pair(directory) as pair:
        pids = [*pair.postgres.pids, *pair.valkey.pids]
        table = process_table()
        for server in (pair.postgres, pair.valkey):
            os.kill(table[server.pids[0]].parent, signal.SIGTERM)
        wait_until_gone(pids)
        assert "database system is shut down" in pair.postgres.log.read_text()


def test_a_killed_postmaster_leaves_no_children(directory: Path) -> None:
    with Pair(directory) as pair:
        pids = pair.postgres.pids
        os.kill(pids[0], signal.SIGKILL)
        wait_until_gone(pids)
        Deadline(60, "the keeper has seen it").wait(lambda: not pair.postgres.running)


def test_an_ephemeral_pair_vanishes_with_its_starter(directory: Path) -> None:
    with started(directory / "pair", "ephemeral") as starter:
        starter.kill()
        Deadline(60, "the directories are removed").wait(lambda: not list((directory / "pair").iterdir()))


def test_a_caller_that_lets_go_of_the_parent_pipe_is_on_its_way_though_it_is_still_there(
    directory: Path,
) -> None:
    """A process that is killed closes its files before it has left; a quick server ends in between."""
    swept = directory / "swept"
    swept.mkdir()
    sleep = shutil.which("sleep")
    task = reaper.SpawnSpec([str(sleep), "60"], os.getpid(), "stay", 0, 0, [signal.SIGKILL], [str(swept)])
    command = [sys.executable, "-I", "-S", reaper.__file__, json.dumps(task._asdict())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as kept:
        assert kept.stdin is not None
        assert kept.stdout is not None
        kept.stdout.readline()
        kept.stdin.close()
        kept.wait(60)

    assert not swept.exists()


def test_the_data_of_a_killed_starter_can_be_used_at_once(directory: Path) -> None:
    with started(directory) as starter:
        with psycopg.connect(starter.admin_url, autocommit=True) as connection:
            connection.execute("create table kept as select 7 as n")
        starter.kill()
    with Pair(directory) as pair, psycopg.connect(pair.admin_url) as connection:
        assert connection.execute("select n from kept").fetchone() == (7,)


def test_a_socket_in_the_temporary_directory_is_removed_for_a_killed_starter(directory: Path) -> None:
    deep = directory / ("deep" * 30)
    with started(deep) as starter:
        sockets = Path(parse_qs(urlsplit(starter.admin_url).query)["host"][0])
        assert not sockets.is_relative_to(deep)
        starter.kill()
        Deadline(60, "the socket's directory is removed").wait(lambda: not sockets.exists())
