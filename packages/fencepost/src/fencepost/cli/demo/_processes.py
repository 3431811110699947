"""Worker processes of the demo: real ones, which die with it, however it ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from fencepost.cli._supervisor import worker_command
from fencepost.cli.demo import DemoContext
from fencepost.embedded._identity import ourselves
from fencepost.embedded._process import KeptProcess, StartPlan
from fencepost.errors import ServerUnavailable

APPLICATION = "fencepost.cli.demo.application"
DRAIN_SECONDS = 2.0
# Quick loops: a person is watching.
_SETTINGS = {
    "JOBS_HEARTBEAT_SEC": "0.5",
    "JOBS_RECLAIM_INTERVAL_SEC": "0.5",
    "JOBS_RECLAIM_GRACE_SEC": "0",
    "JOBS_POLL_SEC": "0.5",
    "JOBS_DRAIN_SEC": "1",
    "LOG_FORMAT": "json",
}


@asynccontextmanager
async def worker_processes(
    context: DemoContext, queue: str, names: Sequence[str]
) -> AsyncGenerator[Sequence[KeptProcess]]:
    """A `fencepost worker` for one of the demo's queues under each name. Its log is in the demo's folder."""
    processes = await asyncio.gather(*(asyncio.to_thread(_start, context, queue, name) for name in names))
    try:
        yield processes
    finally:
        for process in processes:
            # Stopped or not: a process that was stopped hears nothing before it continues.
            process.resume()
            process.signal(signal.SIGTERM)
        await asyncio.gather(*(asyncio.to_thread(_end, process) for process in processes))


def _start(context: DemoContext, queue: str, name: str) -> KeptProcess:
    plan = StartPlan(
        worker_command([APPLICATION, "--queues", queue, "--concurrency", "20"]),
        ourselves(),
        context.folder / f"{name}.log",
        farewell=(signal.SIGKILL,),
        environment={
            **_SETTINGS,
            "DATABASE_URL": context.addresses.service_url,
            "REDIS_URL": context.addresses.redis_url or "",
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        },
    )
    return KeptProcess(plan)


def require_alive(context: DemoContext, processes: Sequence[KeptProcess]) -> None:
    """Raises when a worker process has ended, with the end of the logs."""
    if all(process.is_alive() for process in processes):
        return
    ends = [log.read_text().splitlines()[-3:] for log in sorted(context.folder.glob("*.log"))]
    said = " ".join(line for end in ends for line in end)
    raise ServerUnavailable(f"A worker process of the demo has ended. The logs end with: {said}")


def _end(process: KeptProcess) -> None:
    if process.wait(DRAIN_SECONDS) is None:
        process.kill()
