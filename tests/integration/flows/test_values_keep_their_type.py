"""Values keep their type through a crash, a channel and the table of dead letters."""

import asyncio
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest

from fencepost.flows import (
    CheckpointId,
    Failure,
    Flow,
    IterableSource,
    StagedSink,
    Tumbling,
    WindowResult,
)
from fencepost.flows import (
    _dead_letters as dead_letters,
)
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks.http import HttpSink
from fencepost.flows.sinks.postgres import PostgresRows, PostgresUpsert
from fencepost.testing import PlannedCrash, crash_at
from tests.integration.flows.harness import FlowHarness


@dataclass(frozen=True)
class Payment:
    user: str
    cents: int
    place: tuple[int, int] = (0, 0)


class Refund(msgspec.Struct, frozen=True):
    payment: Payment
    why: str


class Seen(StagedSink):
    """Takes what it is given, in memory, by checkpoint."""

    promise = Promise(EXACTLY_ONCE, "a repeat is the same checkpoint")

    def __init__(self) -> None:
        self.given: list[tuple[int, list[Any]]] = []

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> None:
        self.given.append((checkpoint.number, list(values)))


def payment(number: int) -> Payment:
    return Payment(f"u-{number % 3}", number, (number, -number))


VALUES: dict[str, Any] = {
    "tuple": (1, ("a", 2.5)),
    "dataclass": payment(3),
    "struct": Refund(payment(4), "late"),
    "window": WindowResult(("eu", 1), 0.0, 10.0, [payment(5)]),
    "failure": Failure(payment(6), "ValueError: no", "map-1", ("u", 1)),
}


@pytest.mark.parametrize("kind", VALUES)
async def test_a_staged_value_is_after_a_crash_what_it_was_before(harness: FlowHarness, kind: str) -> None:
    sink = Seen()
    flow = Flow("typed").source(IterableSource([VALUES[kind]])).sink(sink)
    with pytest.raises(PlannedCrash), crash_at("flows.commit.before_flag"):
        await harness.run(flow)
    await harness.run(flow)

    (number, [first]), (again, [second]) = sink.given
    assert (number, first) == (again, second)
    assert type(second) is type(VALUES[kind])
    assert repr(second) == repr(first)


async def test_one_idempotency_key_carries_one_body(harness: FlowHarness) -> None:
    """The encoder is the user's, and knows the attributes of what it was given first."""

    def body(result: WindowResult) -> bytes:
        return f"{result.key} {result.start:g} {[each.cents for each in result.value]}".encode()

    with bodies_by_key() as (url, bodies):
        sink = HttpSink(url, honours_keys=True, encode=body)
        timed = Flow("posted").source(IterableSource([payment(n) for n in range(40)])).event_time(_cents)
        flow = timed.key_by(lambda p: p.user).window(Tumbling(10)).collect().sink(sink)
        with pytest.raises(PlannedCrash), crash_at("flows.commit.before_flag"):
            await harness.run(flow)
        await harness.run(flow)

    assert len(bodies) == 12
    assert [len(each) for each in bodies.values()] == [1] * 12


@contextmanager
def bodies_by_key() -> Generator[tuple[str, dict[str, set[bytes]]]]:
    """A service that writes down with which bodies each idempotency key came."""
    bodies: dict[str, set[bytes]] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            bodies.setdefault(self.headers["Idempotency-Key"], set()).add(body)
            self.send_response(204)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", bodies
        server.shutdown()
        thread.join()


def _cents(paid: Payment) -> float:
    return paid.cents


async def test_failures_behind_key_groups_are_failures(harness: FlowHarness) -> None:
    broken = Flow("grouped").source(IterableSource([payment(n) for n in range(6)])).map(_odd)
    failures = broken.errors.map(lambda failure: failure.value.cents)
    counts = broken.key_by(lambda p: p.user, groups=2).sum(lambda p: p.cents)
    flow = counts.sink(PostgresUpsert("total", ["key"], ["value"]))
    flow = flow.also(failures.sink(PostgresRows("line", ["value"])))
    direct = Seen()

    await harness.run(flow.also(broken.errors.sink(direct)))

    assert sorted(row[0] for row in harness.rows("select value from line")) == [0, 2, 4]
    assert dict(harness.rows("select * from total")) == {"u-0": 3, "u-1": 1, "u-2": 5}
    given = [value for _, values in direct.given for value in values]
    assert all(isinstance(each, Failure) and isinstance(each.value, Payment) for each in given)
    assert sorted(each.value.cents for each in given) == [0, 2, 4]


def _odd(paid: Payment) -> Payment:
    if paid.cents % 2 == 0:
        raise ValueError("even")
    return paid


async def test_two_steps_with_dead_letters_before_key_groups(harness: FlowHarness) -> None:
    fixed = [False]

    def read(word: bytes) -> Payment:
        return payment(int(word) if not fixed[0] else 3)

    def checked(paid: Payment) -> Payment:
        if paid.cents == 2 and not fixed[0]:
            raise ValueError("not two")
        return paid

    words = Flow("totals").source(IterableSource([b"1", b"2", b"three", b"4"]))
    payments = words.map(read).dead_letters("unreadable").map(checked).dead_letters("unchecked")
    totals = payments.key_by(lambda p: p.user, groups=4).sum(lambda p: p.cents)
    flow = totals.sink(PostgresUpsert("total", ["key"], ["value"]))
    async with asyncio.timeout(60):
        await harness.run(flow)
    assert dict(harness.rows("select * from total")) == {"u-1": 5}
    assert harness.rows("select step from fencepost.flow_dead_letters order by step") == [
        ("unchecked",),
        ("unreadable",),
    ]

    fixed[0] = True
    for step in ("unreadable", "unchecked"):
        await harness.fp.run(dead_letters.replay("totals", step, ids=None, limit=10, by="test"))
    await harness.run(flow)

    assert dict(harness.rows("select * from total")) == {"u-0": 3, "u-1": 5, "u-2": 2}


async def test_a_dead_letter_comes_back_as_what_it_was(harness: FlowHarness) -> None:
    fixed = [False]
    seen: list[Any] = []

    def take(value: Any) -> int:
        if not fixed[0]:
            raise ValueError("not yet")
        seen.append(value)
        return 1

    values = list(VALUES.values())
    flow = Flow("dead").source(IterableSource(values)).map(take).dead_letters("refused")
    lines = flow.sink(PostgresRows("line", ["value"]))
    await harness.run(lines)
    fixed[0] = True
    await harness.fp.run(dead_letters.replay("dead", "refused", ids=None, limit=10, by="test"))
    await harness.run(lines)

    assert [repr(each) for each in seen] == [repr(each) for each in values]


async def test_a_value_of_a_class_that_cannot_be_found_again_is_refused_when_it_is_stored(
    harness: FlowHarness,
) -> None:
    @dataclass
    class Local:
        n: int

    worker = harness.worker(Flow("local").source(IterableSource([Local(1)])).sink(Seen()))
    async with harness.running(worker):
        await harness.until(lambda: bool(worker.errors))
        [error] = worker.errors.values()

    assert "Local is defined inside a function" in error
    assert "Define it at the top of a module" in error
