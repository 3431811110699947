"""Orders a second to a local broker with 5 ms latency: the service, the one-by-one loop, and two libraries.

All run in the same minutes on the same server, each in a process of its own, with as many requests under
way. Then the service again, over a history that grows: the cost of an order must not grow with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path

from fencepost.bench.jobs_peers import CannotTakePart, Environment, Peer
from fencepost.bench.report import Cell, Goal, Report, machine
from fencepost.bench.stage import migrated_database, server_facts
from fencepost.embedded import Database

SECONDS_MAX = 900
PEERS = (
    Peer("txoutbox", "PostgreSQL", ("txoutbox[postgres]==0.2.2", "aiohttp==3.14.5")),
    Peer("faststream", "PostgreSQL", ("faststream-outbox[asyncpg]==0.19.0", "aiohttp==3.14.5")),
)
Measured = dict[str, float]


def run(*, quick: bool) -> Report:
    count = 2000 if quick else 10_000
    histories = (1_000, 50_000) if quick else (10_000, 1_000_000)
    with migrated_database() as database, _broker() as broker_url:
        contest = {
            "one-by-one loop": _own(database.admin_url, broker_url, "loop", count // 10, "loop"),
            "fencepost": _own(database.url, broker_url, "service", count, "first"),
            **{peer.title: _stranger(peer, database, broker_url, count) for peer in PEERS},
        }
        grown = {size: _over_history(database, broker_url, size, count) for size in histories}
        facts = server_facts(database)
    return Report("orders", quick, _rows(contest, grown), _goals(contest, grown), machine(**facts))


@contextmanager
def _broker() -> Generator[str]:
    """The broker's address; it goes with the block."""
    command = [sys.executable, "-m", "fencepost.bench.orders_broker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(10)


def _own(url: str, broker_url: str, role: str, count: int, prefix: str) -> Measured:
    command = [
        sys.executable,
        "-m",
        "fencepost.bench.orders_senders",
        role,
        url,
        broker_url,
        str(count),
        prefix,
    ]
    return {**_answer(command), "count": count}


def _stranger(peer: Peer, database: Database, broker_url: str, count: int) -> Measured:
    """A library in its own environment; none where it cannot be installed, and the table says so."""
    environment = Environment(peer)
    script = Path(__file__).with_name("peers") / f"orders_{peer.name}.py"
    try:
        environment.make()
        command = [environment.python, script, database.admin_url, broker_url, str(count), peer.name]
        return {**_answer([str(part) for part in command]), "count": count}
    except CannotTakePart:
        return {}


def _answer(command: Sequence[str]) -> Measured:
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS_MAX)
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or [f"ended with {ended.returncode}"]
        raise CannotTakePart(f"{command[1]}: {lines[-1][:300]}")
    measured: Measured = json.loads(ended.stdout.strip().splitlines()[-1])
    return measured


def _over_history(database: Database, broker_url: str, size: int, count: int) -> Measured:
    """So many settled orders in every table, then the contest's load again."""
    script = files("fencepost.bench").joinpath("stock/orders.sql").read_text()
    with database.connect_admin() as admin:
        admin.execute("select set_config('bench.size', %s, false)", (str(size),))
        admin.execute(script.encode())
        admin.commit()
        admin.autocommit = True
        admin.execute("vacuum analyze")
    return _own(database.url, broker_url, "service", count, f"history-{size}")


def _rows(contest: dict[str, Measured], grown: dict[int, Measured]) -> list[dict[str, Cell]]:
    rows: list[dict[str, Cell]] = [
        {"contestant": name, "history": "-", "orders/s": _rate(one), "p99 ms": _figure(one)}
        for name, one in contest.items()
    ]
    return rows + [
        {"contestant": "fencepost", "history": size, "orders/s": _rate(one), "p99 ms": _figure(one)}
        for size, one in grown.items()
    ]


def _rate(one: Measured) -> Cell:
    return round(one["count"] / one["seconds"]) if one else "cannot take part"


def _figure(one: Measured) -> Cell:
    return round(one["p99_ms"], 1) if one.get("p99_ms") else "-"


def _per_second(one: Measured) -> float:
    return one["count"] / one["seconds"] if one else 0.0


def _goals(contest: dict[str, Measured], grown: dict[int, Measured]) -> list[Goal]:
    ours = _per_second(contest["fencepost"])
    goals = [Goal("times the one-by-one loop", ours / _per_second(contest["one-by-one loop"]), 10)]
    goals += [
        Goal(f"times {peer.title}", ours / _per_second(contest[peer.title]), 1)
        for peer in PEERS
        if contest[peer.title]
    ]
    small, large = grown.values()
    costs = large["seconds"] / small["seconds"]
    return [*goals, Goal("cost of an order, long history to short", costs, 1.15, at_most=True)]
