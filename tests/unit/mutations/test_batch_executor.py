"""No mutation waits for a batch to fill, those that come together go together, and the others go alone."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.errors import IndeterminateCommit, InvalidInput
from fencepost.kernel.call import Call
from fencepost_players.mutations._execution import BatchExecutor, Pending
from fencepost_players.mutations.planning import make_plan
from fencepost_players.mutations.store import Executed, RequestContext


def pending(key: str, player: str | None = None) -> Pending[str]:
    def plan(rng: Any) -> str:
        return key

    player = player or key
    return Pending(
        RequestContext(player, f"player:{player}", key, "d", "Use", None), make_plan(plan), 1, keep=True
    )


class Store:
    """Everybody is carried but those whose key says otherwise."""

    def execute_many(
        self, all_pending: Sequence[Pending[Any]], *, waits: bool = False
    ) -> Call[list[Executed | None]]:
        keys = [str(one.context.key) for one in all_pending]
        answers = [None if key.startswith("heavy") else Executed("claimed", key) for key in keys]
        return Call("select", tuple(keys), lambda rows: answers)


class Water:
    """Lets a crossing end when the test says so."""

    def __init__(self, error: Exception | None = None) -> None:
        self.crossings: list[tuple[Any, ...]] = []
        self.calm = asyncio.Event()
        self._error = error

    async def run(self, call: Call[Any]) -> Any:
        self.crossings.append(tuple(call.arguments))
        await self.calm.wait()
        if self._error is not None:
            raise self._error
        return call.read([])


async def turns() -> None:
    """Until everybody who can move has."""
    for _ in range(10):
        await asyncio.sleep(0)


class Odd(Store):
    """Cannot even be asked for some."""

    def execute_many(
        self, all_pending: Sequence[Pending[Any]], *, waits: bool = False
    ) -> Call[list[Executed | None]]:
        raise InvalidInput("plan contains a NUL character.", field="plan")


async def test_a_request_that_cannot_be_sent_leaves_no_caller_waiting() -> None:
    batch_executor = BatchExecutor[str](Water(), Odd(), places=3)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*(batch_executor.carry(pending(key)) for key in ("odd", "k1"))) == [
            None,
            None,
        ]


async def test_no_caller_waits_for_company_and_callers_that_come_meanwhile_go_together() -> None:
    water = Water()
    batch_executor = BatchExecutor[str](water, Store(), places=3, crossings=1)
    going = [asyncio.create_task(batch_executor.carry(pending("k0")))]
    await turns()
    assert water.crossings == [("k0",)]
    going += [asyncio.create_task(batch_executor.carry(pending(f"k{n}"))) for n in range(1, 6)]

    water.calm.set()
    answers = await asyncio.gather(*going)

    assert water.crossings == [("k0",), ("k1", "k2", "k3"), ("k4", "k5")]
    assert [answer.response for answer in answers if answer] == [f"k{n}" for n in range(6)]


async def test_one_that_cannot_be_carried_is_sent_back_alone() -> None:
    water = Water()
    water.calm.set()
    batch_executor = BatchExecutor[str](water, Store(), places=3)

    light, heavy = await asyncio.gather(
        batch_executor.carry(pending("light")), batch_executor.carry(pending("heavy"))
    )

    assert light == Executed("claimed", "light")
    assert heavy is None


async def test_a_failed_batch_sends_every_request_back() -> None:
    water = Water(error=ValueError("no such plan"))
    water.calm.set()
    batch_executor = BatchExecutor[str](water, Store(), places=3, crossings=1)

    assert await asyncio.gather(*(batch_executor.carry(pending(f"k{n}")) for n in range(3))) == [None] * 3
    assert await batch_executor.carry(pending("next")) is None


async def test_a_lost_answer_is_reported_to_every_request_of_the_batch() -> None:
    water = Water(error=IndeterminateCommit("the reply was lost"))
    water.calm.set()
    batch_executor = BatchExecutor[str](water, Store(), places=3)

    answers = await asyncio.gather(
        *(batch_executor.carry(pending(f"k{n}")) for n in range(2)), return_exceptions=True
    )

    assert [type(answer) for answer in answers] == [IndeterminateCommit] * 2


async def test_a_caller_that_gives_up_does_not_stop_the_batch() -> None:
    water = Water()
    batch_executor = BatchExecutor[str](water, Store(), places=3, crossings=1)
    first = asyncio.create_task(batch_executor.carry(pending("first")))
    others = [asyncio.create_task(batch_executor.carry(pending(f"k{n}"))) for n in range(2)]
    await turns()

    first.cancel()
    water.calm.set()

    with pytest.raises(asyncio.CancelledError):
        await first
    assert [answer.response for answer in await asyncio.gather(*others) if answer] == ["k0", "k1"]


class Waiting(Store):
    """Notes which crossings may wait for a row."""

    def __init__(self) -> None:
        self.waits: list[bool] = []

    def execute_many(
        self, all_pending: Sequence[Pending[Any]], *, waits: bool = False
    ) -> Call[list[Executed | None]]:
        self.waits.append(waits)
        return super().execute_many(all_pending)


async def test_those_of_one_hot_player_go_by_themselves_one_crossing_at_a_time() -> None:
    water, store = Water(), Waiting()
    batch_executor = BatchExecutor[str](water, store, places=3, crossings=4)
    going = [asyncio.create_task(batch_executor.carry(pending(f"a{n}", "ann"))) for n in range(5)]
    going += [asyncio.create_task(batch_executor.carry(pending(f"k{n}"))) for n in range(2)]
    await turns()
    assert water.crossings == [("a0", "a1", "a2"), ("k0", "k1")], "the others do not wait for the hot one"

    water.calm.set()
    answers = await asyncio.gather(*going)

    assert water.crossings[2:] == [("a3", "a4")]
    assert store.waits == [True, False, True]
    assert len(answers) == 7
