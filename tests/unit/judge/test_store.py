"""Test data by content: checked when it is read, bounded at hand, whatever happens to the disk."""

import asyncio
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._data_cache import Cache
from fencepost_judge._store import CorruptData, Store, StoreUnavailable


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def place_of(store: Store, digest: str) -> Path:
    return Path(store.place) / digest[:2] / digest


def test_what_was_put_is_there_and_what_was_not_is_not(store: Store) -> None:
    digest = store.put(b"1 2 3\n")

    assert (store.get(digest), store.put(b"1 2 3\n")) == (b"1 2 3\n", digest)
    with pytest.raises(FileNotFoundError):
        store.get("0" * 64)


def test_content_that_changed_is_refused_and_healed_by_the_next_import(store: Store) -> None:
    digest = store.put(b"1 2 3\n")
    place_of(store, digest).write_bytes(b"1 2 4\n")
    with pytest.raises(CorruptData):
        store.get(digest)
    store.put(b"1 2 3\n")

    assert store.get(digest) == b"1 2 3\n"


def test_a_store_is_made_at_its_first_use_and_says_when_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    Store(tmp_path / "unused")
    with pytest.raises(StoreUnavailable, match="JUDGE_STORE"):
        Store(tmp_path / "file/below").put(b"1")
    with pytest.raises(InvalidInput, match="s3://bucket"):
        Store("ftp://user:pass@host/x")

    assert not (tmp_path / "unused").exists()


async def test_the_cache_is_bounded_and_drops_what_was_not_used_longest(store: Store, tmp_path: Path) -> None:
    cache = Cache(store, tmp_path / "w", bytes_max=250)
    digests = [store.put(bytes([i]) * 100) for i in range(3)]
    for digest in (digests[0], digests[1], digests[0], digests[2]):
        await cache.path(digest)

    assert sorted(path.name for path in (tmp_path / "w/data").iterdir()) == sorted([digests[0], digests[2]])


@pytest.mark.parametrize("how", ["written", "exchanged", "removed"])
async def test_a_file_at_hand_that_was_touched_comes_anew(store: Store, tmp_path: Path, how: str) -> None:
    cache = Cache(store, tmp_path / "w")
    digest = store.put(b"1 2 3\n")
    place = await cache.path(digest)
    if how == "written":
        with place.open("r+b") as file:
            file.write(b"9")
    else:
        place.unlink()
        if how == "exchanged":
            place.write_bytes(b"9 2 3\n")

    assert (await cache.path(digest)).read_bytes() == b"1 2 3\n"


async def test_many_that_want_one_content_fetch_it_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, asked = store.put(b"1"), list[str]()
    get = store.get

    def counted(digest: str) -> bytes:
        asked.append(digest)
        return get(digest)

    monkeypatch.setattr(store, "get", counted)
    cache = Cache(store, tmp_path / "w")
    places = await asyncio.gather(*(cache.path(digest) for _ in range(5)))

    assert (asked, {place.read_bytes() for place in places}) == ([digest], {b"1"})


async def test_broken_content_never_comes_to_hand(store: Store, tmp_path: Path) -> None:
    digest = store.put(b"1 2 3\n")
    place_of(store, digest).write_bytes(b"1 2 4\n")
    cache = Cache(store, tmp_path / "w")
    for _ in range(2):
        with pytest.raises(CorruptData):
            await cache.path(digest)

    assert list((tmp_path / "w/data").iterdir()) == []
