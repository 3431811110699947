"""Callers that wait together are answered together, and none is left without an answer."""

import asyncio
from collections import deque
from collections.abc import Sequence

import pytest

from fencepost.coalescer import Coalescer, Waiting


class All:
    """The next batch is all that wait, up to three."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting[int, int]] = deque()
        self.over: list[list[int]] = []

    def add(self, waiting: Waiting[int, int]) -> None:
        self.waiting.append(waiting)

    def next_batch(self) -> list[Waiting[int, int]]:
        return [self.waiting.popleft() for _ in range(min(3, len(self.waiting)))]

    def ended(self, batch: Sequence[Waiting[int, int]]) -> None:
        self.over.append([one.asked for one in batch])


class Server:
    """Doubles numbers, when it may."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.may = asyncio.Event()
        self.batches: list[list[int]] = []

    async def serve(self, batch: Sequence[int]) -> list[int]:
        self.batches.append(list(batch))
        self.began.set()
        await self.may.wait()
        return [number * 2 for number in batch if number != 13]


async def test_what_arrives_while_a_batch_is_under_way_is_the_next_batch() -> None:
    server, line = Server(), All()
    coalescer = Coalescer(server.serve, line, name="test")
    first = asyncio.create_task(coalescer.ask(0))
    await server.began.wait()
    others = [asyncio.create_task(coalescer.ask(number)) for number in range(1, 6)]
    server.may.set()

    assert await asyncio.gather(first, *others) == [0, 2, 4, 6, 8, 10]
    assert server.batches == [[0], [1, 2, 3], [4, 5]]
    assert line.over == server.batches


async def test_a_batch_with_an_answer_too_few_fails_for_each_of_its_callers() -> None:
    server = Server()
    server.may.set()
    coalescer = Coalescer(server.serve, All(), name="test")

    answers = await asyncio.gather(*(coalescer.ask(number) for number in (1, 13)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [ValueError, ValueError]
    assert await coalescer.ask(2) == 4, "the next batch is served"


async def test_a_batch_that_is_cancelled_cancels_its_callers() -> None:
    async def never(batch: Sequence[int]) -> list[int]:
        raise asyncio.CancelledError

    coalescer = Coalescer(never, All(), name="test")

    with pytest.raises(asyncio.CancelledError):
        await coalescer.ask(1)


async def test_draining_waits_for_all_waiting_callers() -> None:
    server, line = Server(), All()
    coalescer = Coalescer(server.serve, line, name="test")
    asking = [asyncio.create_task(coalescer.ask(number)) for number in range(5)]
    await asyncio.sleep(0)
    draining = asyncio.create_task(coalescer.drain())
    await asyncio.sleep(0)
    server.may.set()

    await draining

    assert line.over == [[0, 1, 2], [3, 4]]
    await asyncio.gather(*asking)
