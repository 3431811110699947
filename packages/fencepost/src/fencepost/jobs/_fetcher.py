"""Fetches jobs: from the streams while Redis is up, directly from PostgreSQL while it is down.

The claim decides. Whatever Redis delivers, once or five times, only a claim makes a job run.

    read      may be cancelled: delivered entries are pending for this consumer, and found again
    claim     must not be: a claim whose answer is lost is a job that waits for the end of its lease
    start     the executor runs the handlers of what was claimed

Redis wakes workers that wait. When more jobs arrive than the workers can run, no worker waits, and the
streams add cost without benefit. So a worker that was delivered half a batch or more *draws*: it claims
pending jobs directly from PostgreSQL, after those in the streams, as long as a quarter of a batch arrives
within a short time.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypeVar

from fencepost.backoff import Backoff
from fencepost.crashpoints import crash_point
from fencepost.database import AsyncDatabase, SyncDatabase
from fencepost.jobs._completer import Completer
from fencepost.jobs._executor import Executor, HeldJob, HeldJobs, leave
from fencepost.jobs._group_commit import GroupCommit
from fencepost.jobs._handler import Handler, Handlers
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._redis_health import REDIS_ERRORS, RedisHealth
from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import ACKNOWLEDGED, INVALID_FIELD, MISSING_FIELD, PRIORITY_SHARES
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import _poison_entries as kernel_stream
from fencepost.kernel import job as kernel_job
from fencepost.kernel._job_need import Serves
from fencepost.logs import get_logger
from fencepost.redis_streams.stream import FIELDS, StreamEntry, Streams, is_missing_group
from fencepost.redis_streams.stream_names import PRIORITIES
from fencepost.signals import announce

_log = get_logger(__name__)
T = TypeVar("T")
BLOCK_MS = 2000
DRAWING_SECONDS = 0.2
DRAWN_MIN = 20
"""A worker goes on drawing while it draws a quarter of a batch in that time, and no fewer than these. Several
workers share what is submitted: if each stopped below the rate of one alone, all would go through Redis."""
DRAWING_BLOCK_MS = 3
DRAWING_BLOCK_MS_MAX = 24
"""How long a worker waits at the streams after a draw that returned nothing: longer each time, to a bound."""
OWN_ENTRIES = 1000
FETCH_RETRIES = Backoff(0.2, 5.0, jitter=0)
WHOLE_SECONDS = 1.0
SLACK = timedelta(seconds=0.5)
"""A job that is committed at most this much later than its neighbours need not wait for the full scan."""


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
    """Reads, claims and starts the jobs of one worker, as many as it has free places for."""

    def __init__(
        self,
        handlers: Handlers,
        held: HeldJobs,
        executor: Executor,
        completer: Completer,
        owner: str,
        database: AsyncDatabase,
        sync_database: Callable[[], SyncDatabase],
        redis: RedisHealth,
        metrics: JobMetrics,
        settings: JobSettings,
        serves: Serves,
        *,
        connections: int,
    ) -> None:
        """`connections` is how many the database's pool has."""
        self._handlers = handlers
        self._serves = serves
        self._held = held
        self._executor = executor
        self._completer = completer
        self._owner = owner
        self.consumer = settings.stream_consumer or settings.worker_id or owner
        self._database = database
        self._sync_database = sync_database
        self._groups = GroupCommit(database, owner, connections=connections)
        self._redis = redis
        self._metrics = metrics
        self._settings = settings
        self._stopping = asyncio.Event()
        self._called = asyncio.Event()
        self._accepting: asyncio.Task[Fetched | None] | None = None
        self._queues = handlers.queues
        self._queue_turns = WeightedShare([1] * len(self._queues))
        places = [(queue, priority) for priority in range(len(PRIORITIES)) for queue in self._queues]
        self.streams = [settings.stream(queue, priority) for queue, priority in places]
        self._share = WeightedShare([PRIORITY_SHARES[priority] for _, priority in places])
        # A read that blocks longer than the client's reply timeout would look like a dead Redis.
        self._block_ms = round(min(BLOCK_MS, redis.reply_seconds * 500))
        self._much = settings.batch // 2
        self._worth_drawing = max(DRAWN_MIN, settings.batch // 4)
        self._on_drawn: list[Callable[[], None]] = []
        self._on_withheld: Callable[[], None] = lambda: None
        self._drew = False
        """Whether we have drawn: stays set until `_fetch` has seen that we no longer draw."""
        self._draws_until = 0.0
        self._drawers = 0
        self._drawn = 0
        self._dry_draws = 0
        self._leaves_some = False
        """Whether the last draw returned all that it asked for, so that there may be more."""
        self._claim_turns = count()
        self._claim_cursors = {queue: ClaimCursor() for queue in self._queues}
        self._idle: set[str] = set()
        self._aside: set[str] = set()
        """Queues with jobs that were set aside, which this worker had no free place for."""
        self._is_turn_of_aside = False
        self._claiming_aside = asyncio.Lock()
        self._on_room_for_aside: dict[str, Callable[[], None]] = {}
        held.on_removed = self._call_for_aside
        self._unclaimed: list[StreamEntry] = []
        # A reused consumer name may have pending entries; a name with a boot id has none yet.
        self._losses_seen = 0 if self.consumer == owner else -1

    async def run(self) -> None:
        """Fetch jobs until `stop`. A failure is counted and logged, and the next try waits a while."""
        failures = 0
        while not self._stopping.is_set():
            self._held.room.clear()
            self._called.clear()
            if self.free <= 0:
                with self._drawing_on():
                    await self._held.room.wait()
                continue
            try:
                found = await self._fetch()
                failures = 0
            except Exception as error:
                failures += 1
                self._metrics.loop_errors.labels(loop="fetch").inc()
                _log.warning("fetch_failed", error=f"{type(error).__name__}: {error}", failures=failures)
                await _pause(FETCH_RETRIES.seconds(failures), self._stopping)
                continue
            if not found and self._redis.streams is None:
                announce("worker.idle")
                await _pause(self._settings.poll_seconds, self._called)

    def stop(self) -> None:
        """Fetch no more. A claim in progress is completed: wait for it with `finish_claim`."""
        self._stopping.set()
        self._held.room.set()
        self._called.set()

    def wake(self) -> None:
        """Look again: a job was submitted, or Redis is up or down."""
        self._called.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    async def pause(self, seconds: float) -> None:
        """Wait, unless the worker stops."""
        await _pause(seconds, self._stopping)

    def on_drawn(self, callback: Callable[[], None]) -> None:
        """Called when this worker has stopped drawing, so that the streams are filled again."""
        self._on_drawn.append(callback)

    def on_withheld(self, callback: Callable[[], None]) -> None:
        """Called when a claim was withheld: this worker is out of service."""
        self._on_withheld = callback

    def on_room_for_aside(self, queue: str, callback: Callable[[], None]) -> None:
        """Called when there is a free place again for jobs of the queue that were set aside: this worker may
        be waiting at the streams, which do not bring them."""
        self._on_room_for_aside[queue] = callback

    def _call_for_aside(self) -> None:
        for queue in self._aside:
            if queue in self._on_room_for_aside:
                self._on_room_for_aside[queue]()

    @property
    def free(self) -> int:
        """How many more jobs may be claimed now."""
        return 0 if self._stopping.is_set() else self._held.free

    async def _fetch(self) -> bool:
        """Read and claim, or claim directly from PostgreSQL; returns whether there was anything."""
        if self._redis.streams is None and not self._unclaimed:
            return await self._draw()
        if self._drew and not self.draws():
            self._drew = False
            announce("worker.drawn")
            for callback in self._on_drawn:
                callback()
        self._is_turn_of_aside = not self._is_turn_of_aside
        if self._aside and self._is_turn_of_aside:
            return await self.claim_set_aside(self._aside.pop())
        free = min(self.free, self._settings.batch)
        # Entries that are delivered while we stop, and not received, stay pending; `leave` gives them back.
        entries = await _unless_set(self._stopping, self.read(free))
        if entries:
            await self._accept_beside(entries)
        elif self.draws():
            return await self._draw()
        return bool(entries)

    async def _draw(self) -> bool:
        """Claim directly from PostgreSQL."""
        with self._held.reserved(self.free) as places:
            taken = await self.claim_next(places)
            self._begin(taken)
        return bool(taken.claimed)

    async def claim_set_aside(self, queue: str) -> bool:
        """Claims jobs of a queue directly from PostgreSQL, beside what the streams bring: jobs that other
        workers do not serve are in no stream. Returns whether there may be more for the places that are
        left; without a free place it is done when there is one."""
        async with self._claiming_aside:
            with self._held.reserved(self.free) as places:
                asked_at = time.monotonic()
                claimed = await self._claim_by_priority(queue, places) if places else []
                self._begin(Fetched([(running, None) for running in claimed], (), (), asked_at))
        if len(claimed) == places:
            self._aside.add(queue)
        else:
            self._aside.discard(queue)
        return 0 < len(claimed) < places

    async def claim_on_notice(self, queue: str) -> tuple[int, int]:
        """Claims a few pending jobs of a queue directly from PostgreSQL, beside what the streams bring, if
        most places are free: Redis need not tell an idle worker of each job. Returns how many it has claimed
        and how many it asked for; if that is more, none was left.

        It scans everything: the submission that it was notified of may have begun long ago.
        """
        most = min(self._settings.notice_claims, self.free)
        if self.free * 2 < self._settings.concurrency or self.draws():
            return 0, 0
        async with self._claiming_aside:
            with self._held.reserved(most) as places:
                asked_at = time.monotonic()
                crash_point("jobs.notice.before_claim")
                claimed = await self._claim_by_priority(queue, places, whole=True) if places else []
                # Before the places are given back: another loop would claim for them too.
                crash_point("jobs.notice.after_claim")
                self._begin(Fetched([(running, None) for running in claimed], (), (), asked_at))
        return len(claimed), places

    async def _accept_beside(self, entries: Sequence[StreamEntry]) -> None:
        """Read the next entries while a full batch is claimed; a smaller batch is claimed at once."""
        try:
            await self.finish_claim()
        except Exception:
            self._keep(entries)
            raise
        self._accepting = asyncio.create_task(self.accept(entries))
        if len(entries) < self._settings.batch:
            await self.finish_claim()
        else:
            # The claim reserves its capacity before the free capacity is counted again.
            await asyncio.sleep(0)

    async def finish_claim(self) -> None:
        """Wait for the claim in progress, and raise what it raised."""
        accepting, self._accepting = self._accepting, None
        if accepting is not None:
            await accepting

    async def finish_claim_aside(self) -> None:
        """Wait for the claim of jobs that were set aside which another loop has in progress."""
        async with self._claiming_aside:
            pass

    async def accept(self, entries: Sequence[StreamEntry]) -> Fetched | None:
        """Claim the jobs of the entries and start them; entries beyond the capacity are given back."""
        with self._held.reserved(len(entries)) as places:
            taken = await self.claim(entries[:places]) if places else None
            if taken is not None:
                self._begin(taken)
        if places < len(entries):
            try:
                await self._give_back(entries[places:])
            except Exception:
                self._keep(entries[places:])
                raise
        if taken is not None and taken.done:
            await self._completer.acknowledge(taken.done)
        return taken

    def _begin(self, taken: Fetched) -> None:
        began: list[tuple[HeldJob, Handler[...]]] = []
        now = time.monotonic()
        for running, entry in taken.claimed:
            job = Job(running, self._owner, self._database, self._sync_database, self._groups)
            active = HeldJob(running, entry, job, taken.asked_at + running.lease_seconds, started_at=now)
            # This worker may have claimed the job again: an older attempt that still runs here is a zombie.
            older = self._held.add(active)
            if older is not None:
                self._executor.lose([older])
            handler = self._handlers.get(running.kind)
            assert handler is not None, "a claim takes no job of another kind"
            if active.deadline <= now:
                self._release(active)
            else:
                began.append((active, handler))
        self._metrics.held.set(len(self._held))
        self._executor.start(began)

    def _release(self, active: HeldJob) -> None:
        """Gives a job back that was not begun, and the try is not counted: its claim was answered so late
        that its lease may be over."""
        active.outcome_known = True
        self._completer.add(active, leave(active.running, "release"))

    def draws(self) -> bool:
        """Whether the load is high enough to claim directly from PostgreSQL."""
        return self._drawers > 0 or time.monotonic() < self._draws_until

    def leaves_some(self) -> bool:
        """Whether there is more than this worker can draw: others are asked to help."""
        return self._leaves_some

    def draw_with_room(self) -> None:
        """Draws only with enough free places: with few, Redis spares PostgreSQL queries."""
        if self.free >= self._much:
            self.draw_on()

    def draw_on(self) -> None:
        """Draw for a short time, and longer while the load stays high."""
        self._drew = True
        self._drawn = 0
        self._draws_until = time.monotonic() + DRAWING_SECONDS

    @contextmanager
    def _drawing_on(self) -> Generator[None]:
        """Preserves the remaining drawing time across the block: waiting inside it, for an answer or for
        capacity, says nothing about the load."""
        if not self.draws():
            yield
            return
        began = time.monotonic()
        self._drawers += 1
        try:
            yield
        finally:
            self._drawers -= 1
            self._draws_until += time.monotonic() - began

    async def read(self, free: int) -> list[StreamEntry]:
        """Entries for up to `free` jobs, without those of held jobs. Waits a while for the first; only
        briefly while drawing."""
        if self._unclaimed:
            return self._unclaimed[:free]
        streams = self._redis.streams
        if streams is None:
            return []
        try:
            entries = await self._find_own(streams) or await self._read_new(streams, free)
        except REDIS_ERRORS as error:
            if not is_missing_group(error):
                self._redis.failed(error)
            return []
        crash_point("jobs.fetch.after_read")
        return entries

    async def claim(self, entries: Sequence[StreamEntry]) -> Fetched:
        """Claim the jobs of the entries. Nothing is acknowledged here: that follows the commit.

        When the database does not answer, the entries are kept for the next time: left pending, they would
        wait until a reclaimer takes them for abandoned.
        """
        try:
            taken = await self._claim(entries)
        except Exception:
            self._metrics.claim_failed("error", "db_error", many=len(entries))
            self._keep(entries)
            raise
        if len(taken.claimed) >= self._much:
            self.draw_on()
        if self._unclaimed:
            claimed = {entry.place for entry in entries}
            self._unclaimed = [entry for entry in self._unclaimed if entry.place not in claimed]
        return taken

    def _keep(self, entries: Sequence[StreamEntry]) -> None:
        """Keeps entries that were read and not claimed: the next read returns them first."""
        self._unclaimed = list({entry.place: entry for entry in [*self._unclaimed, *entries]}.values())

    async def claim_next(self, limit: int) -> Fetched:
        """Claim directly from PostgreSQL, shared among the queues; what one queue leaves is offered to the
        others."""
        asked_at = time.monotonic()
        claimed: list[kernel_job.Running] = []
        try:
            with self._drawing_on():
                await self._claim_by_turns(limit, claimed)
        except Exception as error:
            self._metrics.claim_failed("error", "db_error")
            if not claimed:
                raise
            # Jobs that the other queues returned are claimed, and run.
            _log.warning("claim_cut_short", error=str(error), claimed=len(claimed))
        self._dry_draws = 0 if claimed else self._dry_draws + 1
        self._leaves_some = len(claimed) >= limit
        self._drawn += len(claimed)
        if self._drawn >= self._worth_drawing:
            self.draw_on()
        return Fetched([(running, None) for running in claimed], (), (), asked_at)

    async def claim_suspects(self, queues: Sequence[str]) -> bool:
        """Claim suspects and start them, in a worker that holds nothing; returns whether there were any."""
        asked_at = time.monotonic()
        answers = await self._database.run(
            kernel_job.claim_suspects(queues, self._serves, self._owner, self._settings.concurrency)
        )
        self._metrics.claimed(answers)
        claimed = [(answer.running, None) for answer in answers if answer.running is not None]
        self._begin(Fetched(claimed, (), (), asked_at))
        return bool(claimed)

    async def _give_back(self, entries: Sequence[StreamEntry]) -> None:
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
        streams = self._redis.streams
        if streams is None:
            return
        for stream in self.streams:
            try:
                await self._give_back(await streams.held_by(self.consumer, stream, "0", OWN_ENTRIES))
                await streams.depart(stream, self.consumer)
            except REDIS_ERRORS as error:
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
            self._metrics.claim_failed("poison", reason)
        done = [entry for entry in entries if entry.job_id is None]
        claimed: list[tuple[kernel_job.Running, StreamEntry | None]] = []
        withheld: list[StreamEntry] = []
        refusals: list[str] = []
        answers = await self._ask(sorted(by_id))
        for answer in answers:
            first, *duplicates = by_id[answer.job_id]
            done += duplicates
            if answer.running is not None:
                claimed.append((answer.running, first))
            elif answer.outcome in ("deferred", "set_aside") or answer.refusal in ACKNOWLEDGED:
                done.append(first)
            elif answer.outcome == "withheld":
                withheld.append(first)
            if answer.refusal is not None:
                refusals.append(answer.refusal)
        self._metrics.claimed(answers)
        if withheld:
            # For workers that are in service; this one reads nothing until it is.
            self._held.serve(False)
            self._on_withheld()
            await self._give_back(withheld)
            done += withheld
        return Fetched(claimed, done, refusals, asked_at)

    async def _ask(self, job_ids: Sequence[int]) -> Sequence[kernel_job.ClaimAnswer]:
        if not job_ids:
            return ()
        crash_point("jobs.claim.before_commit")
        answers = await self._database.run(kernel_job.claim_many(job_ids, self._owner, serves=self._serves))
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

    async def _claim_by_priority(
        self, queue: str, limit: int, *, whole: bool = False
    ) -> list[kernel_job.Running]:
        # While Redis answers, a dispatched job has an entry that a worker reads.
        alone = self._redis.streams is None
        claim_cursor = self._claim_cursors[queue]
        while True:
            crash_point("jobs.claim_next.before_commit")
            answers = await self._database.run(
                kernel_job.claim_by_priority(
                    queue,
                    self._owner,
                    limit,
                    dispatched=alone,
                    turn=next(self._claim_turns),
                    since=None if whole else claim_cursor.since(time.monotonic()),
                    serves=self._serves,
                )
            )
            crash_point("jobs.claim_next.after_commit")
            self._metrics.claimed(answers)
            claimed = [answer.running for answer in answers if answer.running is not None]
            claim_cursor.claimed(claimed)
            if claimed or not any(answer.outcome == "set_aside" for answer in answers):
                return claimed
            # All that it saw is for other workers. It sees none of them again, so it looks further.

    async def _find_own(self, streams: Streams) -> list[StreamEntry]:
        """After a loss of Redis, and at the start: finds entries that were delivered to this consumer and
        never received."""
        if self._losses_seen == self._redis.losses:
            return []
        losses = self._redis.losses
        known = {entry.place for entry in self._held.entries}
        own: list[StreamEntry] = []
        for stream in self.streams:
            try:
                own += await streams.held_by(self.consumer, stream, "0", OWN_ENTRIES)
            except REDIS_ERRORS as error:
                if not is_missing_group(error):
                    raise
        self._losses_seen = losses
        return [entry for entry in own if entry.place not in known]

    @property
    def _drawing_block_ms(self) -> int:
        """Longer after each draw that returned nothing: other workers draw too."""
        return min(DRAWING_BLOCK_MS << min(max(0, self._dry_draws - 1), 8), DRAWING_BLOCK_MS_MAX)

    async def _read_new(self, streams: Streams, free: int) -> list[StreamEntry]:
        parts = dict(zip(self.streams, self._share.share(free), strict=True))
        entries = await streams.take(parts, free, self.consumer)
        draws = self.draws()
        if entries or self._aside or (draws and not self._dry_draws):
            return entries
        block_ms = self._drawing_block_ms if draws else self._block_ms
        return await streams.wait(self.streams, self.consumer, max(1, free // len(self.streams)), block_ms)


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


class ClaimCursor:
    """How far back the claims of one worker look in one queue.

    Every claimed job leaves an entry in the index of pending jobs, which only a vacuum removes, and the
    oldest come first. A worker that claims thousands of jobs would pass all of these each time. So a claim
    begins where the worker's last claim did, and periodically scans everything: for jobs that were submitted
    long ago and committed just now, and for jobs that were put back.
    """

    def __init__(self) -> None:
        self._since: list[datetime | None] = [None] * len(PRIORITIES)
        self._whole_at = -math.inf

    def since(self, now: float) -> Sequence[datetime | None] | None:
        """Where to begin in each priority; None for a full scan. `now` is from any monotonic clock."""
        if now - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = now
            return None
        return self._since

    def claimed(self, jobs: Sequence[kernel_job.Running]) -> None:
        """Records what the last claim returned. After a claim that returned nothing, the next is a full
        scan."""
        if not jobs:
            self._whole_at = -math.inf
        oldest: dict[int, datetime] = {}
        for job in jobs:
            if job.priority not in oldest or job.submitted_at < oldest[job.priority]:
                oldest[job.priority] = job.submitted_at
        for priority, moment in oldest.items():
            self._since[priority] = moment - SLACK


class WeightedShare:
    """Shares places by weight, and remembers between calls which share was short.

    A busy worker asks for one place at a time. Shares that were computed anew each time would always give
    that place to the heaviest, and starve the others. This is smooth weighted round robin: every place adds
    to each its weight, and goes to the one with the highest sum, which then pays the total weight.

    >>> turns = WeightedShare([2, 1])
    >>> [turns.share(1) for _ in range(3)]
    [[1, 0], [0, 1], [1, 0]]
    >>> turns.share(30)
    [20, 10]
    """

    def __init__(self, weights: Sequence[int]) -> None:
        assert all(weight > 0 for weight in weights), "a weight of zero would starve"
        self._weights = list(weights)
        self._gathered = [0] * len(weights)

    def share(self, places: int) -> list[int]:
        """How many of the places each one gets now."""
        total = sum(self._weights)
        rounds, rest = divmod(places, total) if total else (0, 0)
        given = [weight * rounds for weight in self._weights]
        for _ in range(rest):
            for index, weight in enumerate(self._weights):
                self._gathered[index] += weight
            winner = self._gathered.index(max(self._gathered))
            self._gathered[winner] -= total
            given[winner] += 1
        return given


async def _pause(seconds: float, unless: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await unless.wait()


async def _unless_set(event: asyncio.Event, work: Coroutine[Any, Any, list[T]]) -> list[T]:
    """The result of the work, or nothing as soon as the event is set: then the work is cancelled."""
    working = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else []
    finally:
        for task in (working, waiting):
            task.cancel()
        await asyncio.wait({working, waiting})
