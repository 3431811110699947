"""A handler in a process, with the hooks and the middleware of its client at the top of the same module."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fencepost import Fencepost, Job

fp = Fencepost("postgresql://localhost/never-opened")


@fp.job("compute", run_in="process", kind="in a process", tries=1)
def divide(job: Job, note: str, by: int) -> float:
    return 1 / by


@fp.middleware
def add_one(job: Job, call: Callable[[], Any]) -> Any:
    return call() + 1


@fp.on_error
def write_down(job: Job, error: BaseException) -> None:
    note = Path(str(dict(job.running.payload)["note"]))
    note.write_text(f"{os.getpid()} {job.id} {type(error).__name__}")


@fp.on_error
async def write_more(job: Job, error: BaseException) -> None:
    note = Path(str(dict(job.running.payload)["note"]))
    await asyncio.to_thread(lambda: note.write_text(note.read_text() + " and a coroutine"))


@fp.on_error
def broken(job: Job, error: BaseException) -> None:
    raise RuntimeError("a hook that fails")
