"""Hooks that raise, once and for ever; and operators that do."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from fencepost.flows import CheckpointId, Flow, IterableSource, TwoPhaseCommitSink
from fencepost.flows.sinks.postgres import PostgresRows
from tests.integration.flows.scene import Scene

HOOKS = ("begin_transaction", "invoke", "pre_commit", "commit")


class Ledger:
    """A service with transactions of its own, which fails when it is told to."""

    def __init__(self) -> None:
        self.staged: dict[str, list[int]] = {}
        self.published: dict[str, list[int]] = {}
        self.failing: Counter[str] = Counter()

    def call(self, hook: str) -> None:
        if self.failing[hook] > 0:
            self.failing[hook] -= 1
            raise ConnectionError(f"{hook} failed")


class LedgerSink(TwoPhaseCommitSink[int, dict[str, str]]):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, str]:
        if checkpoint.number:
            self._ledger.call("begin_transaction")
        return {"name": checkpoint.text}

    async def invoke(self, value: int, txn: dict[str, str]) -> None:
        self._ledger.call("invoke")
        self._ledger.staged.setdefault(txn["name"], []).append(value)

    async def pre_commit(self, txn: dict[str, str]) -> None:
        self._ledger.call("pre_commit")

    async def commit(self, txn: dict[str, str]) -> None:
        self._ledger.call("commit")
        if txn["name"] in self._ledger.staged:
            self._ledger.published[txn["name"]] = self._ledger.staged.pop(txn["name"])

    async def abort(self, txn: dict[str, str]) -> None:
        self._ledger.staged.pop(txn["name"], None)


def published(ledger: Ledger) -> Sequence[int]:
    return sorted(value for values in ledger.published.values() for value in values)


NUMBERS = list(range(300))


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_fails_for_a_while_changes_nothing_in_the_end(scene: Scene, hook: str) -> None:
    ledger = Ledger()
    ledger.failing[hook] = 2
    flow = Flow("failing").source(IterableSource(NUMBERS)).sink(LedgerSink(ledger))

    await scene.run(flow, records_max=100)

    assert published(ledger) == NUMBERS
    assert ledger.staged == {}


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_fails_for_ever_is_told_and_can_be_mended(scene: Scene, hook: str) -> None:
    ledger = Ledger()
    ledger.failing[hook] = 1_000_000
    flow = Flow("broken").source(IterableSource(NUMBERS)).sink(LedgerSink(ledger))
    worker = scene.worker(flow, records_max=100)
    running = asyncio.create_task(worker.run(until_done=True))
    await scene.until(lambda: f"{hook} failed" in str(worker.errors))
    assert published(ledger) == []
    ledger.failing.clear()

    async with asyncio.timeout(30):
        await running

    assert published(ledger) == NUMBERS


async def test_a_record_that_no_step_can_take_stops_its_task_and_loses_nothing(scene: Scene) -> None:
    broken = [True]

    def careful(number: int) -> int:
        if number == 150 and broken[0]:
            raise ValueError("not this one")
        return number

    flow = Flow("poison").source(IterableSource(NUMBERS)).map(careful).sink(PostgresRows("line", ["value"]))
    worker = scene.worker(flow, records_max=100)
    running = asyncio.create_task(worker.run(until_done=True))
    await scene.until(lambda: "not this one" in str(worker.errors))
    broken[0] = False
    async with asyncio.timeout(30):
        await running

    found: Any = scene.rows("select value from line order by value")
    assert [row[0] for row in found] == NUMBERS
