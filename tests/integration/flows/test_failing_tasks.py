"""A task that fails says so where people look, until it works again."""

import asyncio

from fencepost.flows import Flow, IterableSource
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.kernel.call import Call, each
from tests.integration.flows.harness import FlowHarness


async def failing(harness: FlowHarness) -> list[tuple[str, int, str]]:
    call: Call[list[tuple[str, int, str]]] = Call(
        "select resource, failures, error from fencepost.flow_failing('shaky')", (), each(lambda *row: row)
    )
    return await harness.fp.run(call)


async def test_a_task_that_fails_tells_of_what_and_is_silent_when_it_works_again(
    harness: FlowHarness,
) -> None:
    broken = True

    def shake(number: int) -> int:
        if broken:
            raise ConnectionError("the other system is away\0")
        return number

    flow = Flow("shaky").source(IterableSource([1, 2, 3])).map(shake).sink(PostgresRows("line", ["value"]))
    told: list[tuple[str, int, str]] = []
    async with asyncio.timeout(60), harness.running(harness.worker(flow)):
        while not told:
            told = await failing(harness)
        resource, failures, error = told[0]
        assert resource.startswith("flow:shaky/")
        assert failures >= 1
        assert error.endswith("the other system is away")
        broken = False
        await harness.until(lambda: len(harness.rows("select value from line")) == 3)
        while told:
            told = await failing(harness)
