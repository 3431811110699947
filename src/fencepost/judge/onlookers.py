"""Who watches submissions: one look for all of them, however many they are."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fencepost.errors import NotFound
from fencepost.house import Fencepost
from fencepost.judge import records

LOOK_SECONDS = 0.25


class Onlookers:
    """The first who comes sets the time of the next look; whoever comes until then is told by it too. Nobody
    looks while nobody watches."""

    def __init__(self, fp: Fencepost) -> None:
        self._fp = fp
        self._watched: set[int] = set()
        self._next: asyncio.Task[Mapping[int, records.Standing]] | None = None

    async def next(self, job_id: int) -> records.Standing:
        """Where the submission stands at the next look."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(), name="fencepost-judge-look")
        self._watched.add(job_id)
        # One who leaves does not take the look away from the others.
        found = await asyncio.shield(self._next)
        if job_id not in found:
            raise no_submission(job_id)
        return found[job_id]

    async def _look(self) -> Mapping[int, records.Standing]:
        await asyncio.sleep(LOOK_SECONDS)
        # Who comes from here on waits for another look: this one may be older than what he knows.
        watched, self._watched, self._next = self._watched, set(), None
        return {one.job_id: one for one in await self._fp.run(records.get_standings(sorted(watched)))}


def no_submission(job_id: int) -> NotFound:
    return NotFound(f"There is no submission {job_id}.", noun="submission", subject=str(job_id))
