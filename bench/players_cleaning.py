"""Steady state of idempotency keys: constant inserts, retention beside them, and the table's size."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from bench.report import Row
from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel import idempotency
from fencepost.retention import Retention, RetentionMetrics
from fencepost.settings import Settings

WRITERS = 8
SAMPLE_SECONDS = 1.0
BATCH = 10_000


@dataclass
class Steadiness:
    """What was measured while keys were inserted and removed."""

    inserts_s: float = 0.0
    cleaned_s: float = 0.0
    sizes: list[tuple[float, int]] = field(default_factory=list[tuple[float, int]])

    @property
    def times(self) -> float:
        """The rate of removals while the retention runs, relative to the rate of inserts."""
        return self.cleaned_s / self.inserts_s

    @property
    def growth(self) -> float:
        """The largest size of the last quarter, relative to the largest of the second quarter."""
        quarter = max(1, len(self.sizes) // 4)
        before = max(size for _, size in self.sizes[quarter : 2 * quarter] or self.sizes[:1])
        return max(size for _, size in self.sizes[-quarter:]) / before

    def row(self) -> Row:
        return {
            "what": "keys inserted beside cleaning",
            "calls_s": round(self.inserts_s),
            "cleaned_s": round(self.cleaned_s),
            "table_mb": round(self.sizes[-1][1] / 2**20, 1),
        }


async def steady_state(database: Database, *, seconds: float, keep_seconds: float) -> Steadiness:
    """Insert one by one on several connections for `seconds`, and clean as a node does."""
    seen = Steadiness()
    ends_at = time.monotonic() + seconds
    settings = Settings(pool_min=WRITERS + 2, pool_max=WRITERS + 2)
    with database.connect_admin() as admin:
        admin.execute("delete from fencepost.idempotency_key")
    async with Fencepost(database.url, settings=settings) as fp:
        cleaning = asyncio.create_task(_clean(fp, keep_seconds, ends_at, seen))
        sampling = asyncio.create_task(asyncio.to_thread(_sample, database, ends_at, seen))
        counts = await asyncio.gather(*(_insert(fp, writer, ends_at) for writer in range(WRITERS)))
        await asyncio.gather(cleaning, sampling)
    seen.inserts_s = sum(counts) / seconds
    return seen


async def _insert(fp: Fencepost, writer: int, ends_at: float) -> int:
    number = 0
    while time.monotonic() < ends_at:
        await fp.run(
            idempotency.claim(f"player:{writer}", f"r{number}", digest="sha256:0", response={"version": 7})
        )
        number += 1
    return number


async def _clean(fp: Fencepost, keep_seconds: float, ends_at: float, seen: Steadiness) -> None:
    metrics = RetentionMetrics.on(fp.metrics)
    retention = Retention(fp, Settings(key_keep_seconds=keep_seconds, key_clean_batch=BATCH), metrics)
    busy_seconds = 0.0
    while time.monotonic() < ends_at:
        begun = time.perf_counter()
        before = _cleaned(metrics)
        wait_seconds = await retention.delete_expired_keys()
        if _cleaned(metrics) > before:
            busy_seconds += time.perf_counter() - begun
        await asyncio.sleep(max(0.0, min(wait_seconds, keep_seconds / 4, ends_at - time.monotonic())))
    seen.cleaned_s = _cleaned(metrics) / busy_seconds if busy_seconds else 0.0


def _cleaned(metrics: RetentionMetrics) -> float:
    (family,) = metrics.keys_deleted.collect()
    return float(next(sample.value for sample in family.samples if sample.name.endswith("_total")))


def _sample(database: Database, ends_at: float, seen: Steadiness) -> None:
    with database.connect_admin() as admin:
        admin.autocommit = True
        while (left := ends_at - time.monotonic()) > 0:
            row = admin.execute("select pg_total_relation_size('fencepost.idempotency_key')").fetchone()
            assert row is not None
            seen.sizes.append((time.monotonic(), int(row[0])))
            time.sleep(min(SAMPLE_SECONDS, left))
