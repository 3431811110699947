"""Watching submissions: one query serves all watchers, however many there are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from fencepost.client import Fencepost
from fencepost.errors import Backpressure, NotFound, ServerUnavailable
from fencepost_judge import _judge_calls as judge_calls

LOOK_SECONDS = 0.25


class SubmissionWatch:
    """Shares one query among watchers. The first watcher schedules the next query, and watchers that
    arrive before it runs share its result. Nothing is queried while nothing is watched."""

    def __init__(self, fp: Fencepost) -> None:
        self._fp = fp
        self._watched: set[int] = set()
        self._next: asyncio.Task[Mapping[int, judge_calls.SubmissionStanding]] | None = None

    async def next(self, job_id: int) -> judge_calls.SubmissionStanding:
        """The state of the submission at the next query."""
        if self._next is None:
            self._next = asyncio.create_task(self._look(), name="fencepost-judge-look")
        self._watched.add(job_id)
        # Shielded: a cancelled watcher does not cancel the query for the others.
        found = await asyncio.shield(self._next)
        if job_id not in found:
            raise no_submission(job_id)
        return found[job_id]

    async def _look(self) -> Mapping[int, judge_calls.SubmissionStanding]:
        await asyncio.sleep(LOOK_SECONDS)
        # Later watchers wait for the next query: this one may return an older state than they have seen.
        watched, self._watched, self._next = self._watched, set(), None
        return {one.job_id: one for one in await self._fp.run(judge_calls.get_standings(sorted(watched)))}


class Streams:
    """Counts the open event streams, in total and for each user."""

    def __init__(self, *, total_max: int, per_user_max: int) -> None:
        self._total_max = total_max
        self._per_user_max = per_user_max
        self._open: Counter[str] = Counter()

    @property
    def open(self) -> int:
        return self._open.total()

    def begin(self, user: str) -> Callable[[], None]:
        """Counts one more stream and returns the function that ends it. The operator has no name; only the
        total limits it."""
        if self.open >= self._total_max:
            raise ServerUnavailable(
                f"{self._total_max} streams are open already (JUDGE_STREAMS_MAX). Try again later."
            )
        if user and self._open[user] >= self._per_user_max:
            raise Backpressure(
                f"You have {self._per_user_max} streams open already (JUDGE_STREAMS_PER_USER). Close one, or "
                "ask for the status instead."
            )
        self._open[user] += 1

        def end() -> None:
            self._open[user] -= 1
            self._open += Counter()

        return end


class EventStream(StreamingResponse):
    """A response that counts as a stream from before its first event until after its last."""

    def __init__(
        self,
        events: AsyncGenerator[str],
        end: Callable[[], None],
        headers: Mapping[str, str],
        media_type: str = "text/event-stream",
    ) -> None:
        super().__init__(events, media_type=media_type, headers=headers)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def no_submission(job_id: int) -> NotFound:
    return NotFound(f"There is no submission {job_id}.", noun="submission", subject=str(job_id))
