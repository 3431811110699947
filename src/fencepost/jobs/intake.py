"""Taking jobs in: from the streams while Redis drives, straight from PostgreSQL while it does not.

The claim is the gate. Whatever Redis delivers, once or five times, only a claim makes a job run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from redis.exceptions import RedisError, ResponseError

from fencepost.crashpoints import crash_point
from fencepost.drive.lanes import LANES, stream_of
from fencepost.drive.stream import Entry, Streams
from fencepost.jobs.drive_link import DriveLink
from fencepost.jobs.job import Database
from fencepost.jobs.metrics import JobMetrics
from fencepost.jobs.policy import ACKNOWLEDGED, share_capacity
from fencepost.jobs.settings import JobSettings
from fencepost.kernel import job as kernel_job
from fencepost.kernel import stream as kernel_stream

_log = structlog.get_logger(__name__)
FIELDS = ("job_id", "enqueue_ts", "payload_ref", "priority")
BLOCK_MS = 2000


@dataclass(frozen=True, slots=True)
class Taken:
    """Jobs that were claimed, each with the entry that drove it, and entries that are done with."""

    claimed: Sequence[tuple[kernel_job.Running, Entry | None]]
    done: Sequence[Entry]


NOTHING = Taken((), ())


class Intake:
    """Claims jobs for one worker."""

    def __init__(
        self,
        queues: Sequence[str],
        owner: str,
        consumer: str,
        database: Database,
        link: DriveLink,
        metrics: JobMetrics,
        settings: JobSettings,
    ) -> None:
        self._queues = queues
        self._owner = owner
        self._consumer = consumer
        self._database = database
        self._link = link
        self._metrics = metrics
        self._lanes = [
            [stream_of(settings.stream_key, queue, lane) for queue in queues] for lane in range(len(LANES))
        ]
        self._grouped: set[str] = set()

    @property
    def streams(self) -> list[str]:
        return [stream for lane in self._lanes for stream in lane]

    async def take(self, free: int) -> Taken:
        """Up to `free` jobs. From streams it waits a while for the first; from PostgreSQL it answers at
        once."""
        streams = self._link.streams
        if streams is None:
            return await self._from_postgres(free)
        try:
            entries = await self._read(streams, free)
        except (RedisError, OSError) as error:
            self._grouped.clear()
            if not (isinstance(error, ResponseError) and "NOGROUP" in str(error)):
                self._link.failed(error)
            return NOTHING
        return await self.claim(entries) if entries else NOTHING

    async def claim(self, entries: Sequence[Entry]) -> Taken:
        """Claim what the entries name. Nothing is acknowledged here: that follows what PostgreSQL has
        committed."""
        crash_point("jobs.intake.before_claim")
        by_id, poison = _parse(entries)
        for entry, reason in poison:
            await self._database.run(kernel_stream.poison(entry.stream, entry.entry_id, reason, entry.fields))
            self._metrics.claims.labels(status="poison", reason=reason).inc()
        done = [entry for entry, _ in poison]
        if not by_id:
            return Taken((), done)
        answers = await self._database.run(kernel_job.claim_many(sorted(by_id), self._owner))
        crash_point("jobs.intake.after_claim")
        claimed: list[tuple[kernel_job.Running, Entry | None]] = []
        for answer in answers:
            first, *others = by_id[answer.job_id]
            done += others
            if answer.running is not None:
                claimed.append((answer.running, first))
            elif answer.outcome == "deferred" or answer.refusal in ACKNOWLEDGED:
                done.append(first)
            self._count(answer)
        return Taken(claimed, done)

    async def _from_postgres(self, free: int) -> Taken:
        """By lanes in their shares, and then whatever is left, so that no capacity lies idle."""
        claimed: list[tuple[kernel_job.Running, Entry | None]] = []
        for shares in (share_capacity(free, [free] * len(LANES)), None):
            for lane in range(len(LANES)):
                for queue in self._queues:
                    limit = (
                        (free - len(claimed)) if shares is None else min(shares[lane], free - len(claimed))
                    )
                    if limit <= 0:
                        continue
                    answers = await self._database.run(
                        kernel_job.claim_next(queue, lane, self._owner, limit, dispatched=True)
                    )
                    for answer in answers:
                        self._count(answer)
                    claimed += [(a.running, None) for a in answers if a.running is not None]
        return Taken(claimed, ())

    async def _read(self, streams: Streams, free: int) -> list[Entry]:
        for stream in self.streams:
            if stream not in self._grouped:
                await streams.ensure_group(stream)
                self._grouped.add(stream)
        entries: list[Entry] = []
        while len(entries) < free:
            # By shares while every lane has work; what an empty lane leaves goes to the others in the next
            # round.
            shares = share_capacity(free - len(entries), [free] * len(LANES))
            counts = {
                stream: max(1, share // len(lane))
                for lane, share in zip(self._lanes, shares, strict=True)
                for stream in lane
                if share
            }
            more = await streams.read(counts, self._consumer)
            entries += more
            if len(more) < min(counts.values()):
                break
        return entries or await streams.wait(
            self.streams, self._consumer, max(1, free // len(self.streams)), BLOCK_MS
        )

    def _count(self, answer: kernel_job.ClaimAnswer) -> None:
        reason = "" if answer.outcome == "claimed" else answer.refusal or answer.outcome
        self._metrics.claims.labels(status=answer.outcome, reason=reason).inc()


def _parse(entries: Sequence[Entry]) -> tuple[dict[int, list[Entry]], list[tuple[Entry, str]]]:
    """Entries by job, and those that name none: somebody else wrote them, or wrote them wrongly."""
    by_id: dict[int, list[Entry]] = {}
    poison: list[tuple[Entry, str]] = []
    for entry in entries:
        job_id = entry.fields.get("job_id", "")
        if any(field not in entry.fields for field in FIELDS):
            poison.append((entry, "missing_field"))
        elif not (job_id.isascii() and job_id.isdigit() and len(job_id) <= 18):
            poison.append((entry, "invalid_field"))
        else:
            by_id.setdefault(int(job_id), []).append(entry)
    return by_id, poison
