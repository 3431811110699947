"""The jobs of the soak with planted leaks: each keeps what it should give back."""

from __future__ import annotations

import tempfile
from typing import IO, Any

from bench.soak_app import KEPT, WRITE
from fencepost import Fencepost, Job

BYTES = 50_000
JOBS_A_FILE = 50
fp = Fencepost.from_env()
kept: list[bytearray] = []
opened: list[IO[Any]] = []


@fp.job("soak", tries=100)
async def write(job: Job, number: int) -> None:
    """Memory for each job, and a file for some."""
    kept.append(bytearray(b"x" * BYTES))
    if number % JOBS_A_FILE == 0:
        opened.append(tempfile.TemporaryFile())  # noqa: SIM115 - It stays open: that is the leak.
    async with job.finish() as tx:
        await tx.execute(WRITE, (number % KEPT,))
