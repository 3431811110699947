"""Serves callers that wait at the same time together: one statement and one commit for all of them.

A batch takes what waits, and no caller is delayed to fill a batch: while a batch may start, a single caller
is served alone. Under load batches form by themselves, as in a group commit: callers that are answered
together ask again together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, eq=False)
class Waiting(Generic[A, R]):
    """One caller: what it asked for, and the future of its answer. A caller may have given up."""

    asked: A
    answer: asyncio.Future[R]

    def fail(self, error: BaseException) -> None:
        """Give the waiting caller this error instead of an answer."""
        if isinstance(error, asyncio.CancelledError):
            self.answer.cancel()
        elif not self.answer.done():
            self.answer.set_exception(error)


class Line(Protocol[A, R]):
    """The waiting callers. It decides which of them are in the next batch."""

    def add(self, waiting: Waiting[A, R]) -> None:
        """Append a caller to this line."""

    def next_batch(self) -> Sequence[Waiting[A, R]]:
        """Remove the next batch from the line and return it; empty if none may start now."""
        ...

    def ended(self, batch: Sequence[Waiting[A, R]]) -> None:
        """The batch was answered, or failed."""
        ...


class Coalescer(Generic[A, R]):
    """`serve` answers a batch, in its order; what it raises is raised to each caller of the batch. At most
    `at_once` batches are under way."""

    def __init__(
        self,
        serve: Callable[[Sequence[A]], Awaitable[Sequence[R]]],
        line: Line[A, R],
        *,
        at_once: int = 1,
        name: str,
    ) -> None:
        self._serve = serve
        self._line = line
        self._free = at_once
        self._name = name
        self._is_called = False
        self._under_way: set[asyncio.Task[None]] = set()

    async def ask(self, asked: A) -> R:
        """The answer. A caller that is cancelled does not cancel the batch: what it asked for may happen."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._line.add(Waiting(asked, answer))
        self._call()
        return await answer

    async def drain(self) -> None:
        """Wait until no caller waits."""
        while self._under_way or self._is_called:
            if self._under_way:
                await asyncio.wait(self._under_way)
            else:
                await asyncio.sleep(0)

    def _call(self) -> None:
        """Start a batch in the next turn of the event loop: what arrives in this turn joins it."""
        if self._free and not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        self._is_called = False
        while self._free and (batch := self._line.next_batch()):
            self._free -= 1
            task = asyncio.create_task(self._run(batch), name=self._name)
            self._under_way.add(task)
            task.add_done_callback(partial(self._ended, batch))

    def _ended(self, batch: Sequence[Waiting[A, R]], task: asyncio.Task[None]) -> None:
        self._under_way.discard(task)
        self._line.ended(batch)
        self._free += 1
        self._call()

    async def _run(self, batch: Sequence[Waiting[A, R]]) -> None:
        try:
            answers = await self._serve([waiting.asked for waiting in batch])
            answered = list(zip(batch, answers, strict=True))
        except BaseException as error:
            for waiting in batch:
                waiting.fail(error)
            if not isinstance(error, Exception):
                raise
            return
        for waiting, answer in answered:
            if not waiting.answer.done():
                waiting.answer.set_result(answer)
