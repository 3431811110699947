"""The jobs of the soak: each writes a row with its finish. Only the newest rows are kept."""

from __future__ import annotations

from fencepost import Fencepost, Job

KEPT = 10_000
WRITE = """
    insert into soak_effect values (%s, 1) on conflict (slot) do update set times = soak_effect.times + 1
"""
fp = Fencepost.from_env()


@fp.job("soak", tries=100)
async def write(job: Job, number: int) -> None:
    """One row for each job, in place of the one of KEPT jobs before."""
    async with job.finish() as tx:
        await tx.execute(WRITE, (number % KEPT,))
