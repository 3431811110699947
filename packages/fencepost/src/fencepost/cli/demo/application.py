"""The application of the demo: `fencepost worker fencepost.cli.demo.application` runs its jobs."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from fencepost import Chunk, Fencepost, Job, PermanentError
from fencepost.jobs.retry_policy import exponential

fp = Fencepost.from_env()
QUEUE = "demo"
ZOMBIE_QUEUE = "demo-zombie"
ZOMBIE_LEASE_SECONDS = 3.0
ZOMBIE_WORK_SECONDS = 2.0
SOON = exponential(first_seconds=0.5, most_seconds=2)
TAGS = ["demo"]


@dataclass(frozen=True)
class Letter:
    to: str


@fp.job(QUEUE, kind="demo.thumbnail", tags=TAGS)
async def thumbnail(job: Job, image: int, seconds: float) -> dict[str, int]:
    """Succeeds."""
    await asyncio.sleep(seconds)
    return {"bytes": image * 37 % 9000 + 1000}


@fp.job(QUEUE, kind="demo.payment", tries=5, retry=SOON, tags=TAGS, search_by=["customer"])
async def payment(job: Job, customer: str, fails: int) -> str:
    """Fails `fails` times, and succeeds then."""
    await asyncio.sleep(0.05)
    if job.tries <= fails:
        raise ConnectionError(f"the bank of {customer} does not answer")
    return "paid"


@fp.job(QUEUE, kind="demo.import", tries=2, retry=SOON, tags=TAGS)
async def import_file(job: Job, file: str, broken: bool) -> None:
    """Dies: at once if the file is broken, after its tries otherwise."""
    await asyncio.sleep(0.05)
    if broken:
        raise PermanentError(f"{file} is no table")
    raise ValueError(f"{file}: line 7 has 3 columns, not 4")


@fp.job(QUEUE, kind="demo.report", priority="low", tags=TAGS)
async def report(job: Job, pages: int) -> dict[str, int]:
    """Tells how far it is."""
    for page in range(pages):
        await job.progress({"page": page + 1, "of": pages})
        await asyncio.sleep(0.3)
    return {"pages": pages}


@fp.job(QUEUE, kind="demo.letter", chunk=10, chunk_wait=0.5, tags=TAGS)
async def letter(chunk: Chunk[Letter]) -> None:
    """Many at once; one address in ten does not exist."""
    async with chunk.finish():
        for member in chunk:
            if random.random() < 0.1:  # noqa: S311 - No security depends on it.
                member.bury(f"{member.arguments.to} has no letter box")


@fp.every(5, name="demo-heartbeat")
@fp.job(QUEUE, kind="demo.heartbeat", tags=TAGS)
async def heartbeat(job: Job) -> str:
    return "alive"


@fp.job(ZOMBIE_QUEUE, kind="demo.withdrawal", lease=ZOMBIE_LEASE_SECONDS, tries=5, tags=TAGS)
def withdrawal(job: Job, account: str) -> None:
    """Computes for a while before it writes: long enough to be stopped in between.

    In a thread, which nothing interrupts: it tries to write whatever its worker has learned meanwhile.
    """
    job.progress_sync({"step": "computing", "account": account})
    time.sleep(ZOMBIE_WORK_SECONDS)
    with job.finish_sync({"account": account, "by": job.owner}):
        pass
