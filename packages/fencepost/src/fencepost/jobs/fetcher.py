"""Fetches jobs: from the streams while Redis is up, directly from PostgreSQL while it is down.

The claim decides. Whatever Redis delivers, once or five times, only a claim makes a job run.

    read      may be cancelled: delivered entries are pending for this consumer, and found again
    claim     must not be: a claim whose answer is lost is a job that waits for the end of its lease

Redis wakes workers that wait. When more jobs arrive than the workers can run, no worker waits, and the
streams add cost without benefit. So a worker that was delivered half a batch or more *draws*: it claims
pending jobs directly from PostgreSQL, after those in the streams, as long as half a batch arrives within a
short time.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from fencepost.crashpoints import crash_point
from fencepost.jobs.claim_cursor import ClaimCursor
from fencepost.jobs.job import AsyncDatabase
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.redis_health import DRIVE_ERRORS, RedisHealth
from fencepost.jobs.retry_policy import ACKNOWLEDGED, INVALID_FIELD, MISSING_FIELD, PRIORITY_SHARES
from fencepost.jobs.settings import JobSettings
from fencepost.jobs.weighted_share import WeightedShare
from fencepost.kernel import job as kernel_job
from fencepost.kernel import poison_entries as kernel_stream
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import FIELDS, StreamEntry, Streams, is_missing_group
from fencepost.redis_streams.stream_names import PRIORITIES, stream_of

_log = get_logger(__name__)
BLOCK_MS = 2000
DRAWING_SECONDS = 0.05
DRAWING_BLOCK_MS = 3
"""How long a worker waits at the streams after a draw that returned nothing."""
OWN_ENTRIES = 1000


@dataclass(frozen=True, slots=True)
class Fetched:
    """Claimed jobs, each with its entry; entries that are no longer needed; why other claims were refused."""

    claimed: Sequence[tuple[kernel_job.Running, StreamEntry | None]]
    done: Sequence[StreamEntry]
    refusals: Sequence[str]
    asked_at: float
    """When the claim was sent, on this machine's monotonic clock: the leases end no earlier than from
    here."""


class Fetcher:
    """Reads and claims for one worker."""

    def __init__(
        self,
        queues: Sequence[str],
        owner: str,
        consumer: str,
        database: AsyncDatabase,
        link: RedisHealth,
        metrics: JobMetrics,
        settings: JobSettings,
        *,
        reply_seconds: float,
    ) -> None:
        self._owner = owner
        self._consumer = consumer
        self._database = database
        self._link = link
        self._metrics = metrics
        self._queues = queues
        self._queue_turns = WeightedShare([1] * len(queues))
        places = [(queue, priority) for priority in range(len(PRIORITIES)) for queue in queues]
        self.streams = [stream_of(settings.stream_key, queue, priority) for queue, priority in places]
        self._turns = WeightedShare([PRIORITY_SHARES[priority] for _, priority in places])
        # A read that blocks longer than the client's reply timeout would look like a dead Redis.
        self._block_ms = round(min(BLOCK_MS, reply_seconds * 500))
        self._much = settings.batch // 2
        self.drew = False
        """Whether we have drawn: stays set until the worker has seen that we no longer draw."""
        self._draws_until = 0.0
        self._drawers = 0
        self._drawn = 0
        self._is_dry = False
        self._claim_turns = count()
        self._claim_cursors = {queue: ClaimCursor() for queue in queues}
        self._idle: set[str] = set()
        self._unclaimed: list[StreamEntry] = []
        # A reused consumer name may have pending entries; a name with a boot id has none yet.
        self._losses_seen = 0 if consumer == owner else -1

    @property
    def kept(self) -> bool:
        """Whether entries were read that could not be claimed."""
        return bool(self._unclaimed)

    @property
    def draws(self) -> bool:
        """Whether the load is high enough to claim directly from PostgreSQL."""
        return self._drawers > 0 or time.monotonic() < self._draws_until

    @contextmanager
    def drawing_on(self) -> Generator[None]:
        """Preserves the remaining drawing time across the block: waiting inside it, for an answer or for
        capacity, says nothing about the load."""
        if not self.draws:
            yield
            return
        began = time.monotonic()
        self._drawers += 1
        try:
            yield
        finally:
            self._drawers -= 1
            self._draws_until += time.monotonic() - began

    async def read(self, free: int, held: Callable[[], Iterable[StreamEntry]]) -> list[StreamEntry]:
        """Entries for up to `free` jobs, without those that are `held`. Waits a while for the first; only
        briefly while drawing."""
        if self._unclaimed:
            return self._unclaimed[:free]
        streams = self._link.streams
        if streams is None:
            return []
        try:
            entries = await self._find_own(streams, held) or await self._read_new(streams, free)
        except DRIVE_ERRORS as error:
            if not is_missing_group(error):
                self._link.failed(error)
            return []
        crash_point("jobs.intake.after_read")
        return entries

    async def claim(self, entries: Sequence[StreamEntry]) -> Fetched:
        """Claim the jobs of the entries. Nothing is acknowledged here: that follows the commit.

        When the database does not answer, the entries are kept for the next time: left pending, they would
        wait until a reclaimer takes them for abandoned.
        """
        try:
            taken = await self._claim(entries)
        except Exception:
            self._metrics.claims.labels(status="error", reason="db_error").inc(len(entries))
            self.keep(entries)
            raise
        if len(taken.claimed) >= self._much:
            self.draw_on()
        if self._unclaimed:
            claimed = {entry.place for entry in entries}
            self._unclaimed = [entry for entry in self._unclaimed if entry.place not in claimed]
        return taken

    def keep(self, entries: Sequence[StreamEntry]) -> None:
        """Keeps entries that were read and not claimed: the next read returns them first."""
        self._unclaimed = list({entry.place: entry for entry in [*self._unclaimed, *entries]}.values())

    async def claim_next(self, limit: int) -> Fetched:
        """Claim directly from PostgreSQL, shared among the queues; what one queue leaves is offered to the
        others."""
        asked_at = time.monotonic()
        claimed: list[kernel_job.Running] = []
        try:
            with self.drawing_on():
                await self._claim_by_turns(limit, claimed)
        except Exception as error:
            self._metrics.claims.labels(status="error", reason="db_error").inc()
            if not claimed:
                raise
            # Jobs that the other queues returned are claimed, and run.
            _log.warning("claim_cut_short", error=str(error), claimed=len(claimed))
        self._is_dry = not claimed
        self._drawn += len(claimed)
        if self._drawn >= self._much:
            self.draw_on()
        return Fetched([(running, None) for running in claimed], (), (), asked_at)

    def draw_on(self) -> None:
        """Draw for a short time, and longer while the load stays high."""
        self.drew = True
        self._drawn = 0
        self._draws_until = time.monotonic() + DRAWING_SECONDS

    async def give_back(self, entries: Sequence[StreamEntry]) -> None:
        """Gives back entries that were read and never claimed: their jobs are dispatched again, for a worker
        with capacity.

        The entries are not acknowledged. Some may be of jobs that another worker holds; a reclaimer removes
        the others.
        """
        by_id, _ = _parse(entries)
        pairs = [(job_id, entry.entry_id) for job_id, several in by_id.items() for entry in several]
        if pairs:
            job_ids, entry_ids = zip(*pairs, strict=True)
            crash_point("jobs.give_back.before_commit")
            await self._database.run(kernel_job.recall(job_ids, entry_ids))
            crash_point("jobs.give_back.after_commit")

    async def leave(self) -> None:
        """Stops this consumer's reads. Entries that were delivered to it and never claimed are given back."""
        streams = self._link.streams
        if streams is None:
            return
        for stream in self.streams:
            try:
                await self.give_back(await streams.held_by(self._consumer, stream, "0", OWN_ENTRIES))
                await streams.depart(stream, self._consumer)
            except DRIVE_ERRORS as error:
                if not is_missing_group(error):
                    _log.debug("consumer_not_removed", error=str(error))
                    return

    async def _claim(self, entries: Sequence[StreamEntry]) -> Fetched:
        asked_at = time.monotonic()
        by_id, poison = _parse(entries)
        for entry, reason in poison:
            crash_point("jobs.poison.before_record")
            await self._database.run(
                kernel_stream.poison(entry.stream, entry.entry_id, reason, entry.fields or {})
            )
            crash_point("jobs.poison.after_record")
            self._metrics.claims.labels(status="poison", reason=reason).inc()
        done = [entry for entry in entries if entry.job_id is None]
        claimed: list[tuple[kernel_job.Running, StreamEntry | None]] = []
        refusals: list[str] = []
        answers = await self._ask(sorted(by_id))
        for answer in answers:
            first, *duplicates = by_id[answer.job_id]
            done += duplicates
            if answer.running is not None:
                claimed.append((answer.running, first))
            elif answer.outcome == "deferred" or answer.refusal in ACKNOWLEDGED:
                done.append(first)
            if answer.refusal is not None:
                refusals.append(answer.refusal)
        self._count(answers)
        return Fetched(claimed, done, refusals, asked_at)

    async def _ask(self, job_ids: Sequence[int]) -> Sequence[kernel_job.ClaimAnswer]:
        if not job_ids:
            return ()
        crash_point("jobs.claim.before_commit")
        answers = await self._database.run(kernel_job.claim_many(job_ids, self._owner))
        crash_point("jobs.claim.after_commit")
        return answers

    async def _claim_by_turns(self, limit: int, claimed: list[kernel_job.Running]) -> None:
        """Claims concurrently, each queue in its own transaction: two queues in one would take the locks of
        keys in another order than another claim does."""
        asked = [(queue, part) for queue, part in self._shared(limit).items() if part]
        answers = await asyncio.gather(
            *(self._claim_by_priority(*one) for one in asked), return_exceptions=True
        )
        failures = [answer for answer in answers if isinstance(answer, BaseException)]
        for (queue, part), answer in zip(asked, answers, strict=True):
            if not isinstance(answer, BaseException):
                claimed += answer
                (self._idle.discard if len(answer) == part else self._idle.add)(queue)
        if failures:
            raise failures[0]
        emptied = self._idle & dict(asked).keys()
        for queue in self._queues:
            # Less than half is left for the next time: it is not worth its own commit.
            if len(claimed) * 2 < limit and queue not in emptied:
                claimed += await self._claim_by_priority(queue, limit - len(claimed))

    def _shared(self, limit: int) -> dict[str, int]:
        """How many jobs each queue is asked for: queues that had nothing get few, because the others need the
        capacity."""
        shares = dict(zip(self._queues, self._queue_turns.share(limit), strict=True))
        busy = [queue for queue in self._queues if queue not in self._idle]
        if not busy:
            return shares
        kept = {queue: min(shares[queue], max(1, limit // 16)) for queue in self._idle}
        spared = sum(shares[queue] - part for queue, part in kept.items())
        more = WeightedShare([1] * len(busy)).share(spared)
        return shares | kept | {queue: shares[queue] + part for queue, part in zip(busy, more, strict=True)}

    async def _claim_by_priority(self, queue: str, limit: int) -> list[kernel_job.Running]:
        crash_point("jobs.claim_next.before_commit")
        # While Redis answers, a dispatched job has an entry that a worker reads.
        alone = self._link.streams is None
        claim_cursor = self._claim_cursors[queue]
        answers = await self._database.run(
            kernel_job.claim_by_priority(
                queue,
                self._owner,
                limit,
                dispatched=alone,
                turn=next(self._claim_turns),
                since=claim_cursor.since(time.monotonic()),
            )
        )
        crash_point("jobs.claim_next.after_commit")
        self._count(answers)
        claimed = [answer.running for answer in answers if answer.running is not None]
        claim_cursor.claimed(claimed)
        return claimed

    async def _find_own(
        self, streams: Streams, held: Callable[[], Iterable[StreamEntry]]
    ) -> list[StreamEntry]:
        """After a loss of Redis, and at the start: finds entries that were delivered to this consumer and
        never received."""
        if self._losses_seen == self._link.losses:
            return []
        losses = self._link.losses
        known = {entry.place for entry in held()}
        own: list[StreamEntry] = []
        for stream in self.streams:
            try:
                own += await streams.held_by(self._consumer, stream, "0", OWN_ENTRIES)
            except DRIVE_ERRORS as error:
                if not is_missing_group(error):
                    raise
        self._losses_seen = losses
        return [entry for entry in own if entry.place not in known]

    async def _read_new(self, streams: Streams, free: int) -> list[StreamEntry]:
        parts = dict(zip(self.streams, self._turns.share(free), strict=True))
        entries = await streams.take(parts, free, self._consumer)
        draws = self.draws
        if entries or (draws and not self._is_dry):
            return entries
        block_ms = DRAWING_BLOCK_MS if draws else self._block_ms
        return await streams.wait(self.streams, self._consumer, max(1, free // len(self.streams)), block_ms)

    def _count(self, answers: Sequence[kernel_job.ClaimAnswer]) -> None:
        for outcome, many in Counter(answer.outcome for answer in answers).items():
            reason = "db_claim_reject" if outcome == "refused" else ""
            self._metrics.claims.labels(status=outcome, reason=reason).inc(many)


def _parse(
    entries: Sequence[StreamEntry],
) -> tuple[dict[int, list[StreamEntry]], list[tuple[StreamEntry, str]]]:
    """Entries by job, and the entries that name no job: foreign or malformed ones."""
    by_id: dict[int, list[StreamEntry]] = {}
    poison: list[tuple[StreamEntry, str]] = []
    for entry in entries:
        if entry.job_id is not None:
            by_id.setdefault(entry.job_id, []).append(entry)
        elif entry.fields is not None:
            poison.append((entry, INVALID_FIELD if entry.fields.keys() >= FIELDS else MISSING_FIELD))
    return by_id, poison
