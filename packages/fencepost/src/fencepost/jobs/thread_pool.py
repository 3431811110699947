"""Threads for handlers that have no event loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

Function = Callable[[], Any]
Deliver = Callable[[Any, BaseException | None], None]


class ThreadPool:
    """Runs functions in threads, as many at once as are requested, and reuses idle threads.

    The threads are daemons, unlike those of concurrent.futures: a handler that never returns must not keep a
    worker from ending. A caller may stop waiting (a timeout, a lost lease); the thread then runs on, and
    counts as left behind until its function returns, because nothing can end a thread from outside.
    """

    def __init__(self, on_return: Callable[[], None]) -> None:
        self._on_return = on_return
        self._errands: SimpleQueue[tuple[Function, Deliver] | None] = SimpleQueue()
        self._threads: int = 0
        self._busy: int = 0
        self.left_behind: int = 0

    async def call(self, function: Function) -> Any:
        """What the function returns or raises. It sees the context variables of the caller."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        future.add_done_callback(self._note_leaving)
        context = contextvars.copy_context()

        def deliver(result: Any, error: BaseException | None) -> None:
            with suppress(RuntimeError):  # The loop may be closed by now.
                loop.call_soon_threadsafe(self._returned, future, result, error)

        if self._busy == self._threads:
            self._threads += 1
            threading.Thread(target=self._work, name="fencepost-handler", daemon=True).start()
        self._busy += 1
        self._errands.put((lambda: context.run(function), deliver))
        return await future

    def close(self) -> None:
        """Ends idle threads now; the others end when their functions return."""
        for _ in range(self._threads):
            self._errands.put(None)

    def _note_leaving(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self.left_behind += 1

    def _returned(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.cancelled():
            self.left_behind -= 1
        elif error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
        self._on_return()

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            function, deliver = errand
            try:
                result = function()
            except StopIteration as error:
                # A future accepts any exception but StopIteration, which would end a generator somewhere.
                deliver(None, RuntimeError(f"the function raised {error!r}"))
            except BaseException as error:
                deliver(None, error)
            else:
                deliver(result, None)
