"""What a task has stored, read by its successor."""

import asyncio
from typing import Any

import pytest

from fencepost.flows import Flow, IterableSource, StateMismatch, TableSink
from fencepost.flows._graph import Stream
from fencepost.flows._plan import FlowPlan, KeyedStage
from fencepost.flows._state import PIECE_KEYS, Document, decode, encode, pieces


def numbers() -> Stream[Any]:
    return Flow("f").source(IterableSource([], name="in"))


def document(body: KeyedStage, steps: dict[str, Any]) -> Document:
    """As another process would read it."""
    stored = decode(encode({**body.whole(), "steps": steps})).body
    assert stored is not None
    return stored


def steps_of(body: KeyedStage) -> dict[str, Any]:
    return {name: dict(pairs) for name, pairs in body.whole()["steps"].items()}


async def test_state_of_another_version_is_refused_or_converted() -> None:
    keyed = numbers().key_by(lambda n: n % 2)
    old = KeyedStage(FlowPlan(keyed.fold(0, lambda s, n: s + n, name="sums").sink(TableSink())), senders=1)
    stored = document(old, {"sums/value": [[1, 5]]})
    newer = keyed.fold([0], lambda s, n: [s[0] + n], name="sums", version=2).sink(TableSink())

    with pytest.raises(StateMismatch, match="version 1 and the graph has version 2"):
        await KeyedStage(FlowPlan(newer), senders=1).load([stored])

    converting = Flow("f", migrations={"sums": lambda version, pairs: [[k, [v]] for k, v in pairs]})
    same = converting.source(IterableSource([], name="in")).key_by(lambda n: n % 2)
    body = KeyedStage(
        FlowPlan(same.fold([0], lambda s, n: s, name="sums", version=2).sink(TableSink())), senders=1
    )
    await body.load([stored])
    assert steps_of(body) == {"sums/value": {1: [5]}}


async def test_state_of_a_step_that_is_gone_is_refused() -> None:
    flow = numbers().key_by(str).count(name="counts").sink(TableSink())
    body = KeyedStage(FlowPlan(flow), senders=1)

    with pytest.raises(StateMismatch, match="sums"):
        await body.load([document(body, {"sums/value": []})])


async def test_a_large_state_is_read_in_pieces_and_others_get_their_turn_between_them() -> None:
    """In one call it would keep the thread that renews the leases from running."""
    flow = numbers().key_by(str).count(name="counts").sink(TableSink())
    body, successor = KeyedStage(FlowPlan(flow), senders=1), KeyedStage(FlowPlan(flow), senders=1)
    counts = {str(number): number for number in range(2 * PIECE_KEYS + 1)}
    whole = document(body, {"counts/value": counts.items()})
    known: list[int] = []

    loading = asyncio.create_task(successor.load([whole]))
    while not loading.done():
        await asyncio.sleep(0)
        known.append(len(steps_of(successor).get("counts/value", ())))
    await loading

    assert [len(piece) for piece in pieces(whole.steps["counts/value"])] == [PIECE_KEYS, PIECE_KEYS, 1]
    assert {PIECE_KEYS, 2 * PIECE_KEYS} <= set(known)
    assert steps_of(successor) == {"counts/value": counts}
