"""`flows show` says what stops a task: the step, where the record lies, and what helps."""

import asyncio
import json
from typing import Any

import structlog

from fencepost.flows import Flow
from fencepost.flows.sinks.http import HttpSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.flows.sources.redis_streams import RedisStreams
from tests.integration.flows.harness import Command, FlowHarness
from tests.integration.flows.http_service import Answer, serving


def careful(number: int) -> int:
    if number == 7:
        raise ValueError("not this one")
    return number


def send(harness: FlowHarness, stream: str = "in") -> list[str]:
    client: Any = harness.redis
    return [client.xadd(stream, {"data": str(n)}) for n in range(10)]


async def stopped(
    harness: FlowHarness, command: Command, flow: Flow, **changes: Any
) -> tuple[dict[str, Any], str]:
    """What is told of the first task that stops: as data, and in words."""
    async with asyncio.timeout(60), harness.running(harness.worker(flow, **changes)):
        while True:
            _, said = await asyncio.to_thread(command, "flows", "show", flow.name, "--json")
            told: list[Any] = json.loads(said)["stopped"] if said else []
            if told:
                _, words = await asyncio.to_thread(command, "flows", "show", flow.name)
                return told[0], words


async def test_a_step_before_the_keys(harness: FlowHarness, command: Command) -> None:
    ids = send(harness)
    numbers = Flow("head").source(RedisStreams("in")).json().map(careful)

    with structlog.testing.capture_logs() as logs:
        told, words = await stopped(harness, command, numbers.sink(PostgresRows("line", ["value"])))

    logged = next(log for log in logs if log["event"] == "flow_task_failed")
    assert {name: logged[name] for name in ("step", "stream", "offset", "error", "remedy")} == {
        name: told[name] for name in ("step", "stream", "offset", "error", "remedy")
    }
    assert (logged["flow"], logged["resource"]) == ("head", "flow:head/part/in:in")
    assert "in careful" in logged["exception"]
    assert logged["retry_seconds"] > 0
    assert (told["step"], told["stream"], told["offset"]) == ("map-1", "in:in", ids[7])
    assert told["error"] == "ValueError: not this one"
    assert told["failures"] >= 1
    assert ".dead_letters(name) or .errors behind it" in told["remedy"]
    for fact in ("part/in:in is stopped", "map-1", "in:in", ids[7], "not this one", ".dead_letters(name)"):
        assert fact in words


async def test_a_step_before_key_groups(harness: FlowHarness, command: Command) -> None:
    """Also when others were sent before it."""
    ids = send(harness)
    numbers = Flow("forward").source(RedisStreams("in")).json().map(careful).key_by(str, groups=3)
    flow = numbers.stateful(lambda state, n: (None, [n])).sink(PostgresRows("line", ["value"]))

    told, _ = await stopped(harness, command, flow, batch=2)

    assert told["task"] == "source/in:in"
    assert (told["step"], told["stream"], told["offset"]) == ("map-1", "in:in", ids[7])


async def test_a_step_within_key_groups(harness: FlowHarness, command: Command) -> None:
    ids = send(harness)
    numbers = Flow("grouped").source(RedisStreams("in")).json().key_by(str, groups=3)
    careful_ones = numbers.stateful(lambda state, n: (None, [careful(n)]), name="careful")

    told, _ = await stopped(harness, command, careful_ones.sink(PostgresRows("line", ["value"])))

    assert told["task"].startswith("group/")
    assert (told["step"], told["stream"], told["offset"]) == ("careful", "in:in", ids[7])


async def test_a_row_that_the_database_refuses(harness: FlowHarness, command: Command) -> None:
    ids = send(harness)
    numbers = Flow("row").source(RedisStreams("in")).json()
    with harness.database.connect_admin() as admin:
        admin.execute("alter table line add constraint small check (value < 7)")

    told, _ = await stopped(harness, command, numbers.sink(PostgresRows("line", ["value"])))

    assert (told["step"], told["stream"]) == ("PostgresRows", "in:in")
    assert told["offset"] == f"the beginning to {ids[-1]}"
    assert "CheckViolation" in told["error"]
    assert "on_reject=DeadLetters" in told["remedy"]


async def test_a_value_that_a_service_rejects(harness: FlowHarness, command: Command) -> None:
    send(harness)
    with serving(lambda key, body: Answer(422, b"no seven") if body == b"7" else Answer()) as service:
        numbers = Flow("rejected").source(RedisStreams("in")).json()

        told, words = await stopped(harness, command, numbers.sink(HttpSink(service.url, honours_keys=True)))

    assert told["step"] == "HttpSink"
    assert "HttpSink rejects 7" in told["error"]
    assert "no seven" in words


async def test_nothing_is_told_of_a_task_that_goes_on(harness: FlowHarness, command: Command) -> None:
    """Also if it once failed: what stopped it is over when it has committed."""
    failures = [2]

    def shake(number: int) -> int:
        if failures[0]:
            failures[0] -= 1
            raise ConnectionError("away")
        return number

    send(harness)
    flow = Flow("mended").source(RedisStreams("in")).json().map(shake).sink(PostgresRows("line", ["value"]))
    async with asyncio.timeout(60), harness.running(harness.worker(flow)):
        await harness.until(lambda: len(harness.rows("select value from line")) == 10)
        while True:
            _, said = await asyncio.to_thread(command, "flows", "show", "mended", "--json")
            if json.loads(said)["stopped"] == []:
                break
