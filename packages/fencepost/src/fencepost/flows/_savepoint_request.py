"""A savepoint on request: every task that is held commits first, and those commits are kept."""

from __future__ import annotations

import asyncio
import time

from fencepost.errors import InFlight, NotFound
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._regroup import regrouped
from fencepost.kernel.call import CallRunner

LOOK_SECONDS = 0.2


async def save(database: CallRunner, name: str, savepoint: str, *, within_seconds: float) -> int:
    """Keep a commit of every task under a name; returns the number of tasks.

    Raises InFlight, and keeps nothing, if a task that is held makes no commit in time. With 0 seconds no
    commit is requested: the newest existing commits are kept.
    """
    if within_seconds > 0:
        await _committed(database, name, within_seconds)
    return await database.run(flow_store.save(name, savepoint))


async def regroup(database: CallRunner, name: str, savepoint: str, groups: int) -> int:
    """Begin a flow that no worker holds again from a savepoint, in another number of key groups; returns the
    number of checkpoints written.

    Raises InFlight while a task is held or has an unfinished commit, NotFound for an unknown savepoint, and
    StartRefused for one that cannot be divided.
    """
    rows = await database.run(flow_store.saved_rows(name, savepoint))
    if not rows:
        raise NotFound(f"{name} has no savepoint {savepoint}.", noun="flow", subject=name)
    return await database.run(flow_store.regroup(name, savepoint, groups, regrouped(name, rows, groups)))


async def _committed(database: CallRunner, name: str, within_seconds: float) -> None:
    """Ask the workers for a commit, and wait until each task that is held has made one."""
    asked_at = await database.run(flow_store.ask(name))
    deadline = time.monotonic() + within_seconds
    while waiting := await database.run(flow_store.unanswered(name, asked_at)):
        if time.monotonic() > deadline:
            raise InFlight(
                f"No commit came within {within_seconds:g} s from {', '.join(waiting)}; nothing was kept. "
                f"`fencepost flows show {name}` shows their workers; `fencepost flows savepoint --within 0` "
                "keeps the commits that there are.",
                noun="flow",
                subject=name,
            )
        await asyncio.sleep(LOOK_SECONDS)
