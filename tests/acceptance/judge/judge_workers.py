"""A judge in a process of its own, or in this one, on the test's database."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fencepost.client import Fencepost
from fencepost.jobs.settings import JobSettings
from fencepost.logs import configure_logging
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings

BRISK = JobSettings(
    lease_seconds=30,
    heartbeat_seconds=1,
    poll_seconds=0.1,
    sweep_interval_seconds=0.2,
    reclaim_interval_seconds=0.2,
    reclaim_grace_seconds=0.2,
    drain_seconds=10,
)


def judging_of(fp: Fencepost, folder: Path, who: str, **changes: Any) -> Judging:
    settings = JudgeSettings(
        workspace=folder / who,
        store=folder / "store",
        slots=2,
        languages="c, python",
        custom_run_time_ms=1000,
        **changes,
    )
    return Judging(fp, settings)


@asynccontextmanager
async def open_judging(
    url: str, redis_url: str | None, folder: Path, who: str, *, work: bool = True, **changes: Any
) -> AsyncGenerator[Judging]:
    async with Fencepost(url, redis_url=redis_url, job_settings=BRISK) as fp:
        judging = judging_of(fp, folder, who, **changes)
        if not work:
            yield judging
            return
        await judging.import_samples()
        async with judging.running():
            yield judging


async def judge(url: str, redis_url: str | None, folder: str) -> None:
    """A judge until it is told to stop."""
    configure_logging(level="warning", form="json")
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        sys.stdin.readline()
        loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=listen, daemon=True).start()
    async with open_judging(url, redis_url, Path(folder), "victim"):
        await stopped.wait()
