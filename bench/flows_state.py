"""State that expires, with few and with many live ids: what a record costs must not depend on their number.

No server: the stages of one task in memory, and the bytes of its commits. Every record has an id of its own,
so that as many ids expire as come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from bench.report import Goal, Row
from fencepost.flows import Flow, IterableSource, ListSink, Session, Tumbling
from fencepost.flows._graph import KeyedStream
from fencepost.flows._plan import FlowPlan, KeyedStage, SourceStage
from fencepost.flows._state import encode

FEW, MANY, QUICK_MANY = 1_000, 500_000, 100_000
TURNS, QUICK_TURNS = 6, 3
TURN_RECORDS = 20_000
BATCH = 500
"""Records in a batch and a commit: fewer than live ids, so that an id is stored before it expires."""
FILLED_AT_ONCE = 20_000
PER_SECOND = 1_000
TIMES_MAX = 1.3

Event = tuple[int, float]


def _keyed(name: str, lateness_seconds: float = 0) -> KeyedStream[Any, Event]:
    source = Flow(name).source(IterableSource([]))
    return source.event_time(_moment, allowed_lateness=lateness_seconds).key_by(_identity)


def _moment(event: Event) -> float:
    return event[1]


def _identity(event: Event) -> int:
    return event[0]


def _count(state: int | None, event: Event) -> tuple[int, list[int]]:
    return (state or 0) + 1, []


def _pair(left: Event, right: Event) -> int:
    return left[0] + right[0]


FLOWS: dict[str, Callable[[float], Flow]] = {
    "dedup": lambda seconds: _keyed("dedup").dedup(_identity, ttl=seconds).sink(ListSink()),
    "stateful": lambda seconds: _keyed("stateful").stateful(_count, ttl=seconds).sink(ListSink()),
    "sessions": lambda seconds: _keyed("sessions").window(Session(seconds)).count().sink(ListSink()),
    "join": lambda seconds: _joined(_keyed("join", seconds)).sink(ListSink()),
}
"""By title: a flow whose ids live for so many seconds."""


def _joined(keyed: KeyedStream[Any, Event]) -> KeyedStream[Any, int]:
    return keyed.join(keyed, _pair, window=Tumbling(0.1))


class RunningTask:
    """The stages of a task whose state has `live` ids."""

    def __init__(self, make: Callable[[float], Flow], live: int) -> None:
        program = FlowPlan(make(live / PER_SECOND))
        self._head, self._body = SourceStage(program, program.sources[0]), KeyedStage(program, senders=1)
        self._next = 0
        self.seconds = float("inf")
        """CPU seconds for a record, in the best turn: the machine's other load only adds to it."""
        asyncio.run(self._feed(live, FILLED_AT_ONCE))

    def turn(self) -> None:
        began = time.process_time()
        asyncio.run(self._feed(TURN_RECORDS, BATCH))
        self.seconds = min(self.seconds, (time.process_time() - began) / TURN_RECORDS)

    async def _feed(self, count: int, batch: int) -> None:
        last = self._next + count
        while self._next < last:
            numbers = range(self._next, min(last, self._next + batch))
            self._next = numbers.stop
            for number, records in await self._head.feed([(n, n / PER_SECOND) for n in numbers]):
                await self._body.push("bench", number, records)
            await self._body.advance(self._head.watermark)
            await self._body.flush()
            self._body.take()
            encode(self._body.changed())
            self._body.clean()


def measure(*, quick: bool) -> tuple[list[Row], list[Goal]]:
    many, turns = (QUICK_MANY, QUICK_TURNS) if quick else (MANY, TURNS)
    rows: list[Row] = []
    goals: list[Goal] = []
    for title, make in FLOWS.items():
        tasks = {live: RunningTask(make, live) for live in (FEW, many)}
        for _ in range(turns):
            for task in tasks.values():
                task.turn()
        rows += [
            {
                "system": f"fencepost, {title}, {live:,} live ids, no server",
                "guarantee": "exactly-once",
                "records": turns * TURN_RECORDS,
                "records/CPU s": round(1 / task.seconds),
            }
            for live, task in tasks.items()
        ]
        name = f"{title}: a record with {many:,} live ids, times one with {FEW:,}"
        times = tasks[many].seconds / tasks[FEW].seconds
        goals.append(Goal(name, round(times, 2), TIMES_MAX, at_most=True))
    return rows, goals
