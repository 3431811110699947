"""How long a takeover waits before each look, and that giving up leaves nothing under way."""

import asyncio

import pytest

from fencepost.kernel.eviction import EvictionDelay, outwait


@pytest.mark.parametrize(
    ("patience", "pauses"),
    [
        (EvictionDelay(), [0.25, 0.5, 1, *[2] * 14, 0.25]),
        (EvictionDelay(0.5, 0.5, 1), [0.5, 0.5]),
        (EvictionDelay(1, 4, 10), [1, 2, 4, 3]),
        (EvictionDelay(1, 4, 0), []),
        (EvictionDelay(3, 4, 2), [2]),
    ],
)
def test_pauses_double_up_to_the_longest_and_end_with_the_patience(
    patience: EvictionDelay, pauses: list[float]
) -> None:
    assert list(patience.pauses()) == pauses


async def test_an_attempt_that_is_answered_is_not_looked_at() -> None:
    async def look() -> None:
        raise AssertionError("no backend is in the way")

    async def attempt() -> int:
        return 7

    assert await outwait(attempt(), look, EvictionDelay()) == 7


async def test_a_blocked_attempt_is_looked_at_after_each_pause_until_it_is_answered() -> None:
    looks: list[int] = []
    free = asyncio.Event()

    async def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            free.set()

    async def attempt() -> str:
        await free.wait()
        return "taken"

    assert await outwait(attempt(), look, EvictionDelay(0.001, 0.001, 60)) == "taken"
    assert looks == [0, 1, 2]


async def test_a_caller_that_gives_up_leaves_nothing_under_way() -> None:
    begun, undone = asyncio.Event(), asyncio.Event()

    async def look() -> None:
        raise LookupError

    async def attempt() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # Another turn of the loop: to undo takes time.
            undone.set()

    with pytest.raises(LookupError):
        await outwait(attempt(), look, EvictionDelay(0.001, 0.001, 60))

    assert begun.is_set()
    assert undone.is_set(), "what undoes the attempt belongs to the transaction that attempted it"
