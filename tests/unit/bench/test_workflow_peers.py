"""The libraries that workflows are measured beside, and the servers that two of them bring."""

from pathlib import Path

import pytest

from bench import workflow_servers
from bench.jobs_peers import CannotTakePart
from bench.workflow_peers import OURSELVES, STRANGE_WORKFLOWS, PeerFigures, WorkflowPeer, best
from bench.workflow_servers import SERVERS, ServerProgram

SCRIPT = "#!/bin/sh\necho some words >&2\necho no such module >&2\nexit 1\n"


@pytest.fixture
def bare_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing on it, and nothing installed."""
    path = tmp_path / "path"
    path.mkdir()
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(workflow_servers, "PROGRAMS", tmp_path / "programs")
    return path


def put(program: Path, text: str = "") -> None:
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)


def test_every_library_that_was_named_takes_part() -> None:
    assert {peer.name for peer in STRANGE_WORKFLOWS} == {"dbos", "absurd", "restate", "temporal"}


@pytest.mark.parametrize("peer", [OURSELVES, *STRANGE_WORKFLOWS], ids=lambda peer: peer.name)
def test_every_library_has_its_runner_in_one_version(peer: WorkflowPeer) -> None:
    assert peer.runner.is_file()
    assert all("==" in package for package in peer.packages)


def test_a_library_with_a_server_is_named_by_the_version_of_the_server() -> None:
    titles = {peer.name: peer.title for peer in STRANGE_WORKFLOWS if peer.server is not None}

    assert titles == {name: f"{name} {server.version}" for name, server in SERVERS.items()}


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (SERVERS["restate"], "neither restate-server nor npm"),
        (SERVERS["temporal"], "neither temporal nor go"),
    ],
    ids=SERVERS,
)
def test_a_server_that_cannot_be_had_is_told_with_the_reason(
    bare_path: Path, server: ServerProgram, reason: str
) -> None:
    assert not server.ready

    with pytest.raises(CannotTakePart, match=reason):
        server.make()


@pytest.mark.parametrize(
    ("server", "tool", "reason"),
    [(SERVERS["restate"], "npm", "no such module"), (SERVERS["temporal"], "go", "no such module")],
    ids=SERVERS,
)
def test_an_installation_that_fails_is_told_with_its_last_words(
    bare_path: Path, server: ServerProgram, tool: str, reason: str
) -> None:
    put(bare_path / tool, SCRIPT)

    with pytest.raises(CannotTakePart, match=reason):
        server.make()


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_a_server_on_the_path_or_installed_before_is_used(bare_path: Path, server: ServerProgram) -> None:
    kept = workflow_servers.PROGRAMS / server.program / server.program
    kept.mkdir(parents=True)
    assert not server.ready, "a folder of the same name is no program"
    kept.rmdir()

    put(kept)
    assert server.make() == kept

    put(bare_path / server.program)
    assert server.make() == bare_path / server.program


def test_what_was_not_measured_is_no_best_peer_and_has_a_row_that_says_why() -> None:
    slow, fast, absent = (
        PeerFigures(peer, rows_per_second=rate, why_not=why)
        for peer, rate, why in zip(
            STRANGE_WORKFLOWS, (1.0, 2.0, 9.0), ("", "", "go could not build it"), strict=False
        )
    )

    assert best([slow, fast, absent], "rows_per_second") == 2.0
    assert absent.row()["not measured"] == "go could not build it"


def test_the_commits_of_a_store_that_is_not_postgresql_are_not_counted() -> None:
    figures = {peer.name: PeerFigures(peer).row() for peer in STRANGE_WORKFLOWS}

    assert figures["restate"]["commits a step, without"] == "not seen"
    assert figures["dbos"]["commits a step, without"] == 0.0
