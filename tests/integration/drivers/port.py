"""A driver as its user has it: the user's transaction, the user's statements, and our calls inside.

Every port answers the same questions in blocking form, so that one test serves them all: the async ones bring
an event loop that runs for the length of each question.
"""

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import LiteralString, Protocol, TypeVar

from fencepost import Call

T = TypeVar("T")


class Port(Protocol):
    """What a test asks of a driver."""

    def transaction(self) -> AbstractContextManager[object]:
        """The user's own transaction, begun and ended in the driver's own way."""
        ...

    def savepoint(self) -> AbstractContextManager[object]:
        """A savepoint inside it."""
        ...

    def execute(self, statement: LiteralString) -> None:
        """A statement of the user's own."""
        ...

    def run(self, call: Call[T]) -> T:
        """A call of ours, in the present transaction."""
        ...


class Loop:
    """Runs coroutines one after the other, each to its end."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def wait(self, awaitable: Awaitable[T]) -> T:
        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    @contextmanager
    def inside(self, manager: AbstractAsyncContextManager[T]) -> Generator[T]:
        """An async context manager as a blocking one."""
        value = self.wait(manager.__aenter__())
        try:
            yield value
        except BaseException as error:
            if not self.wait(manager.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.wait(manager.__aexit__(None, None, None))

    def close(self) -> None:
        self._runner.close()
