"""bench-flows: records from Redis Streams to PostgreSQL, exactly once, beside the limit and peers.

Parse JSON, then a keyed sum or a windowed count. The limit reads and copies the same records and does nothing
else. Peers run the keyed sum over the same records from a source of their own, each with the guarantee that
it gives; docs/explanation/flows-performance.md has the settings of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console

from bench import flows_endurance, flows_env, flows_latency, flows_state, flows_state_disk
from bench.bench_server import server_facts
from bench.flows_peers import measured_peers
from bench.report import Goal, Report, Row, machine
from fencepost.embedded import Database

QUICK_RECORDS = 200_000
RECORDS = 2_000_000
QUICK_ENDURANCE, ENDURANCE = 500_000, 10_000_000
QUICK_KEYS, KEYS = 100_000, 1_000_000
MEMORY_GROWTH_MAX = 1.1
RECOVERY_SECONDS_MAX = 10.0
PER_CPU_SECOND_MIN = 100_000
GROUPS_MIN = 0.8
TIMES: dict[str, float] = {"quixstreams": 2.5, "faust": 10, "pathway": 1, "bytewax": 1.5}
_console = Console(stderr=True)


def run(*, quick: bool) -> Report:
    """Measure Fencepost and the limit, then the peers that can be installed."""
    count = QUICK_RECORDS if quick else RECORDS
    with flows_env.env() as (database, redis_url):
        rows = asyncio.run(_ours(database, redis_url, count))
        _console.print("record to row", highlight=False)
        landed, soon = asyncio.run(flows_latency.measure(database, redis_url, quick=quick))
        endurance = asyncio.run(_endurance(database, redis_url, quick=quick))
        facts = machine(records=count, **server_facts(database))
    rows += measured_peers(count, quick=quick)
    _console.print("state that expires", highlight=False)
    states, flat = flows_state.measure(quick=quick)
    on_disk, recovered = flows_state_disk.measure(quick=quick)
    found = [*goals(rows), *soon, *flat, *recovered, *endurance.goals]
    return Report("flows", quick, [*rows, *landed, *states, *on_disk, *endurance.rows], found, facts)


@dataclass(frozen=True, slots=True)
class Endurance:
    rows: Sequence[Row]
    goals: Sequence[Goal]


async def _endurance(database: Database, redis_url: str, *, quick: bool) -> Endurance:
    records, keys = (QUICK_ENDURANCE, QUICK_KEYS) if quick else (ENDURANCE, KEYS)
    _console.print(f"memory over {records:,} records", highlight=False)
    memory = await flows_endurance.memory(database, redis_url, records)
    _console.print(f"recovery with {keys:,} keys", highlight=False)
    recovery = await flows_endurance.recovery(database, redis_url, keys)
    behind = f"{keys:,} keys, the default lease of {flows_env.SETTINGS.lease_seconds:g} s"
    rows: list[Row] = [
        _row(f"fencepost, keyed sum of {records:,} made records", "exactly-once", memory.figures),
        {
            "system": f"fencepost, recovery with {behind}",
            "guarantee": "exactly-once",
            "s since SIGKILL": round(recovery.since_kill_seconds, 2),
            "s since takeover": round(recovery.since_takeover_seconds, 2),
            "CPU s": round(recovery.cpu_seconds, 2),
        },
    ]
    return Endurance(
        rows,
        [
            Goal(
                f"memory over {records:,} records, times that after a tenth",
                memory.growth,
                MEMORY_GROWTH_MAX,
                at_most=True,
            ),
            Goal(
                f"recovery with {behind}, seconds since SIGKILL",
                recovery.since_kill_seconds,
                RECOVERY_SECONDS_MAX,
                at_most=True,
            ),
        ],
    )


async def _ours(database: Database, redis_url: str, count: int) -> list[Row]:
    await flows_env.load(redis_url, count)
    flows = {
        "fencepost, keyed sum": flows_env.keyed_sum("sum"),
        "fencepost, keyed sum, 4 key groups": flows_env.keyed_sum("groups", groups=4),
        "fencepost, windowed count": flows_env.windowed_count("windows"),
    }
    rows: list[Row] = []
    for title, flow in flows.items():
        _console.print(title, highlight=False)
        rows.append(
            _row(title, "exactly-once", await flows_env.run_flow_on(database, redis_url, flow, count))
        )
    rows.append(
        _row(
            "the limit: XREADGROUP NOACK and COPY",
            "none",
            await flows_env.run_limit(database, redis_url, count),
        )
    )
    return rows


def _row(title: str, guarantee: str, figures: flows_env.Figures) -> Row:
    return {
        "system": title,
        "guarantee": guarantee,
        "records": figures.records,
        "records/CPU s": round(figures.per_cpu_second),
        "records/s": round(figures.per_second),
        "MB": round(figures.memory_mb),
    }


def goals(rows: Sequence[Row]) -> list[Goal]:
    """The goals with the measured figures. A peer that was not measured is a goal that is not met."""
    rates = {str(row["system"]): float(row["records/CPU s"]) for row in rows if "records/CPU s" in row}
    ours = rates["fencepost, keyed sum"]
    groups = rates["fencepost, keyed sum, 4 key groups"]
    found = [
        Goal("keyed sum, records a CPU second", ours, PER_CPU_SECOND_MIN),
        Goal("4 key groups, times none", round(groups / ours, 2), GROUPS_MIN),
    ]
    for peer, times in TIMES.items():
        theirs = [rate for name, rate in rates.items() if name.startswith(peer)]
        if theirs:
            found.append(Goal(f"times {peer}", round(ours / theirs[0], 2), times))
        else:
            found.append(Goal(f"times {peer}, which was not measured", 0, times))
    return found
