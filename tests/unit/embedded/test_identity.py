"""Which account a server takes on. Nothing is run here; the accounts are made up."""

import os
import pwd
from pathlib import Path

import pytest

from fencepost.embedded._identity import NOBODY, Identity, candidates, may_enter, ourselves


def account(uid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((f"account{uid}", "x", uid, uid, "", "/", "/bin/sh"))


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> list[pwd.struct_passwd]:
    """The machine's accounts, to be changed by the test."""
    known = [account(0), account(1), account(NOBODY), account(1000)]

    def by_uid(uid: int) -> pwd.struct_passwd:
        return {entry.pw_uid: entry for entry in known}[uid]

    monkeypatch.setattr(pwd, "getpwall", lambda: known)
    monkeypatch.setattr(pwd, "getpwuid", by_uid)
    return known


def become(monkeypatch: pytest.MonkeyPatch, uid: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(os, "getegid", lambda: uid)


@pytest.mark.usefixtures("accounts")
def test_a_named_account_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    become(monkeypatch, 1000)
    assert candidates(tmp_path / "data") == [Identity("stay", 1000, 1000)] == [ourselves()]


@pytest.mark.usefixtures("accounts")
def test_root_prefers_a_namespace_to_becoming_another_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become(monkeypatch, 0)
    assert candidates(tmp_path / "data") == [
        Identity("namespace", NOBODY, NOBODY),
        Identity("drop", NOBODY, NOBODY),
    ]


@pytest.mark.usefixtures("accounts")
def test_an_account_without_a_name_can_only_take_a_namespace(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    become(monkeypatch, 4711)
    assert candidates(tmp_path / "data") == [Identity("namespace", NOBODY, NOBODY)]


def test_without_nobody_any_named_account_stands_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accounts: list[pwd.struct_passwd]
) -> None:
    become(monkeypatch, 0)
    accounts.remove(account(NOBODY))
    assert {identity.uid for identity in candidates(tmp_path / "data")} == {1}


def test_on_a_machine_with_root_alone_there_is_no_other_account(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, accounts: list[pwd.struct_passwd]
) -> None:
    become(monkeypatch, 0)
    del accounts[1:]
    assert candidates(tmp_path / "data") == []


def test_a_closed_directory_on_the_way_needs_the_right_to_pass(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    stranger = Identity("drop", closed.stat().st_uid + 1, closed.stat().st_gid + 1)
    assert stranger.reaching(closed / "data").disguise == "drop but search"


def test_open_directories_need_no_special_right() -> None:
    assert Identity("drop", NOBODY, NOBODY).reaching(Path("/nowhere/at/all")).disguise == "drop"


@pytest.mark.parametrize(
    ("mode", "owner", "member", "stranger"),
    [(0o100, True, False, False), (0o010, False, True, False), (0o001, False, False, True)],
)
def test_the_first_class_that_fits_decides_alone(
    tmp_path: Path, mode: int, owner: bool, member: bool, stranger: bool
) -> None:
    directory = tmp_path / "directory"
    directory.mkdir()
    directory.chmod(mode)
    uid, gid = directory.stat().st_uid, directory.stat().st_gid
    assert may_enter(directory, Identity("drop", uid, gid + 1)) is owner
    assert may_enter(directory, Identity("drop", uid + 1, gid)) is member
    assert may_enter(directory, Identity("drop", uid + 1, gid + 1)) is stranger
    directory.chmod(0o700)


def test_a_process_that_stays_needs_nothing(tmp_path: Path) -> None:
    assert ourselves().reaching(tmp_path) == ourselves()


@pytest.mark.parametrize(
    ("disguise", "words"),
    [("stay", "uid 7"), ("namespace", "in a user namespace"), ("drop", "uid 7, dropped from root")],
)
def test_an_identity_describes_itself(disguise: str, words: str) -> None:
    assert words in Identity(disguise, 7, 7).describe()
