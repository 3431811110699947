"""A source through the crash matrix: wherever a task ends, each of its records takes effect once."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from fencepost.crashpoints import PlannedCrash
from fencepost.flows import Flow
from fencepost.flows._graph import Stream
from fencepost.flows.sinks.files import JsonLines
from fencepost.flows.sinks.postgres import PostgresRows
from fencepost.testing import crash_at
from tests.integration.flows.harness import FlowHarness

POINTS = (
    "flows.commit.before_begin",
    "flows.commit.after_begin",
    "flows.commit.after_pre_commit",
    "flows.commit.before_store",
    "flows.commit.after_store",
    "flows.commit.before_flag",
    "flows.commit.after_flag",
    "flows.ack.before",
    "flows.ack.after",
)
HARDEST = ("flows.commit.before_store", "flows.commit.after_store", "flows.ack.before")
EACH = 40
"""How many records come for each point."""


async def check_source(
    harness: FlowHarness,
    folder: Path,
    numbers: Callable[[Flow], Stream[int]],
    feed: Callable[[Sequence[int]], Awaitable[object]],
    points: Sequence[str] = HARDEST,
    *,
    in_order: bool = True,
) -> None:
    """`feed` makes the source have these numbers, and `numbers` begins a flow with them. Rows and a file are
    written in each commit: in the transaction, and after it."""
    stream = numbers(Flow("matrix"))
    both = stream.sink(PostgresRows("line", ["value"])).also(stream.sink(JsonLines(folder)))
    fed = 0
    for point in points:
        await feed(range(fed, fed + EACH))
        fed += EACH
        with crash_at(point, nth=2), pytest.raises(PlannedCrash):
            await harness.run(both, batch=7, records_max=7)
    await harness.run(both, batch=7, records_max=7)

    _compare([row[0] for row in harness.rows("select value from line order by ctid")], fed, in_order)
    _compare(_lines(folder), fed, in_order)


def _compare(found: Sequence[int], fed: int, in_order: bool) -> None:
    wanted, counts = range(fed), Counter(found)
    assert [n for n in wanted if not counts[n]] == [], "lost"
    assert [n for n, count in counts.items() if count > 1] == [], "doubled"
    assert (list(found) if in_order else sorted(found)) == list(wanted)


def _lines(folder: Path) -> list[int]:
    return [int(line) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().split()]
