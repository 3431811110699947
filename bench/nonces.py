"""bench-nonces: reserving for 1, 10 and 1,000 signers, in both modes, compared with pgbench and naive
inserts.

All sides run on one durable server, one after another, with the same number of connections; a figure is the
median over the rounds. `lost` is the share of the naive inserts that met a nonce that was taken.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.resources import as_file, files
from statistics import median

from bench.bench_server import migrated_database, server_facts
from bench.nonces_env import MeasuredRate, NoncesEnv, node_on, rate_of
from bench.report import Goal, Report, Row, machine
from fencepost_nonces.signer import Signer

CONNECTIONS = 8
SIGNERS = (1, 10, 1000)
SHARE_MIN = 0.6
QUEUE_GAIN_MIN = 10
QUEUE_RATE_MIN = 30_000
KEPT_MIN = 0.8
CHAIN_ID = 2


@dataclass(frozen=True, slots=True)
class NoncesLength:
    """How long to measure."""

    rounds: int
    calls: int
    hot_callers: int
    hot_calls: int
    block: int
    history: int


QUICK = NoncesLength(rounds=1, calls=60, hot_callers=256, hot_calls=8, block=100, history=100_000)
WHOLE = NoncesLength(rounds=3, calls=400, hot_callers=512, hot_calls=30, block=100, history=10_000_000)


@dataclass(frozen=True, slots=True)
class Compared:
    """One number of signers, on all sides."""

    signers: int
    bare: MeasuredRate
    basic: MeasuredRate
    queue: MeasuredRate
    naive: MeasuredRate
    lost: float

    def rows(self) -> list[Row]:
        return [
            _row(self.signers, "pgbench, the bare statement", self.bare),
            _row(self.signers, "fencepost, basic mode", self.basic),
            _row(self.signers, "fencepost, queue mode", self.queue),
            {
                **_row(self.signers, "pgbench, naive select and insert", self.naive),
                "lost": round(self.lost, 3),
            },
        ]


@dataclass(frozen=True, slots=True)
class Hot:
    """One signer that all callers use."""

    basic: MeasuredRate
    queue: MeasuredRate
    blocks: MeasuredRate
    bare_batches: MeasuredRate
    basic_before: MeasuredRate
    basic_after: MeasuredRate
    history: int

    def rows(self) -> list[Row]:
        return [
            _row(1, "fencepost, basic mode, many callers", self.basic),
            _row(1, "fencepost, queue mode, many callers", self.queue),
            _row(1, "fencepost, queue mode, blocks of 100", self.blocks),
            _row(1, "pgbench, batches of 500 on one connection", self.bare_batches),
            _row(1, "fencepost, basic mode before a history", self.basic_before),
            _row(1, f"fencepost, basic mode after {self.history:,} nonces", self.basic_after),
        ]


def run(*, quick: bool) -> Report:
    length = QUICK if quick else WHOLE
    with migrated_database() as database, as_file(files("bench").joinpath("scripts")) as scripts:
        facts = machine(**server_facts(database))
        env = NoncesEnv(database, scripts)
        env.prepare(max(SIGNERS))
        compared = [_compare(env, signers, length) for signers in SIGNERS]
        hot = _heat(env, length)
    rows = [row for one in compared for row in one.rows()] + hot.rows()
    return Report("nonces", quick, rows, goals(compared, hot), facts)


def _compare(env: NoncesEnv, signers: int, length: NoncesLength) -> Compared:
    names = [Signer(CHAIN_ID, f"bench-{number}") for number in range(signers)]
    bare, basic, queue, naive = (
        list[MeasuredRate](),
        list[MeasuredRate](),
        list[MeasuredRate](),
        list[tuple[MeasuredRate, float]](),
    )
    for _ in range(length.rounds):
        bare.append(env.bare(signers, CONNECTIONS, length.calls))
        basic.append(_by_node(env, "basic", names, callers=CONNECTIONS, calls=length.calls))
        queue.append(_by_node(env, "queue", names, callers=CONNECTIONS, calls=length.calls))
        naive.append(env.naive(signers, CONNECTIONS, length.calls))
    return Compared(
        signers,
        _middle(bare),
        _middle(basic),
        _middle(queue),
        _middle([rate for rate, _ in naive]),
        median(share for _, share in naive),
    )


def _heat(env: NoncesEnv, length: NoncesLength) -> Hot:
    one = [Signer(CHAIN_ID, "bench-0")]
    many = {"callers": length.hot_callers, "calls": length.hot_calls}
    basic = _by_node(env, "basic", one, callers=length.hot_callers, calls=max(2, length.hot_calls // 4))
    queue = _middle([_by_node(env, "queue", one, **many) for _ in range(length.rounds)])
    blocks = _middle(
        [
            _by_node(env, "queue", one, callers=32, calls=length.hot_calls, block=length.block)
            for _ in range(length.rounds)
        ]
    )
    batches = env.bare_batches(500, length.calls // 4)
    before = _steady(env, one, length)
    env.add_history(CHAIN_ID, length.history)
    return Hot(basic, queue, blocks, batches, before, _steady(env, one, length), length.history)


def _steady(env: NoncesEnv, one: list[Signer], length: NoncesLength) -> MeasuredRate:
    """The median after a warm-up round: the first write to a page after a bulk load logs the full page."""
    rates = [
        _by_node(env, "basic", one, callers=CONNECTIONS, calls=length.calls) for _ in range(1 + length.rounds)
    ]
    return _middle(rates[1:])


def _by_node(
    env: NoncesEnv, mode: str, signers: list[Signer], *, callers: int, calls: int, block: int = 1
) -> MeasuredRate:
    async def measure() -> MeasuredRate:
        async with node_on(env.database.url, mode, CONNECTIONS) as node:
            return await rate_of(node, signers, callers=callers, calls=calls, block=block)

    return asyncio.run(measure())


def goals(compared: list[Compared], hot: Hot) -> list[Goal]:
    shares = [
        Goal(
            f"basic mode against the bare statement, signers: {one.signers}",
            round(one.basic.nonces / one.bare.nonces, 2),
            SHARE_MIN,
        )
        for one in compared
    ]
    gain = round(hot.queue.nonces / hot.basic.nonces, 1)
    kept = round(hot.basic_after.nonces / hot.basic_before.nonces, 2)
    return [
        *shares,
        Goal("queue mode against basic mode on one hot signer, times", gain, QUEUE_GAIN_MIN),
        Goal("queue mode in blocks, nonces a second", round(hot.blocks.nonces), QUEUE_RATE_MIN),
        Goal("share kept with the history", kept, KEPT_MIN),
    ]


def _middle(rates: list[MeasuredRate]) -> MeasuredRate:
    return MeasuredRate(median(rate.nonces for rate in rates), median(rate.p99_ms for rate in rates))


def _row(signers: int, way: str, rate: MeasuredRate) -> Row:
    row: dict[str, str | int | float] = {"signers": signers, "way": way, "nonces/s": round(rate.nonces)}
    return {**row, "p99_ms": round(rate.p99_ms, 1)} if rate.p99_ms else row
