"""The event feed: every object once, then every change in the order of its commits, as NDJSON.

A client that begins gets all objects, and with the last of them the number of the change up to which they are
current; it was read before the objects, so nothing falls in between. A client that comes back with that
number, or with the one of any later line, gets the changes after it. Lines without a token are no place to
come back to.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from fencepost.errors import InvalidInput
from fencepost_judge import _teams as teams
from fencepost_judge._service import Judging
from fencepost_judge._teams import FeedRow
from fencepost_judge.ccs._documents import Document
from fencepost_judge.ccs._objects import COLLECTIONS, Absent, ContestObjects
from fencepost_judge.ccs._viewer import Viewer

ROWS = 1000
LOOK_SECONDS = 0.25
KEEP_ALIVE_SECONDS = 30.0
SCORED = frozenset({"judgements", "submissions", "teams", "groups", "state", "contest"})
"""A change of these can change awards."""


class EventFeed:
    """One client's feed of one contest."""

    def __init__(
        self,
        judging: Judging,
        viewer: Viewer,
        contest: str,
        *,
        after: int | None,
        again: Callable[[], Awaitable[Viewer | None]] | None = None,
    ) -> None:
        """`again` asks who the client is now: one that is locked, or has another role, is sent away."""
        self._again = again
        self._judging = judging
        self._viewer = viewer
        self._contest = contest
        self._after = after
        self._awards: dict[str, Document] = {}

    async def check(self) -> None:
        """Raises when the viewer may not see the contest, or the token is none of this feed."""
        await self._objects()
        if self._after is None:
            return
        head = await self._head()
        if not 0 <= self._after <= head:
            raise InvalidInput(
                f"since_token is {self._after}; the feed has 0 to {head}.", field="since_token"
            )

    async def lines(self, *, stream: bool = True) -> AsyncGenerator[str]:
        """Until the client leaves; without `stream`, until there is nothing more."""
        if self._after is None:
            async for line in self._snapshot():
                yield line
        said_at = checked_at = time.monotonic()
        while True:
            rows = [row for row in await self._read(self._after or 0) if row.seq is not None]
            async for line in self._told(rows):
                said_at = time.monotonic()
                yield line
            if rows:
                self._after = rows[-1].seq
                continue
            if not stream:
                return
            if time.monotonic() - said_at >= KEEP_ALIVE_SECONDS:
                said_at = time.monotonic()
                yield "\n"
            if time.monotonic() - checked_at >= KEEP_ALIVE_SECONDS:
                checked_at = time.monotonic()
                if self._again is not None and await self._again() != self._viewer:
                    return
            await asyncio.sleep(LOOK_SECONDS)

    async def _snapshot(self) -> AsyncGenerator[str]:
        self._after = await self._head()
        objects = await self._objects()
        yield _line("contest", None, objects.contest())
        for kind in COLLECTIONS:
            if kind == "awards":
                continue
            for document in await objects.collection(kind):
                yield _line(kind, document["id"], document)
        async for line in self._changed_awards(objects):
            yield line
        yield _line("state", None, objects.state(), token=self._after)

    async def _told(self, rows: Sequence[FeedRow]) -> AsyncGenerator[str]:
        if not rows:
            return
        objects = await self._objects()
        found: dict[tuple[str, str], Document | Absent] = {}
        for kind in {row.type for row in rows if row.id is not None and row.type is not None}:
            keys = [row.id for row in rows if row.type == kind and row.id is not None]
            found |= {(kind, key): one for key, one in (await objects.several(kind, keys)).items()}
        singles: dict[str, Callable[[], Document]] = {"contest": objects.contest, "state": objects.state}
        scored = any(row.type in SCORED for row in rows)
        for row in rows:
            assert row.type is not None
            if scored and row is rows[-1] and row.type == "state":
                # The state may say that nothing comes after it.
                scored = False
                async for line in self._changed_awards(objects):
                    yield line
            data = singles[row.type]() if row.id is None else found[row.type, row.id]
            if data is Absent.HIDDEN:
                continue
            shown = None if data is Absent.GONE else data
            yield _line(row.type, row.id, shown, token=row.seq)
            if row.type == "teams":
                async for line in self._members(objects, row.id):
                    yield line
        if scored:
            async for line in self._changed_awards(objects):
                yield line

    async def _members(self, objects: ContestObjects, team: str | None) -> AsyncGenerator[str]:
        for one in await objects.collection("persons"):
            if team in one["team_ids"]:
                yield _line("persons", one["id"], one)

    async def _changed_awards(self, objects: ContestObjects) -> AsyncGenerator[str]:
        """Awards follow from results, so no change names them: those that differ from what was sent."""
        current = {one["id"]: one for one in await objects.awards()}
        for key in [*current, *(key for key in self._awards if key not in current)]:
            if self._awards.get(key) != current.get(key):
                yield _line("awards", key, current.get(key))
        self._awards = current

    async def _objects(self) -> ContestObjects:
        return await ContestObjects.open(self._judging, self._viewer, self._contest)

    async def _read(self, after: int) -> list[FeedRow]:
        return await self._judging.fp.run(teams.feed(self._contest, after, ROWS))

    async def _head(self) -> int:
        return (await self._judging.fp.run(teams.feed(self._contest, 0, 1)))[0].head


def _line(kind: str, key: str | None, data: Document | Any, *, token: int | None = None) -> str:
    event: dict[str, Any] = {"type": kind, "id": key, "data": data}
    if token is not None:
        event["token"] = str(token)
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n"
