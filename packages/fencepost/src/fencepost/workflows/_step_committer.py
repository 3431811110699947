"""Records the steps of all workflows of one worker, many with one commit."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

import psycopg

from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase
from fencepost.errors import REFUSALS, FencepostError, InvalidInput, Refusal
from fencepost.kernel import _workflow as kernel
from fencepost.logs import get_logger

_log = get_logger(__name__)
UNWRITABLE = (InvalidInput, psycopg.DataError)
BATCH = 500
IN_FLIGHT_SECONDS = 0.02
Group = tuple[Sequence[kernel.Record], "asyncio.Future[None]"]
"""Steps that commit together, and what waits for them."""


class StepCommitter:
    """Steps that arrive while a commit is under way share the next one."""

    def __init__(self, database: AsyncDatabase, owner: str) -> None:
        self._database = database
        self._owner = owner
        self._waiting: deque[Group] = deque()
        self._task: asyncio.Task[None] | None = None

    async def commit(self, records: Sequence[kernel.Record]) -> None:
        """Return when the steps are recorded; raises the reason when one was refused."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((records, done))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="fencepost-steps")
        await done

    async def _run(self) -> None:
        while self._waiting:
            groups: list[Group] = []
            size = 0
            while self._waiting and size < BATCH:
                group = self._waiting.popleft()
                if not group[1].done():
                    groups.append(group)
                    size += len(group[0])
            if groups:
                await self._write(groups)

    async def _write(self, groups: Sequence[Group]) -> None:
        try:
            refusals = await self._insist(groups)
        except UNWRITABLE as error:
            if len(groups) > 1:
                # One of them is invalid, and must not fail the others.
                for group in groups:
                    await self._write([group])
            else:
                _settle(groups[0], error)
            return
        except BaseException as error:
            # Whatever it was: what waits for these steps must not wait for ever.
            for group in groups:
                _settle(group, error)
            if isinstance(error, asyncio.CancelledError):
                raise
            return
        busy: list[Group] = []
        for records, done in groups:
            reasons = [refusals.get((record.job_id, record.name)) for record in records]
            if "in_flight" in reasons:
                busy.append((records, done))
                continue
            refused = next(((r, why) for r, why in zip(records, reasons, strict=True) if why), None)
            _settle((records, done), None if refused is None else _refusal(*refused))
        if busy:
            # A takeover or an eviction holds the row; it ends soon, one way or the other.
            await asyncio.sleep(IN_FLIGHT_SECONDS)
            self._waiting.extend(busy)

    async def _insist(self, groups: Sequence[Group]) -> dict[tuple[int, str], str | None]:
        """Repeat until the database answers: a step that this attempt has recorded is not recorded twice."""
        delay_seconds = 0.1
        while True:
            records = [record for group, done in groups if not done.done() for record in group]
            if not records:
                return {}
            try:
                crash_point("workflow.steps.before_commit")
                answers = await self._database.run(kernel.commit_many(records, self._owner))
                crash_point("workflow.steps.after_commit")
            except UNWRITABLE:
                raise
            except (psycopg.Error, FencepostError, OSError) as error:
                _log.warning("steps_not_written", error=str(error), steps=len(records))
                await asyncio.sleep(delay_seconds)
                delay_seconds = min(5.0, delay_seconds * 2)
            else:
                return {(answer.job_id, answer.name): answer.refusal for answer in answers}


def _settle(group: Group, error: BaseException | None) -> None:
    done = group[1]
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)


def _refusal(record: kernel.Record, reason: str) -> Refusal:
    # A mismatch is a fault of this step; every other reason is about the attempt, and ends it.
    of_step = reason in ("mismatch", "duplicate")
    return REFUSALS[reason](
        f"workflow {record.job_id}: step {record.name!r} of attempt {record.attempt} was refused: {reason}.",
        noun="workflow step" if of_step else "job",
        subject=f"{record.job_id}/{record.name}" if of_step else str(record.job_id),
        attempted={"attempt": record.attempt, "op": "step", "name": record.name},
    )
