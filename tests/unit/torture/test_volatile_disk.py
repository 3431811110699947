"""What was synced is there after a power cut, and nothing else is."""

import errno
import stat

import pytest

from fencepost_torture._volatile_disk import ROOT, VolatileDisk

FILE = stat.S_IFREG | 0o600
FOLDER = stat.S_IFDIR | 0o700


@pytest.fixture
def disk() -> VolatileDisk:
    return VolatileDisk()


def test_what_was_not_synced_is_gone(disk: VolatileDisk) -> None:
    log = disk.make(ROOT, b"log", FILE)
    disk.write(log.number, 0, b"committed")
    disk.sync(log.number)
    disk.write(log.number, 3, b"MITMENTS AND MORE")
    disk.make(ROOT, b"other", FILE)

    disk.cut_power()

    assert disk.read(log.number, 0, 100) == b"committed"
    assert set(disk.nodes[ROOT].names) == {b"log"}


def test_a_sync_makes_the_bytes_of_one_file_and_the_names_of_all_durable(disk: VolatileDisk) -> None:
    folder = disk.make(ROOT, b"folder", FOLDER)
    one = disk.make(folder.number, b"one", FILE)
    two = disk.make(folder.number, b"two", FILE)
    disk.write(one.number, 0, b"one")
    disk.write(two.number, 0, b"two")
    disk.sync(one.number)

    disk.cut_power()

    assert set(disk.nodes[folder.number].names) == {b"one", b"two"}
    assert (disk.read(one.number, 0, 10), disk.read(two.number, 0, 10)) == (b"one", b"")


def test_a_rename_or_a_removal_that_was_not_synced_did_not_happen(disk: VolatileDisk) -> None:
    old = disk.make(ROOT, b"old", FILE)
    gone = disk.make(ROOT, b"gone", FILE)
    disk.write(gone.number, 0, b"still here")
    disk.sync(gone.number)
    disk.rename(ROOT, b"old", ROOT, b"new")
    disk.remove(ROOT, b"gone")
    # The kernel lets go of it, and the disk may not yet.
    disk.forget(gone.number, 1)

    disk.cut_power()

    assert disk.nodes[ROOT].names == {b"old": old.number, b"gone": gone.number}
    assert disk.read(gone.number, 0, 20) == b"still here"


def test_a_file_that_was_removed_lives_while_it_is_open(disk: VolatileDisk) -> None:
    file = disk.make(ROOT, b"temporary", FILE)
    file.lookups = 1
    disk.write(file.number, 0, b"x")
    disk.remove(ROOT, b"temporary")
    assert disk.read(file.number, 0, 1) == b"x"

    disk.forget(file.number, 1)

    assert file.number not in disk.nodes


@pytest.mark.parametrize(("before", "after"), [(10, 4), (4, 10), (5, 5)])
def test_a_size_is_durable_when_it_is_synced(disk: VolatileDisk, before: int, after: int) -> None:
    file = disk.make(ROOT, b"file", FILE)
    disk.write(file.number, 0, b"a" * before)
    disk.sync(file.number)
    disk.resize(file.number, after)
    disk.cut_power()
    assert disk.read(file.number, 0, 20) == b"a" * before

    disk.resize(file.number, after)
    disk.sync(file.number)
    disk.cut_power()

    assert disk.read(file.number, 0, 20) == (b"a" * before)[:after].ljust(after, b"\0")


def test_a_full_disk_takes_nothing_more(disk: VolatileDisk) -> None:
    file = disk.make(ROOT, b"file", FILE)
    disk.is_full = True

    for act in (lambda: disk.write(file.number, 0, b"x"), lambda: disk.make(ROOT, b"more", FILE)):
        with pytest.raises(OSError, match="full") as caught:
            act()
        assert caught.value.errno == errno.ENOSPC


def test_a_folder_with_names_in_it_stays(disk: VolatileDisk) -> None:
    folder = disk.make(ROOT, b"folder", FOLDER)
    disk.make(folder.number, b"file", FILE)

    with pytest.raises(OSError, match="not empty"):
        disk.remove(ROOT, b"folder")


def test_a_sync_of_all_keeps_everything(disk: VolatileDisk) -> None:
    folder = disk.make(ROOT, b"folder", FOLDER)
    file = disk.make(folder.number, b"file", FILE)
    disk.write(file.number, 0, b"kept")
    disk.sync_all()
    disk.write(file.number, 0, b"lost")

    disk.cut_power()

    assert disk.read(file.number, 0, 10) == b"kept"
    assert set(disk.nodes[folder.number].names) == {b"file"}
