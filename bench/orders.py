"""Orders a second to a local broker with 5 ms latency: the service, the one-by-one loop, and two libraries.

All run in the same minutes on the same server, each in a process of its own, with as many requests in flight.
Then the service again, over a history that grows: the cost of an order must not grow with it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from statistics import median

from bench.bench_server import another_database, migrated_database, server_facts
from bench.jobs_peers import CannotTakePart, Environment, Peer
from bench.report import Cell, Goal, Report, machine
from fencepost.embedded import Database

SECONDS_MAX = 900
PEERS = (
    Peer("txoutbox", "PostgreSQL", ("txoutbox[postgres]==0.2.2", "aiohttp==3.14.5")),
    Peer("faststream", "PostgreSQL", ("faststream-outbox[asyncpg]==0.19.0", "aiohttp==3.14.5")),
)
Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class OrdersLength:
    rounds: int
    orders: int
    paced: int
    histories: tuple[int, int]


QUICK = OrdersLength(rounds=2, orders=2000, paced=100, histories=(1_000, 50_000))
WHOLE = OrdersLength(rounds=3, orders=10_000, paced=500, histories=(10_000, 1_000_000))


def run(*, quick: bool) -> Report:
    length = QUICK if quick else WHOLE
    with migrated_database() as database, local_broker() as broker_url:
        facts = machine(**server_facts(database))
        env = OrdersEnv(database, broker_url, length)
        # They take turns, so that noise from outside affects all of them; a figure is the median.
        rounds = [env.contest(number) for number in range(length.rounds)]
        contest = {name: _middle([one[name] for one in rounds]) for name in rounds[0]}
        grown = _over_histories(env)
    return Report("orders", quick, _rows(contest, grown), goals(contest, grown), facts)


@dataclass(frozen=True, slots=True)
class OrdersEnv:
    """All entrants on one database, with one broker."""

    database: Database
    broker_url: str
    length: OrdersLength

    def contest(self, number: int) -> dict[str, Measured]:
        """Each entrant once."""
        orders = self.length.orders
        return {
            "one-by-one loop": self._own(self.database.admin_url, "loop", orders // 10, f"loop-{number}"),
            "fencepost": self._own(self.database.url, "service", orders, f"round-{number}"),
            **{
                peer.title: _stranger(peer, self.database, self.broker_url, orders, f"{peer.name}-{number}")
                for peer in PEERS
            },
        }

    def remember(self, size: int) -> None:
        """Insert so many settled orders into every table."""
        script = files("bench").joinpath("fixture_data/orders.sql").read_text()
        with self.database.connect_admin() as admin:
            admin.execute("select set_config('bench.size', %s, false)", (str(size),))
            admin.execute(script.encode())
            admin.commit()
            admin.autocommit = True
            admin.execute("vacuum analyze")

    def send(self, prefix: str) -> Measured:
        """The same load once more, through the service."""
        return self._own(self.database.url, "service", self.length.orders, prefix)

    def _own(self, url: str, role: str, count: int, prefix: str) -> Measured:
        command = [sys.executable, "-m", "bench.orders_senders", role, url, self.broker_url]
        return {**_answer([*command, str(count), prefix, str(self.length.paced)]), "count": count}


def _over_histories(env: OrdersEnv) -> dict[int, Measured]:
    """A short and a long history, each in a database of its own, so that they can take turns too."""
    longer = replace(env, database=another_database(env.database, "bench_long"))
    envs = dict(zip(env.length.histories, (env, longer), strict=True))
    for size, one in envs.items():
        one.remember(size)
    rounds = [
        {size: one.send(f"history-{number}") for size, one in envs.items()}
        for number in range(env.length.rounds)
    ]
    return {size: _middle([measured[size] for measured in rounds]) for size in envs}


def _middle(measured: Sequence[Measured]) -> Measured:
    """The median of each figure; empty for an entrant that could not take part."""
    return {name: median(one[name] for one in measured) for name in measured[0]} if all(measured) else {}


@contextmanager
def local_broker() -> Generator[str]:
    """The broker's address; the broker ends with the block."""
    command = [sys.executable, "-m", "bench.orders_broker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            with suppress(BrokenPipeError):
                process.stdin.close()
            process.wait(10)


def _stranger(peer: Peer, database: Database, broker_url: str, count: int, prefix: str) -> Measured:
    """A library in its own environment; empty where it cannot be installed, and the table says so."""
    environment = Environment(peer)
    script = Path(__file__).with_name("peers") / f"orders_{peer.name}.py"
    try:
        environment.make()
        command = [environment.python, script, database.admin_url, broker_url, str(count), prefix]
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


def goals(contest: dict[str, Measured], grown: dict[int, Measured]) -> list[Goal]:
    """The goals with the measured figures. A peer that was not measured is a goal that is not met."""
    ours = _per_second(contest["fencepost"])
    found = [Goal("times the one-by-one loop", ours / _per_second(contest["one-by-one loop"]), 10)]
    for peer in PEERS:
        theirs = _per_second(contest[peer.title])
        if theirs:
            found.append(Goal(f"times {peer.title}", ours / theirs, 1))
        else:
            found.append(Goal(f"times {peer.title}, which was not measured", 0, 1))
    small, large = grown.values()
    costs = large["seconds"] / small["seconds"]
    return [*found, Goal("cost of an order, long history to short", costs, 1.15, at_most=True)]
