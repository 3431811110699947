"""The ground that the libraries meet on: their environments, their traces, what the server wrote."""

import multiprocessing
from pathlib import Path

import pytest

from bench import jobs_peers
from bench.jobs_env import StatementLog
from bench.jobs_peers import OURSELVES, STRANGERS, CannotTakePart, Environment, Peer, ready_ones
from bench.peers.results_store import ResultsStore

NAMED = (
    "procrastinate",
    "pgqueuer",
    "celery",
    "dramatiq",
    "arq",
    "saq",
    "taskiq",
    "dbos",
    "absurd",
    "streaq",
)


def test_every_caller_that_was_named_takes_part() -> None:
    assert {peer.name for peer in STRANGERS} == {*NAMED, "awa", "graphile_worker"}


@pytest.mark.parametrize("peer", [OURSELVES, *STRANGERS], ids=lambda peer: peer.name)
def test_every_peer_has_its_runner(peer: Peer) -> None:
    assert peer.runner.is_file()


@pytest.mark.parametrize("peer", STRANGERS, ids=lambda peer: peer.name)
def test_a_figure_belongs_to_one_version(peer: Peer) -> None:
    assert all("==" in package for package in peer.packages)
    version = peer.packages[0].partition("==")[2] if peer.packages else peer.npm.partition("@")[2]
    assert version
    assert peer.title == f"{peer.name} {version}"


def test_an_environment_of_other_versions_is_not_ready(tmp_path: Path) -> None:
    old, new = Peer("x", "Redis", ("x==1",)), Peer("x", "Redis", ("x==2",))
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "ready.txt").write_text(f"{jobs_peers.DRIVER}\nx==1")

    assert Environment(old, tmp_path).ready
    assert not Environment(new, tmp_path).ready


def test_an_environment_that_was_never_made_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    assert ready_ones([OURSELVES, Peer("x", "Redis", ("x==1",))]) == [OURSELVES]


def test_a_package_that_cannot_be_had_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uv = tmp_path / "uv"
    uv.write_text("#!/bin/sh\necho no such version >&2\nexit 1\n")
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    with pytest.raises(CannotTakePart, match="cannot be installed: no such version"):
        Environment(Peer("x", "Redis", ("x==1",)), tmp_path / "env").make()


def _count_three(directory: Path) -> None:
    results = ResultsStore(directory)
    for _ in range(3):
        results.count()


def test_every_process_counts_for_itself(tmp_path: Path) -> None:
    _count_three(tmp_path)
    process = multiprocessing.get_context("spawn").Process(target=_count_three, args=(tmp_path,))
    process.start()
    process.join()

    assert ResultsStore(tmp_path).total() == 6


def test_a_file_that_was_only_just_made_counts_nothing(tmp_path: Path) -> None:
    (tmp_path / "count-1").touch()

    assert ResultsStore(tmp_path).total() == 0


def test_a_wait_is_counted_and_kept(tmp_path: Path) -> None:
    results = ResultsStore(tmp_path)
    results.waited(0.0)
    results.waited(1.0)

    first, second = results.waits()
    assert first - second == pytest.approx(1, abs=0.5)
    assert results.total() == 2


def test_a_gate_is_closed_until_it_is_opened(tmp_path: Path) -> None:
    results = ResultsStore(tmp_path)
    assert not results.is_allowed("A")

    results.allow("A")

    assert results.is_allowed("A")
    assert not results.is_allowed("B")


def test_only_statements_of_the_database_since_the_mark_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("ours_1|LOG:  statement: before\n")
    log = StatementLog(path, "ours_1")
    log.skip()
    with path.open("a") as file:
        file.write("ours_1|LOG:  statement: begin\n")
        file.write("ours_1|LOG:  execute _pg3_0: select 1\n")
        file.write("ours_1|DETAIL:  Parameters: $1 = 'LOG:  statement:'\n")
        file.write("ours_11|LOG:  statement: another's\n")

    assert log.count() == 2
