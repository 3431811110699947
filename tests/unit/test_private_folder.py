"""Folders that only their owner may open, whatever the umask is."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost.cli.findings import FindingState, is_healthy
from fencepost.cli.probes.folders import probe_folders
from fencepost.embedded._server_dir import ServerDir
from fencepost.private_folder import make_private, tighten
from fencepost.server_addresses import ServerAddresses, noted
from fencepost_judge._store import Store

PLACE = ServerAddresses("test", "none", "a", "b", "c", None)


@pytest.fixture(params=[0o000, 0o022, 0o077, 0o277], ids=oct)
def umask(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[int]:
    assert tmp_path.exists(), "it is made before the umask changes: not every user could write into it"
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("umask")
def test_what_is_made_is_private(tmp_path: Path) -> None:
    make_private(tmp_path / "data" / "inner")
    assert mode(tmp_path / "data") == mode(tmp_path / "data" / "inner") == 0o700


@pytest.mark.usefixtures("umask")
def test_a_server_s_folders_are_private(tmp_path: Path) -> None:
    home = ServerDir(tmp_path / "data" / "postgres", "name.sock")
    home.open()
    try:
        assert {mode(home.directory), mode(home.directory.parent), mode(home.sockets)} == {0o700}
    finally:
        home.leave()


# The library that writes the objects makes folders by the umask: it must leave their owner its rights.
@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077], indirect=True, ids=oct)
def test_the_store_of_the_judge_is_private(tmp_path: Path) -> None:
    place = tmp_path / ".fencepost" / "judge"
    assert Store(place).get(Store(place).put(b"a secret test")) == b"a secret test"
    assert mode(place) == mode(place.parent) == 0o700


@pytest.mark.usefixtures("umask")
def test_the_folder_of_the_note_is_private(tmp_path: Path) -> None:
    with noted(tmp_path / "data", PLACE):
        assert mode(tmp_path / "data") == 0o700


def test_a_store_that_was_open_is_closed(tmp_path: Path) -> None:
    Store(tmp_path / "store").put(b"a secret test")
    (tmp_path / "store").chmod(0o755)
    Store(tmp_path / "store").put(b"another")
    assert mode(tmp_path / "store") == 0o700


def test_a_folder_with_other_things_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    tmp_path.chmod(0o755)
    make_private(tmp_path)
    Store(tmp_path).put(b"a secret test")
    assert mode(tmp_path) == 0o755


def test_a_world_readable_folder_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    tighten(tmp_path)
    assert mode(tmp_path) == 0o1777


@pytest.mark.parametrize("bits", [0o755, 0o750, 0o701, 0o770])
def test_doctor_complains_of_a_folder_that_others_may_open(tmp_path: Path, bits: int) -> None:
    tmp_path.chmod(bits)
    (finding,) = probe_folders({"data directory": tmp_path, "judge's store": tmp_path / "nothing"})
    assert finding.state is FindingState.LACKING
    assert finding.remedy == f"chmod 700 {tmp_path}"
    assert not is_healthy([finding])


def test_doctor_is_content_with_a_private_one(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (finding,) = probe_folders({"data directory": tmp_path, "judge's store": None})
    assert finding.state is FindingState.OK
