"""A worker with chunk handlers that dies, or stands still, where the test says."""

import asyncio
import sys
import threading
from dataclasses import dataclass

from fencepost import Chunk, Fencepost, Handler
from tests.integration.job_features.conftest import quick

LEASE_SECONDS = 1.0


@dataclass(frozen=True)
class Note:
    text: str


def declare(fp: Fencepost) -> dict[str, Handler[[Note]]]:
    @fp.job("notes", kind="async", chunk=3, chunk_wait=0.05, lease=LEASE_SECONDS, tries=100)
    async def write(chunk: Chunk[Note]) -> None:
        async with chunk.finish() as tx:
            for member in chunk:
                await tx.execute("insert into note (text) values (%s)", (member.arguments.text,))

    @fp.job("notes", kind="sync", chunk=3, chunk_wait=0.05, lease=LEASE_SECONDS, tries=100)
    def write_sync(chunk: Chunk[Note]) -> None:
        with chunk.finish_sync() as tx:
            for member in chunk:
                tx.execute("insert into note (text) values (%s)", (member.arguments.text,))

    return {"async": write, "sync": write_sync}


def work(url: str) -> None:
    """Until it is told to stop, or dies."""

    async def main() -> None:
        async with Fencepost(url) as fp:
            declare(fp)
            worker = fp.jobs.worker(quick(lease_seconds=LEASE_SECONDS, reclaim_interval_seconds=3600))
            loop = asyncio.get_running_loop()

            def listen() -> None:
                sys.stdin.readline()
                loop.call_soon_threadsafe(worker.stop)

            threading.Thread(target=listen, daemon=True).start()
            await worker.run()

    asyncio.run(main())
