"""A savepoint on request: every task that is held commits first, and those commits are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from fencepost.errors import InFlight, NotFound
from fencepost.flows import _flow_store as flow_store
from fencepost.flows._errors import StartRefused
from fencepost.flows._parts import INLINE_BYTES_MAX, Part, checked, cut
from fencepost.flows._regroup import (
    DividedSegments,
    SavedRow,
    SegmentHead,
    chain_of,
    divided,
    has_both,
    regrouped,
    same_head,
    with_segments,
)
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
    rows = [await _joined(database, row) for row in rows]
    divided_rows = await _divided_segments(database, name, rows, groups)
    if divided_rows is None:
        divided_rows = [await _offered(database, name, row) for row in regrouped(name, rows, groups)]
    return await database.run(flow_store.regroup(name, savepoint, groups, divided_rows))


async def _joined(database: CallRunner, row: SavedRow) -> SavedRow:
    """A checkpoint whose document is cut into parts, with the document."""
    if row.state is not None or not row.parts:
        return row
    parts = [checked(await database.run(flow_store.part(row.resource, each)), each) for each in row.parts]
    return replace(row, state=b"".join(parts), parts=None)


async def _offered(database: CallRunner, name: str, row: SavedRow) -> SavedRow:
    """A new checkpoint, cut into parts if it is large."""
    if row.state is None or len(row.state) <= INLINE_BYTES_MAX:
        return row
    parts = cut(row.state)
    for part in parts:
        await database.run(flow_store.offer_part(name, row.resource, part))
    return replace(row, state=None, parts=[part.hash for part in parts])


def _reading(database: CallRunner, resource: str) -> Callable[[bytes], Awaitable[bytes | None]]:
    return lambda digest: database.run(flow_store.part(resource, digest))


async def _divided_segments(
    database: CallRunner, name: str, rows: Sequence[SavedRow], groups: int
) -> list[SavedRow] | None:
    """The new checkpoints of a flow whose tasks kept state on disk, with their parts written; None for
    another flow."""
    prefix = f"flow:{name}/group/"
    found = {group: DividedSegments() for group in range(groups)}
    head: SegmentHead | None = None

    async def offer(group: int, parts: Sequence[Part]) -> None:
        for part in parts:
            await database.run(flow_store.offer_part(name, f"{prefix}{group:04}", part))

    others = regrouped(name, rows, groups)
    if has_both(rows):
        raise StartRefused(
            f"The savepoint of {name} has state of tasks in memory and of tasks on disk. Let the flow run "
            "with FLOW_STATE_DIR until every task has stored all of its state again, or without it until "
            "each has committed once; keep another savepoint, and regroup that."
        )
    for resource in sorted({row.resource for row in rows}):
        known = chain_of([row for row in rows if row.resource == resource])
        if known is None:
            continue
        chain, its_head = known
        head = same_head(head, its_head)
        try:
            await chain.fetch(_reading(database, resource), None)
            for state in sorted(chain.names):
                for bucket in chain.buckets(state):
                    pairs = chain.take(state, bucket)
                    for group, mine in divided(state, pairs, groups).items():
                        await offer(group, found[group].add(state, bucket, mine))
        finally:
            chain.close()
    if head is None:
        return None
    for group, segments in found.items():
        await offer(group, segments.finish())
    return with_segments(others, found, head, prefix)


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
