"""bench-flows: records from Redis Streams to PostgreSQL, each once, beside the limit and beside peers.

Parse JSON, then a keyed sum or a windowed count. The limit reads and copies the same records and does nothing
between. Peers run the keyed sum over the same records from a source of their own, each with the guarantee
that it gives; docs/explanation/flows-performance.md says how each is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rich.console import Console

from fencepost.bench import flows_arena as stage
from fencepost.bench.flows_peers import measured_peers
from fencepost.bench.report import Goal, Report, Row, machine
from fencepost.bench.stage import server_facts
from fencepost.embedded import Database

QUICK_RECORDS = 200_000
RECORDS = 2_000_000
PER_CPU_SECOND_MIN = 100_000
TIMES: dict[str, float] = {"quixstreams": 2.5, "faust": 10, "pathway": 1, "bytewax": 0.7}
_console = Console(stderr=True)


def run(*, quick: bool) -> Report:
    """Measure ourselves and the limit, then the peers that can be installed."""
    count = QUICK_RECORDS if quick else RECORDS
    with stage.arena() as (database, redis_url):
        rows = asyncio.run(_ours(database, redis_url, count))
        facts = machine(records=count, **server_facts(database))
    rows += measured_peers(count, quick=quick)
    return Report("flows", quick, rows, goals(rows), facts)


async def _ours(database: Database, redis_url: str, count: int) -> list[Row]:
    await stage.load(redis_url, count)
    flows = {
        "fencepost, keyed sum": stage.keyed_sum("sum"),
        "fencepost, keyed sum, 4 key groups": stage.keyed_sum("groups", groups=4),
        "fencepost, windowed count": stage.windowed_count("windows"),
    }
    rows: list[Row] = []
    for title, flow in flows.items():
        _console.print(title, highlight=False)
        rows.append(_row(title, "exactly-once", await stage.run_flow_on(database, redis_url, flow, count)))
    rows.append(
        _row(
            "the limit: XREADGROUP NOACK and COPY", "none", await stage.run_limit(database, redis_url, count)
        )
    )
    return rows


def _row(title: str, guarantee: str, figures: stage.Figures) -> Row:
    return {
        "system": title,
        "guarantee": guarantee,
        "records/CPU s": round(figures.per_cpu_second),
        "records/s": round(figures.per_second),
        "MB": round(figures.memory_mb),
    }


def goals(rows: Sequence[Row]) -> list[Goal]:
    """What was promised beside what was measured; without a peer there is nothing to compare with."""
    rates = {str(row["system"]): float(row["records/CPU s"]) for row in rows if "records/CPU s" in row}
    ours = rates["fencepost, keyed sum"]
    found = [Goal("keyed sum, records a CPU second", ours, PER_CPU_SECOND_MIN)]
    for peer, times in TIMES.items():
        theirs = [rate for name, rate in rates.items() if name.startswith(peer)]
        if theirs:
            found.append(Goal(f"times {peer}", round(ours / theirs[0], 2), times))
    return found
