"""Hooks that raise, once and for ever, before their work and after it; and operators that do."""

import asyncio
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from fencepost.flows import CheckpointAwareSink, CheckpointId, Flow, IterableSource, Sink, TwoPhaseCommitSink
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.testing import at_crash_point
from tests.integration.flows.harness import FlowHarness

# Of each hook, where a task must fail before for it to be called; most are called by every commit.
TWO_PHASE: Mapping[str, str] = {
    "begin_transaction": "",
    "invoke": "",
    "pre_commit": "",
    "commit": "",
    "abort": "flows.commit.after_pre_commit",
    "recover_and_abort": "flows.commit.after_invoke",
    "recover_and_commit": "flows.commit.after_store",
}
AWARE: Mapping[str, str] = {
    "on_checkpoint_start": "",
    "on_checkpoint_complete": "",
    "on_checkpoint_abort": "flows.commit.after_pre_commit",
    "on_checkpoint_restore": "flows.commit.after_flag",
}
HOOKS = {**TWO_PHASE, **AWARE}


class Ledger:
    """A service that keeps what is published by its name, and fails when it is told to."""

    def __init__(self) -> None:
        self.staged: dict[str, list[int]] = {}
        self.published: dict[str, list[int]] = {}
        self.failing: Counter[str] = Counter()

    @contextmanager
    def call(self, hook: str) -> Generator[None]:
        """Fails by turns before the work is done, and after it: its answer is lost."""
        left = self.failing[hook]
        if left > 0:
            self.failing[hook] -= 1
            if left % 2 == 0:
                raise ConnectionError(f"{hook} failed")
        yield
        if left > 0:
            raise ConnectionError(f"{hook} failed")


class LedgerSink(TwoPhaseCommitSink[int, dict[str, str]]):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def begin_transaction(self, checkpoint: CheckpointId) -> dict[str, str]:
        if checkpoint.number:
            with self._ledger.call("begin_transaction"):
                pass
        return {"name": checkpoint.text}

    async def invoke(self, value: int, txn: dict[str, str]) -> None:
        with self._ledger.call("invoke"):
            self._ledger.staged.setdefault(txn["name"], []).append(value)

    async def pre_commit(self, txn: dict[str, str]) -> None:
        with self._ledger.call("pre_commit"):
            pass

    async def commit(self, txn: dict[str, str]) -> None:
        with self._ledger.call("commit"):
            if txn["name"] in self._ledger.staged:
                self._ledger.published[txn["name"]] = self._ledger.staged.pop(txn["name"])

    async def abort(self, txn: dict[str, str]) -> None:
        if "rehearsal" in txn["name"]:
            return
        with self._ledger.call("abort"):
            self._ledger.staged.pop(txn["name"], None)

    async def recover_and_commit(self, txn: dict[str, str]) -> None:
        with self._ledger.call("recover_and_commit"):
            await self.commit(txn)

    async def recover_and_abort(self, txn: dict[str, str]) -> None:
        with self._ledger.call("recover_and_abort"):
            await self.abort(txn)


class AwareSink(CheckpointAwareSink[int]):
    idempotent = True

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    async def on_checkpoint_start(self, checkpoint: CheckpointId) -> None:
        with self._ledger.call("on_checkpoint_start"):
            pass

    async def on_checkpoint_complete(self, checkpoint: CheckpointId, values: Sequence[int]) -> None:
        with self._ledger.call("on_checkpoint_complete"):
            self._ledger.published[f"{checkpoint.resource}#{checkpoint.number}"] = list(values)

    async def on_checkpoint_abort(self, checkpoint: CheckpointId) -> None:
        with self._ledger.call("on_checkpoint_abort"):
            pass

    async def on_checkpoint_restore(self, resource: str, number: int) -> None:
        with self._ledger.call("on_checkpoint_restore"):
            pass


def sink_with(hook: str, ledger: Ledger) -> Sink:
    return LedgerSink(ledger) if hook in TWO_PHASE else AwareSink(ledger)


@contextmanager
def provoked(hook: str) -> Generator[None]:
    """The task fails at its second commit, where the hook is called in recovery."""
    with ExitStack() as stack:
        if HOOKS[hook]:
            stack.enter_context(at_crash_point(HOOKS[hook], _fail, nth=2))
        yield


def _fail() -> None:
    raise ConnectionError("provoked")


def published(ledger: Ledger) -> Sequence[int]:
    return sorted(value for values in ledger.published.values() for value in values)


NUMBERS = list(range(300))


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_fails_for_a_while_changes_nothing_in_the_end(
    harness: FlowHarness, hook: str
) -> None:
    ledger = Ledger()
    ledger.failing[hook] = 2
    flow = Flow("failing").source(IterableSource(NUMBERS)).sink(sink_with(hook, ledger))

    with provoked(hook):
        await harness.run(flow, records_max=100)

    assert published(ledger) == NUMBERS
    assert ledger.staged == {}
    assert ledger.failing[hook] == 0, "it was never called"


@pytest.mark.parametrize("hook", HOOKS)
async def test_a_hook_that_fails_for_ever_is_told_and_can_be_mended(harness: FlowHarness, hook: str) -> None:
    ledger = Ledger()
    ledger.failing[hook] = 1_000_000
    flow = Flow("broken").source(IterableSource(NUMBERS)).sink(sink_with(hook, ledger))
    worker = harness.worker(flow, records_max=100)
    with provoked(hook):
        running = asyncio.create_task(worker.run(until_done=True))
        await harness.until(lambda: f"{hook} failed" in str(worker.errors))
        so_far = published(ledger)
        assert so_far == NUMBERS[: len(so_far)]
        assert len(so_far) < len(NUMBERS)
        ledger.failing.clear()

        async with asyncio.timeout(30):
            await running

    assert published(ledger) == NUMBERS


@pytest.mark.parametrize("hook", ["abort", "on_checkpoint_abort"])
async def test_a_task_that_lost_its_lease_and_cannot_abort_leaves_it_to_its_successor(
    harness: FlowHarness, hook: str
) -> None:
    ledger = Ledger()
    ledger.failing[hook] = 2
    flow = Flow("lost").source(IterableSource(NUMBERS)).sink(sink_with(hook, ledger))

    with at_crash_point("flows.commit.after_pre_commit", harness.lose_units, nth=2):
        await harness.run(flow, records_max=100)

    assert published(ledger) == NUMBERS
    assert ledger.staged == {}
    assert ledger.failing[hook] == 0, "it was never called"


async def test_a_record_that_no_step_can_take_stops_its_task_and_loses_nothing(harness: FlowHarness) -> None:
    broken = [True]

    def careful(number: int) -> int:
        if number == 150 and broken[0]:
            raise ValueError("not this one")
        return number

    flow = Flow("poison").source(IterableSource(NUMBERS)).map(careful).sink(PostgresRows("line", ["value"]))
    worker = harness.worker(flow, records_max=100)
    running = asyncio.create_task(worker.run(until_done=True))
    await harness.until(lambda: "not this one" in str(worker.errors))
    broken[0] = False
    async with asyncio.timeout(30):
        await running

    found: Any = harness.rows("select value from line order by value")
    assert [row[0] for row in found] == NUMBERS
