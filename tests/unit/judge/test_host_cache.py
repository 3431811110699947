"""Test data is fetched once for a host, checked at each use, and evicted by size."""

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fencepost_judge._data_cache import Cache
from fencepost_judge._host_cache import HostCache
from fencepost_judge._store import CorruptData, Store


class CountingStore(Store):
    """Notes what is fetched."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.fetched: list[str] = []

    def get(self, digest: str) -> bytes:
        self.fetched.append(digest)
        return super().get(digest)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "store")


def put(store: CountingStore, *contents: bytes) -> list[str]:
    digests = [store.put(content) for content in contents]
    store.fetched.clear()
    return digests


def judge(tmp_path: Path, store: Store, name: str, bytes_max: int = 1 << 20) -> Cache:
    return Cache(
        store,
        tmp_path / name,
        bytes_max=bytes_max,
        host=HostCache(store, tmp_path / "host", bytes_max=bytes_max),
    )


async def test_two_judges_of_a_host_fetch_a_content_once(tmp_path: Path, store: CountingStore) -> None:
    (digest,) = put(store, b"large")
    one, two = judge(tmp_path, store, "one"), judge(tmp_path, store, "two")
    paths = [await one.path(digest), await two.path(digest), await one.path(digest)]

    assert [path.read_bytes() for path in paths] == [b"large"] * 3
    assert store.fetched == [digest]
    # One file with three names.
    assert len({path.stat().st_ino for path in paths}) == 1


def test_judges_that_want_a_content_at_the_same_time_wait_for_one_fetch(
    tmp_path: Path, store: CountingStore
) -> None:
    (digest,) = put(store, b"x" * 100_000)
    host = [HostCache(store, tmp_path / "host", bytes_max=1 << 20) for _ in range(8)]

    def link(place: int) -> None:
        host[place].link(digest, tmp_path / f"copy{place}")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(link, range(8)))

    assert store.fetched == [digest]
    assert all((tmp_path / f"copy{place}").stat().st_size == 100_000 for place in range(8))


async def test_what_was_damaged_on_the_host_is_fetched_anew(tmp_path: Path, store: CountingStore) -> None:
    (digest,) = put(store, b"right")
    one = judge(tmp_path, store, "one")
    (await one.path(digest)).write_bytes(b"wrong")
    again = await judge(tmp_path, store, "two").path(digest)

    assert again.read_bytes() == b"right"
    assert (await one.path(digest)).read_bytes() == b"right"
    assert store.fetched == [digest, digest]


async def test_what_was_not_used_longest_is_evicted(tmp_path: Path, store: CountingStore) -> None:
    old, used, new = put(store, b"a" * 400, b"b" * 400, b"c" * 400)
    host = HostCache(store, tmp_path / "host", bytes_max=1000)
    for place, digest in enumerate((old, used)):
        host.link(digest, tmp_path / f"copy{place}")
        os.utime(tmp_path / "host" / "locks" / digest, (place, place))
    host.link(new, tmp_path / "copy2")

    left = {path.name for path in (tmp_path / "host").iterdir() if path.is_file()}
    assert left == {used, new}
    # A judge that uses it keeps it.
    assert (tmp_path / "copy0").read_bytes() == b"a" * 400


async def test_corrupt_data_of_the_store_is_refused_as_before(tmp_path: Path, store: CountingStore) -> None:
    (digest,) = put(store, b"right")
    next((tmp_path / "store").rglob(digest)).write_bytes(b"wrong")
    with pytest.raises(CorruptData):
        await judge(tmp_path, store, "one").path(digest)


async def test_many_uses_at_once_of_two_judges(tmp_path: Path, store: CountingStore) -> None:
    digests = put(store, *(bytes([place]) * 50 for place in range(20)))
    judges = [judge(tmp_path, store, name) for name in ("one", "two")]
    paths = await asyncio.gather(*(one.path(digest) for digest in digests * 3 for one in judges))

    assert {path.read_bytes() for path in paths} == {bytes([place]) * 50 for place in range(20)}
    assert sorted(store.fetched) == sorted(digests)
