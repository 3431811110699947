"""The two sides of bench-nonces: nodes in this process, and pgbench calling the bare statement."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from bench.pgbench import Pgbench
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.settings import Settings
from fencepost_nonces._settings import NoncesSettings
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer

NAIVE = """
create table naive_nonce (signer text not null, nonce bigint not null, at timestamptz not null default now(),
                          primary key (signer, nonce));
grant select, insert on naive_nonce to fencepost_app;
"""
# As a reservation and its use leave them, in the past.
HISTORY = """
insert into fencepost.nonce_allocation (signer_id, nonce, status, caller_signs, hold, request_id,
                                        fencing_token, tx_hash, created_at, updated_at)
select s.signer_id, i, 'CONSUMED', true, 1, 'old-' || i, 1, '0x' || i, clock_timestamp() - interval '1 day',
       clock_timestamp() - interval '1 day'
from fencepost.nonce_signer s, generate_series(%(first)s::bigint, %(last)s::bigint) i
where s.chain_id = %(chain)s and s.signer = 'bench-0'
"""
PIECE = 500_000


@dataclass(frozen=True, slots=True)
class MeasuredRate:
    """Nonces a second, and the 99th percentile of the latency."""

    nonces: float
    p99_ms: float = 0.0


@dataclass
class NoncesEnv:
    database: Database
    scripts: Path
    rounds: count[int] = field(default_factory=lambda: count(1))

    def prepare(self, signers: int) -> None:
        """Create leases that pgbench's owner holds, and the table of the naive inserts."""
        with self.database.connect_admin() as admin:
            admin.execute(NAIVE.encode())
            admin.execute(
                "select fencepost.nonce_acquire(1, 'bench-' || i, 'owner', '1 day')"
                " from generate_series(0, %s - 1) i",
                (signers,),
            )

    def bare(self, signers: int, connections: int, calls: int) -> MeasuredRate:
        return MeasuredRate(self._pgbench("nonce_reserve.sql", signers, connections, calls))

    def bare_batches(self, batch: int, calls: int) -> MeasuredRate:
        return MeasuredRate(self._pgbench("nonce_reserve_many.sql", 1, 1, calls, batch) * batch)

    def naive(self, signers: int, connections: int, calls: int) -> tuple[MeasuredRate, float]:
        """The rate, and the share that failed because another one had the same nonce."""
        before = self._naive_rows()
        rate = self._pgbench("nonce_naive.sql", signers, connections, calls)
        lost = 1 - (self._naive_rows() - before) / (connections * calls)
        return MeasuredRate(rate * (1 - lost)), lost

    def add_history(self, chain_id: int, rows: int) -> None:
        """Insert so many consumed nonces below the sequence of one signer, straight into the table."""
        with self.database.connect_admin() as admin:
            for first in range(0, rows, PIECE):
                last = min(rows, first + PIECE) - 1
                admin.execute(HISTORY, {"first": first + 10**9, "last": last + 10**9, "chain": chain_id})
            admin.execute(
                "update fencepost.nonce_signer set next_nonce = %s"
                " where chain_id = %s and signer = 'bench-0'",
                (2 * 10**9, chain_id),
            )
            admin.execute("vacuum analyze fencepost.nonce_allocation")
            admin.execute("checkpoint")

    def _pgbench(self, script: str, signers: int, connections: int, calls: int, batch: int = 1) -> float:
        variables = {"signers": signers, "round": next(self.rounds), "i": 0, "batch": batch}
        return Pgbench(self.database).rate(
            self.scripts / script, connections=connections, calls=calls, variables=variables
        )

    def _naive_rows(self) -> int:
        with self.database.connect_admin() as admin:
            return int(admin.execute("select count(*) from naive_nonce").fetchall()[0][0])


@asynccontextmanager
async def node_on(url: str, mode: str, connections: int) -> AsyncGenerator[Node]:
    settings = Settings(pool_min=connections, pool_max=connections + 2)
    async with Fencepost(url, settings=settings) as fp:
        chosen = NoncesSettings.model_validate({"mode": mode, "lease_seconds": 300.0, "idle_seconds": 300.0})
        node = Node(fp, chosen)
        await node.start()
        try:
            yield node
        finally:
            await node.stop()


async def rate_of(
    node: Node, signers: Sequence[Signer], *, callers: int, calls: int, block: int
) -> MeasuredRate:
    """Callers that ask for `block` nonces at a time, one call after another; the first do not count."""
    boot, seconds = random.randrange(10**12), list[float]()  # noqa: S311 - A name for the run's requests.

    async def caller(number: int, times: int) -> None:
        chance = random.Random(number)  # noqa: S311
        for turn in range(times):
            begun = time.perf_counter()
            ids = [f"{boot}-{number}-{times}-{turn}-{place}" for place in range(block)]
            await node.reserve(chance.choice(signers), ids)
            seconds.append(time.perf_counter() - begun)

    # The leases are acquired before, as they are for all but the first of many requests.
    for first in range(0, len(signers), callers):
        some = signers[first : first + callers]
        await asyncio.gather(*(node.reserve(signer, [f"{boot}-first"]) for signer in some))
    await _all(caller, callers, max(1, calls // 10))
    seconds.clear()
    begun = time.perf_counter()
    await _all(caller, callers, calls)
    took = time.perf_counter() - begun
    slow = sorted(seconds)[int(len(seconds) * 0.99) - 1]
    return MeasuredRate(callers * calls * block / took, slow * 1000)


async def _all(caller: Callable[[int, int], Awaitable[None]], callers: int, times: int) -> None:
    await asyncio.gather(*(caller(number, times) for number in range(callers)))
