"""One implementation in two forms: answers, errors and cleaning up are the same without an event loop."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fencepost._sync_form import Awaited, Blocking, Form, Operations, complete, context, operation, settled


class Counter(Operations[Form]):
    """A driver that is asynchronous, or blocks, and what is written once over both."""

    def __init__(self, *, is_blocking: bool) -> None:
        self.is_blocking = is_blocking
        self.seen: list[str] = []

    def _drive(self, value: int) -> Any:
        if self.is_blocking:
            return value

        async def later() -> int:
            await asyncio.sleep(0)
            return value

        return later()

    @operation
    async def add(self, one: int, *, other: int = 1) -> int:
        """Adds."""
        if one < 0:
            raise ValueError("negative")
        return int(await settled(self._drive(one))) + other

    @context
    async def held(self, name: str) -> AsyncGenerator[str]:
        """Holds."""
        self.seen.append(f"enter {name}")
        try:
            yield name.upper()
        except KeyError:
            self.seen.append("caught")
        finally:
            await settled(self._drive(0))
            self.seen.append(f"leave {name}")


@pytest.fixture
def awaited() -> Counter[Awaited]:
    return Counter(is_blocking=False)


@pytest.fixture
def blocking() -> Counter[Blocking]:
    return Counter(is_blocking=True)


async def test_both_forms_answer_and_raise_the_same(
    awaited: Counter[Awaited], blocking: Counter[Blocking]
) -> None:
    assert await awaited.add(2, other=5) == blocking.add(2, other=5) == 7
    with pytest.raises(ValueError, match="negative"):
        await awaited.add(-1)
    with pytest.raises(ValueError, match="negative"):
        blocking.add(-1)


def test_the_blocking_form_needs_no_event_loop(blocking: Counter[Blocking]) -> None:
    assert blocking.add(1) == 2
    with blocking.held("a") as name:
        assert name == "A"
    assert blocking.seen == ["enter a", "leave a"]


async def test_both_contexts_clean_up_after_an_error(
    awaited: Counter[Awaited], blocking: Counter[Blocking]
) -> None:
    for error in (LookupError("on purpose"), StopIteration("also"), RuntimeError("and this")):
        with pytest.raises(type(error)):
            async with awaited.held("a"):
                raise error
        with pytest.raises(type(error)), blocking.held("a"):
            raise error
    assert blocking.seen == awaited.seen == ["enter a", "leave a"] * 3


def fail() -> None:
    raise KeyError


async def test_both_contexts_may_catch_an_error(
    awaited: Counter[Awaited], blocking: Counter[Blocking]
) -> None:
    async with awaited.held("a"):
        fail()
    with blocking.held("a"):
        fail()
    assert blocking.seen == awaited.seen == ["enter a", "caught", "leave a"]


def test_the_methods_keep_their_names_and_documentation(blocking: Counter[Blocking]) -> None:
    assert (blocking.add.__name__, blocking.add.__doc__) == ("add", "Adds.")
    assert Counter[Blocking].held.__doc__ == "Holds."


def test_what_would_wait_on_an_event_loop_is_a_bug_that_shows() -> None:
    with pytest.raises(RuntimeError, match="tried to wait on an event loop"):
        complete(asyncio.sleep(0))
