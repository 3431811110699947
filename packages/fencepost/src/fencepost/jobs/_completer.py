"""Writes outcomes in batches: first to PostgreSQL, then acknowledges the entries.

This order prevents lost jobs. If an entry is acknowledged before the commit, a crash loses the job; if it is
acknowledged after the commit, it is at worst delivered again and refused.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import psycopg

from fencepost.backoff import Backoff
from fencepost.crashpoints import crash_point
from fencepost.errors import FencepostError, InvalidInput
from fencepost.jobs._executor import (
    Committed,
    HeldJob,
    HeldJobs,
    Lost,
    Outcome,
    Refused,
    describe,
    is_poison,
    leave,
)
from fencepost.jobs._job_fields import job_fields
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import REDIS_ERRORS, RedisHealth
from fencepost.jobs.hooks import Ended, EndState, FinishHook, InThread, tell
from fencepost.jobs.retry_policy import ACKNOWLEDGED, PAYLOAD_INVALID
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, CallRunner
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import StreamEntry, Streams

_log = get_logger(__name__)
T = TypeVar("T")
Finishes = Sequence[tuple[HeldJob, kernel_job.Finish]]
Leaves = Sequence[tuple[HeldJob, kernel_job.Leave]]
UNWRITABLE = (InvalidInput, psycopg.DataError)
"""Errors with which the database rejects the value permanently."""


WRITE_RETRIES = Backoff(0.1, 5.0, jitter=0)
AT_ONCE = 2
"""One batch is acknowledged while another commits and a third is gathered."""


class Completer:
    """Takes outcomes and settles them in batches. A job whose outcome is settled is held no longer."""

    def __init__(
        self,
        held: HeldJobs,
        owner: str,
        database: CallRunner,
        redis: RedisHealth,
        metrics: JobMetrics,
        *,
        batch: int,
        hooks: Sequence[FinishHook] = (),
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        self._held = held
        self._owner = owner
        self._database = database
        self._redis = redis
        self._metrics = metrics
        self._batch = batch
        self._hooks = hooks
        self._in_thread = in_thread
        self._waiting: deque[tuple[HeldJob, Outcome]] = deque()
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._busy = 0

    def add(self, active: HeldJob, outcome: Outcome) -> None:
        self._waiting.append((active, outcome))
        self._idle.clear()
        self._arrived.set()

    async def run(self) -> None:
        """Settle outcomes until cancelled."""
        await asyncio.gather(*(self._settle_batches() for _ in range(AT_ONCE)))

    async def drain(self) -> None:
        """Wait until everything that was added is settled."""
        await self._idle.wait()

    async def acknowledge(self, entries: Iterable[StreamEntry]) -> None:
        """Remove entries that are no longer needed. A failure is retried once; then a later reclaim removes
        them."""
        streams = self._redis.streams
        if streams is None:
            return
        by_stream: defaultdict[str, list[StreamEntry]] = defaultdict(list)
        for entry in entries:
            by_stream[entry.stream].append(entry)
        for stream, settled in by_stream.items():
            try:
                await self._remove(streams, stream, [entry.entry_id for entry in settled])
            except REDIS_ERRORS as error:
                _log.warning("xack_error", stream=stream, entries=len(settled), error=str(error))
                self._redis.failed(error)
                return

    async def _remove(self, streams: Streams, stream: str, entry_ids: Sequence[str]) -> None:
        crash_point("jobs.ack.before")
        try:
            await streams.settle(stream, entry_ids)
        except REDIS_ERRORS:
            self._metrics.acknowledge_errors.labels(reason="xack_error").inc()
            await streams.settle(stream, entry_ids)
        crash_point("jobs.ack.after")

    async def _settle_batches(self) -> None:
        while True:
            await self._arrived.wait()
            # Most handlers end at once, so the batch waits for those that are about to begin.
            if self._held.unbegun and len(self._waiting) < self._batch:
                await asyncio.sleep(0)
                continue
            batch = self._gather()
            if not self._waiting:
                self._arrived.clear()
            self._busy += 1
            try:
                await self._settle(batch)
            except Exception as error:
                # Nothing may end this task. The jobs' leases expire, and they are tried again.
                self._metrics.loop_errors.labels(loop="settle").inc()
                _log.error("settle_failed", error=describe(error), jobs=len(batch))
            self._held.remove([active for active, _ in batch])
            if self._hooks:
                # Not before the places are free: a slow hook delays the next outcomes, and no handler.
                await asyncio.gather(*(self._tell(active) for active, _ in batch))
            self._busy -= 1
            if not self._waiting and not self._busy:
                self._idle.set()

    async def _tell(self, active: HeldJob) -> None:
        if active.end is not None:
            await tell("finish", self._hooks, self._in_thread, active.job, active.end)

    def _note_end(
        self,
        active: HeldJob,
        state: EndState,
        left: kernel_job.Leave | None = None,
        reason: str | None = None,
    ) -> None:
        """Remember how it ended, for the hooks."""
        if self._hooks:
            waits = left.delay_seconds if left is not None and state == "pending" else None
            error, traceback = (None, None) if left is None else (left.error, left.traceback)
            active.end = Ended(state, active.run_seconds, error, traceback, waits, reason)

    def _note_ends(self, actives: Iterable[HeldJob], state: EndState) -> None:
        if self._hooks:
            for active in actives:
                self._note_end(active, state)

    def _gather(self) -> list[tuple[HeldJob, Outcome]]:
        """The next batch. It never holds two attempts at one job: answers name only the job."""
        batch: list[tuple[HeldJob, Outcome]] = []
        seen: set[int] = set()
        while self._waiting and len(batch) < self._batch:
            job_id = self._waiting[0][0].running.job_id
            if job_id in seen:
                break
            seen.add(job_id)
            batch.append(self._waiting.popleft())
        return batch

    async def _settle(self, batch: Sequence[tuple[HeldJob, Outcome]]) -> None:
        done: list[HeldJob] = []
        parked: list[HeldJob] = []
        lost: list[HeldJob] = []
        left: list[tuple[HeldJob, kernel_job.Leave, kernel_job.Left]] = []
        finishes: list[tuple[HeldJob, kernel_job.Finish]] = []
        leaves: list[tuple[HeldJob, kernel_job.Leave]] = []
        refused: list[tuple[HeldJob, Refused]] = []
        for active, outcome in batch:
            match outcome:
                case kernel_job.Finish():
                    finishes.append((active, outcome))
                case kernel_job.Leave():
                    if is_poison(outcome):
                        self._metrics.claim_failed("poison", PAYLOAD_INVALID, active.running)
                    leaves.append((active, outcome))
                case Committed():
                    if outcome.left is not None:
                        left.append((active, *outcome.left))
                    else:
                        (parked if outcome.parked else done).append(active)
                case Lost():
                    lost.append(active)
                case Refused():
                    refused.append((active, outcome))
        self._metrics.finished("ok", done)
        self._metrics.finished("parked", parked)
        self._metrics.finished("lost", lost)
        self._note_ends(done, "finished")
        self._note_ends(parked, "parked")
        self._note_ends(lost, "lost")
        done += parked
        for active, item, answer in left:
            self._note_left(active, item, answer)
            done.append(active)
        for active, refusal in refused:
            self._finish_refused(active, refusal, done, leaves)
        await self._finish(finishes, done, leaves)
        await self._leave(leaves, done)
        await self.acknowledge(active.entry for active in done if active.entry is not None)

    async def _finish(
        self, finishes: Finishes, done: list[HeldJob], leaves: list[tuple[HeldJob, kernel_job.Leave]]
    ) -> None:
        if not finishes:
            return
        crash_point("jobs.settle.before_finish")
        try:
            refusals, repeated = await self._insist(
                lambda: kernel_job.finish_many([finish for _, finish in finishes], self._owner)
            )
        except UNWRITABLE as error:
            if len(finishes) == 1:
                # Its effects may exist outside the database; a retry would repeat them.
                active = finishes[0][0]
                leaves.append(
                    (active, leave(active.running, "bury", f"unwritable result: {describe(error)}"))
                )
                return
            # One of them is invalid, and must not fail the others.
            for one in finishes:
                await self._finish([one], done, leaves)
            return
        crash_point("jobs.settle.after_finish")
        refused = {one.job_id: Refused(one.refusal, one.seen or {}) for one in refusals}
        written: list[HeldJob] = []
        for active, _ in finishes:
            refusal = refused.get(active.running.job_id)
            # After a repeat: finished by our own first try, whose answer was lost.
            if refusal is None or (repeated and refusal.reason == "already_finished"):
                written.append(active)
            else:
                self._finish_refused(active, refusal, done, leaves)
        self._metrics.finished("ok", written)
        self._note_ends(written, "finished")
        done += written

    async def _leave(self, leaves: Leaves, done: list[HeldJob]) -> None:
        if not leaves:
            return
        crash_point("jobs.settle.before_leave")
        try:
            answers, repeated = await self._insist(
                lambda: kernel_job.leave_many([item for _, item in leaves], self._owner)
            )
        except UNWRITABLE:
            if len(leaves) == 1:
                raise
            for one in leaves:
                await self._leave([one], done)
            return
        crash_point("jobs.settle.after_leave")
        by_id = {active.running.job_id: (active, item) for active, item in leaves}
        for answer in answers:
            active, item = by_id[answer.job_id]
            if answer.refusal is None:
                self._note_left(active, item, answer)
                done.append(active)
                continue
            _log_failure(active, item, answer)
            if repeated and answer.refusal in ACKNOWLEDGED:
                self._metrics.finished("repeated", [active])
                self._note_end(active, "refused", item, answer.refusal)
                done.append(active)
            else:
                self._leave_refused(active, Refused(answer.refusal, answer.seen or {}), done)

    def _note_left(self, active: HeldJob, item: kernel_job.Leave, answer: kernel_job.Left) -> None:
        _log_failure(active, item, answer)
        self._metrics.finished(item.how if answer.state == "pending" else str(answer.state), [active])
        self._note_end(active, cast("EndState", answer.state), item)

    def _finish_refused(
        self,
        active: HeldJob,
        refusal: Refused,
        done: list[HeldJob],
        leaves: list[tuple[HeldJob, kernel_job.Leave]],
    ) -> None:
        if refusal.reason == "cancelled":
            # It stays running until its owner releases it; a released job ends as cancelled.
            self._reject(active, refusal)
            leaves.append((active, leave(active.running, "release")))
        else:
            self._leave_refused(active, refusal, done)

    def _leave_refused(self, active: HeldJob, refusal: Refused, done: list[HeldJob]) -> None:
        self._reject(active, refusal)
        self._note_end(active, "refused", reason=refusal.reason)
        if refusal.reason in ACKNOWLEDGED:
            done.append(active)

    def _reject(self, active: HeldJob, refusal: Refused) -> None:
        running = active.running
        self._metrics.rejected(running, refusal.reason)
        _log.info("finalize_rejected", reason=refusal.reason, seen=dict(refusal.seen), **job_fields(running))

    async def _insist(self, make: Callable[[], Call[T]]) -> tuple[T, bool]:
        """Retry until the database answers; returns whether an earlier try may have been written.

        A repeat is safe: it carries attempt and owner, so a write that was already made is refused, never
        doubled.
        """
        delays = WRITE_RETRIES.waits()
        repeated = False
        call = make()
        while True:
            try:
                return await self._database.run(call), repeated
            except UNWRITABLE:
                raise
            except (psycopg.Error, FencepostError, OSError) as error:
                delay_seconds = next(delays)
                self._metrics.outcome_errors.inc()
                _log.warning("db_error", error=describe(error), retry_seconds=delay_seconds)
                repeated = True
                await asyncio.sleep(delay_seconds)


def _log_failure(active: HeldJob, left: kernel_job.Leave, answer: kernel_job.Left) -> None:
    """One line for each try that failed: an error when the job is dead, or else a warning."""
    if left.how == "release":
        return
    running = active.running
    log = _log.error if answer.state == "dead" else _log.warning
    log(
        "job_failed",
        error=left.error,
        retry_seconds=left.delay_seconds if answer.state == "pending" else None,
        state=answer.state,
        refused=answer.refusal,
        # Under the name that structlog renders as a traceback.
        exception=left.traceback,
        **job_fields(running),
    )
