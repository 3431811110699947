"""A user's program without configured logging: it is refused, its Redis is away, its job fails."""

import asyncio
import os
import sys

from fencepost import Fencepost, Job, JobFailed, Mismatch

NOBODY_LISTENS = "redis://127.0.0.1:1/0"


async def main() -> None:
    fp = Fencepost(os.environ["DATABASE_URL"], redis_url=NOBODY_LISTENS)

    @fp.job("mail", tries=1)
    async def send(job: Job) -> None:
        raise ValueError("no such address")

    async with fp:
        await be_refused(fp)
        submitted = await fp.jobs.submit(send.submission())
        worker = fp.jobs.worker()
        working = asyncio.create_task(worker.run())
        try:
            await fp.jobs.result(submitted, within=60)
        except JobFailed:
            sys.stderr.write("the job has failed\n")
        worker.stop()
        await working


async def be_refused(fp: Fencepost) -> None:
    for digest in ("one", "another"):
        try:
            async with fp.transaction() as tx:
                await tx.claim("player:7", "request-1", digest=digest)
        except Mismatch:
            sys.stderr.write("the request was refused\n")


asyncio.run(main())
