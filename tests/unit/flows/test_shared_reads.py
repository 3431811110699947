"""Many groups wait for their streams over few connections."""

import asyncio
from typing import Any

import pytest

from fencepost.flows._shared_reads import SharedReads


class FakeRedis:
    """Answers XREAD from a mapping, and waits for news as long as it is told."""

    def __init__(self) -> None:
        self.entries: dict[str, list[Any]] = {}
        self.news = asyncio.Event()
        self.waiting = 0
        self.waiting_most = 0
        self.fails = False

    def put(self, stream: str, entry: str) -> None:
        self.entries.setdefault(stream, []).append((entry.encode(), [b"h", b""]))
        self.news.set()

    async def execute_command(self, *command: Any) -> Any:
        if self.fails:
            raise ConnectionError("away")
        at = command.index("STREAMS") + 1
        streams = command[at : at + (len(command) - at) // 2]
        lasts = dict(zip(streams, command[at + len(streams) :], strict=True))
        if "BLOCK" not in command:
            return self._found(lasts)
        self.waiting += 1
        self.waiting_most = max(self.waiting, self.waiting_most)
        try:
            async with asyncio.timeout(command[command.index("BLOCK") + 1] / 1000):
                while not (found := self._found(lasts)):
                    self.news.clear()
                    await self.news.wait()
                return found
        except TimeoutError:
            return None
        finally:
            self.waiting -= 1

    def _found(self, lasts: dict[str, str]) -> dict[bytes, Any]:
        found = {s: [e for e in self.entries.get(s, []) if e[0].decode() > last] for s, last in lasts.items()}
        return {stream.encode(): entries for stream, entries in found.items() if entries}


async def test_each_group_gets_its_own_entries_over_few_connections() -> None:
    redis = FakeRedis()
    reads = SharedReads(redis, groups=50, connections=4)
    waits = [asyncio.create_task(reads.read(group, {f"s{group}": "0"}, 30)) for group in range(50)]
    await asyncio.sleep(0)
    for group in range(50):
        redis.put(f"s{group}", f"1-{group}")

    async with asyncio.timeout(30):
        answers = await asyncio.gather(*waits)

    assert [list(answer) for answer in answers] == [[f"s{group}".encode()] for group in range(50)]
    assert redis.waiting_most <= 4
    await reads.close()


async def test_nothing_in_time_is_nothing() -> None:
    reads = SharedReads(FakeRedis(), groups=2, connections=1)
    assert await asyncio.gather(*(reads.read(group, {f"s{group}": "0"}, 0.01) for group in range(2))) == [
        {},
        {},
    ]
    await reads.close()


async def test_a_group_that_comes_while_its_reader_waits_for_others_gets_what_is_there() -> None:
    redis = FakeRedis()
    reads = SharedReads(redis, groups=2, connections=1)
    other = asyncio.create_task(reads.read(0, {"s0": "0"}, 30))
    await asyncio.sleep(0)
    redis.entries["s1"] = [(b"1-1", [])]

    async with asyncio.timeout(30):
        assert list(await reads.read(1, {"s1": "0"}, 30)) == [b"s1"]
    assert not other.done()
    other.cancel()
    await asyncio.gather(other, return_exceptions=True)
    await reads.close()


async def test_an_error_is_told_to_every_caller_that_waits_and_the_reader_goes_on() -> None:
    redis = FakeRedis()
    reads = SharedReads(redis, groups=3, connections=1)
    redis.fails = True
    failed = await asyncio.gather(
        *(reads.read(group, {f"s{group}": "0"}, 30) for group in range(3)), return_exceptions=True
    )
    assert [type(each) for each in failed] == [ConnectionError] * 3
    redis.fails = False
    redis.put("s1", "1-1")

    assert list(await reads.read(1, {"s1": "0"}, 30)) == [b"s1"]
    await reads.close()


async def test_a_read_that_is_cancelled_leaves_the_others() -> None:
    redis = FakeRedis()
    reads = SharedReads(redis, groups=2, connections=1)
    first, second = (asyncio.create_task(reads.read(group, {f"s{group}": "0"}, 30)) for group in range(2))
    await asyncio.sleep(0)
    first.cancel()
    redis.put("s1", "1-1")

    async with asyncio.timeout(30):
        assert list(await second) == [b"s1"]
    with pytest.raises(asyncio.CancelledError):
        await first
    await reads.close()
