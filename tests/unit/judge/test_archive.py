"""Archives of strangers: what is refused, and that the refusal names the member."""

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge.packages._archive import unpack


def archive(tmp_path: Path, *members: tuple[str, bytes], mode: int = 0) -> Path:
    path = tmp_path / "package.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = mode << 16
            opened.writestr(info, content)
    return path


def unpacked(tmp_path: Path, path: Path) -> Path:
    folder = tmp_path / "out" / "inner"
    folder.mkdir(parents=True)
    unpack(path, folder)
    return folder


def test_a_good_archive_is_unpacked(tmp_path: Path) -> None:
    folder = unpacked(tmp_path, archive(tmp_path, ("p/problem.yaml", b"name: x\n"), ("p/data/1.in", b"1\n")))

    assert (folder / "p/data/1.in").read_bytes() == b"1\n"


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "a/../../evil",
        "/etc/evil",
        "a\\..\\evil",
        "C:evil",
        "a\x01b",
        "x" * 500,
        "..",
        "a/b/../../../c",
    ],
)
def test_a_name_that_leads_outside_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="member"):
        unpacked(tmp_path, archive(tmp_path, ("good", b"1"), (name, b"1")))

    assert not (tmp_path / "evil").exists()
    assert list((tmp_path / "out/inner").iterdir()) == []


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFSOCK])
def test_links_and_special_files_are_refused(tmp_path: Path, kind: int) -> None:
    with pytest.raises(InvalidInput, match="'link'"):
        unpacked(tmp_path, archive(tmp_path, ("link", b"/etc/shadow"), mode=kind | 0o777))


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("names", [("a", "a"), ("A", "a"), ("d/x", "D/X")])
def test_a_name_that_is_there_twice_is_refused(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(InvalidInput, match="twice"):
        unpacked(tmp_path, archive(tmp_path, *((name, b"1") for name in names)))


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="'a/b'"):
        unpacked(tmp_path, archive(tmp_path, ("a", b"1"), ("a/b", b"1")))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="bomb"):
        unpacked(tmp_path, archive(tmp_path, ("zeros", bytes(50_000_000))))

    assert list((tmp_path / "out/inner").iterdir()) == []


def test_a_member_that_lies_about_its_size_is_stopped(tmp_path: Path) -> None:
    path = archive(tmp_path, ("liar", bytes(100_000)))
    content = path.read_bytes()
    # The uncompressed size, in the local header and in the directory.
    path.write_bytes(content.replace(struct.pack("<I", 100_000), struct.pack("<I", 10)))

    with pytest.raises(InvalidInput):
        unpacked(tmp_path, path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "package.zip"
    path.write_bytes(io.BytesIO(b"PK\x03\x04 nonsense").getvalue())

    with pytest.raises(InvalidInput, match="cannot be read"):
        unpacked(tmp_path, path)


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost_judge.packages._archive.MEMBERS_MAX", 3)

    with pytest.raises(InvalidInput, match="4 members"):
        unpacked(tmp_path, archive(tmp_path, *((str(i), b"") for i in range(4))))
