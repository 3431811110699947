"""What jobs promise, in Python: each by its id, and how every call moves it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

WAITING = ("pending", "dispatched")
LEASE = timedelta(seconds=3)
NOTHING = timedelta(0)
NEVER = datetime(9999, 12, 31, tzinfo=UTC)
LOSSES_MAX = 20


@dataclass
class Job:
    """One line of the view, and where its entry lies."""

    queue: str
    priority: int
    tries_max: int
    unique_key: str | None
    run_at: datetime | None
    state: str = "pending"
    final_status: str | None = None
    attempt: int = 0
    tries: int = 0
    owner: str | None = None
    claimed_at: datetime | None = None
    expires_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    progress: Any = None
    result: Any = None
    error: str | None = None
    entry: str | None = None
    dispatched_at: datetime | None = None
    renewed_at: datetime | None = None
    losses: int | None = None
    """The losses of a suspect that were not charged; None for a job that is none."""

    def shown(self) -> tuple[Any, ...]:
        return (
            *(self.state, self.final_status, self.attempt, self.tries, self.owner, self.run_at),
            *(self.claimed_at, self.expires_at, self.finished_at, self.cancel_requested_at),
            *(self.progress, self.result, self.error),
        )


@dataclass
class Jobs:
    """All of them, and the queues that are paused."""

    now: datetime
    jobs: dict[int, Job] = field(default_factory=dict[int, Job])
    paused: set[str] = field(default_factory=set[str])
    holders: dict[str, int] = field(default_factory=dict[str, int])
    """Whose a unique key is."""
    groups: list[tuple[str | None, datetime]] = field(default_factory=list[tuple[str | None, datetime]])
    """The workers that were lost with several jobs, and when."""

    def submit(
        self, queue: str, priority: int, tries_max: int, run_at: datetime | None, key: str | None, number: int
    ) -> tuple[int, bool]:
        """`number` is the id that a new one gets."""
        if key in self.holders:
            return self.holders[key], False
        self.jobs[number] = Job(queue, priority, tries_max, key, max(run_at or self.now, self.now))
        if key is not None:
            self.holders[key] = number
        return number, True

    def due(self, queue: str, priority: int, limit: int, *, driven: bool = False) -> list[int]:
        if queue in self.paused:
            return []
        mine = [
            (number, job)
            for number, job in self.jobs.items()
            if (job.queue, job.priority) == (queue, priority)
        ]
        pending = sorted(
            (job.run_at, number) for number, job in mine if job.state == "pending" and self._is_due(job)
        )
        sent = sorted((job.dispatched_at, number) for number, job in mine if job.state == "dispatched")
        return [number for _, number in [*pending[:limit], *(sent if driven else [])]][:limit]

    def _is_due(self, job: Job) -> bool:
        return job.run_at is not None and job.run_at <= self.now

    def dispatched(self, number: int, entry: str) -> int:
        job = self.jobs.get(number)
        if job is None or job.state != "pending":
            return 0
        job.state, job.entry, job.dispatched_at, job.error = "dispatched", entry, self.now, None
        return 1

    def recall(self, number: int, entry: str) -> int:
        job = self.jobs.get(number)
        if job is None or job.state != "dispatched" or job.entry != entry:
            return 0
        job.state, job.entry, job.dispatched_at = "pending", None, None
        return 1

    def dispatch_failed(self, number: int, error: str, delay: timedelta) -> int:
        job = self.jobs.get(number)
        if job is None or job.state != "pending" or job.run_at is None:
            return 0
        job.error = error
        job.run_at = max(job.run_at, self.now + delay) if delay > NOTHING else job.run_at
        return 1

    def claim(self, number: int, owner: str) -> tuple[str, str | None]:
        """The outcome, and the refusal."""
        job = self.jobs.get(number)
        if job is not None and job.state in WAITING and self._is_due(job):
            if job.queue in self.paused:
                job.state, job.entry, job.dispatched_at = "pending", None, None
                return "deferred", None
            self._start(job, owner)
            return "claimed", None
        if job is not None and job.state == "running" and self._is_lost(job):
            self._open([number])
            in_doubt = self._was_beside_others(job) or job.losses is not None
            if not in_doubt and job.cancel_requested_at is None and job.tries < job.tries_max:
                self._start(job, owner)
                return "claimed", None
            self._lose(number, job)
        return "refused", self.explain(number, None, owner)

    def _start(self, job: Job, owner: str) -> None:
        job.state, job.owner, job.attempt, job.tries = "running", owner, job.attempt + 1, job.tries + 1
        job.claimed_at, job.expires_at, job.run_at = self.now, self.now + LEASE, None
        job.renewed_at = self.now
        job.entry, job.dispatched_at, job.progress, job.error = None, None, None, None

    def _is_lost(self, job: Job, grace: timedelta = NOTHING) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now - grace

    def _open(self, lost: list[int]) -> None:
        """Note which of the lost workers held several jobs."""
        by_owner: dict[str | None, list[int]] = {}
        for number in lost:
            by_owner.setdefault(self.jobs[number].owner, []).append(number)
        for owner, numbers in by_owner.items():
            claimed_at = max(_sure(self.jobs[number].claimed_at) for number in numbers)
            known = any(name == owner and at > claimed_at for name, at in self.groups)
            if not known and (len(numbers) > 1 or self._has_others(self.jobs[numbers[0]])):
                self.groups.append((owner, self.now))

    def _has_others(self, lost: Job) -> bool:
        return any(
            job is not lost
            and (job.state, job.owner) == ("running", lost.owner)
            and _sure(job.expires_at) > _sure(lost.renewed_at)
            for job in self.jobs.values()
        )

    def _was_beside_others(self, job: Job) -> bool:
        return any(name == job.owner and at > _sure(job.claimed_at) for name, at in self.groups)

    def _lose(self, number: int, job: Job) -> bool:
        """Put the job of a lost worker back, or end it; answers whether the try was charged."""
        beside, losses = self._was_beside_others(job), job.losses
        charged = not beside or (losses or 0) >= LOSSES_MAX
        error = "its lease expired" + (
            "; it ran beside other jobs, so this try is not charged, and it runs again apart from other work"
            if not charged
            else f" after {losses} losses together with other jobs, which were not charged"
            if beside
            else " while it ran alone in its worker"
            if losses is not None
            else " while no other job ran in its worker"
        )
        if job.cancel_requested_at is not None:
            self._end(number, "cancelled", "cancelled", None)
        elif charged and job.tries >= job.tries_max:
            self._end(number, "dead", "worker_lost", f"{error}, in its last try")
        elif not beside and losses is None:
            self._put_back(job, NOTHING, job.tries, error)
        else:
            self._put_back(job, NOTHING, job.tries - (not charged), error)
            job.run_at, job.losses = NEVER, (losses or 0) + (not charged)
        return charged

    def claim_suspects(self, queue: str, owner: str, group: list[int]) -> list[int]:
        """The half of a group that a worker of the queue is given, if it holds nothing."""
        if queue in self.paused or any(
            (job.state, job.owner) == ("running", owner) for job in self.jobs.values()
        ):
            return []
        waiting = sorted(
            number
            for number in group
            if self.jobs[number].state in WAITING
            and (self.jobs[number].queue, self.jobs[number].run_at) == (queue, NEVER)
        )
        taken = waiting[: max(1, len(waiting) // 2)]
        for number in taken:
            self._start(self.jobs[number], owner)
        return taken

    def _end(self, number: int, state: str, status: str, error: str | None, result: Any = None) -> None:
        job = self.jobs[number]
        job.state, job.final_status, job.error, job.result = state, status, error, result
        job.finished_at, job.run_at, job.expires_at, job.cancel_requested_at = self.now, None, None, None
        job.progress = job.losses = None
        if job.unique_key is not None and self.holders.get(job.unique_key) == number:
            del self.holders[job.unique_key]

    def _put_back(self, job: Job, delay: timedelta, tries: int, error: str | None) -> None:
        job.state, job.run_at, job.tries, job.error = "pending", self.now + delay, tries, error
        job.owner = job.claimed_at = job.expires_at = job.cancel_requested_at = job.progress = None
        job.losses = None

    def explain(self, number: int, attempt: int | None, owner: str) -> str:
        job = self.jobs.get(number)
        if job is None:
            return "not_found"
        if job.state == "cancelled":
            return "cancelled"
        if attempt is not None and job.attempt > attempt:
            return "stale_attempt"
        if job.state == "running":
            return self._explain_running(job, attempt, owner)
        return "not_running" if job.state in WAITING else "already_finished"

    def _explain_running(self, job: Job, attempt: int | None, owner: str) -> str:
        if job.owner != owner or (attempt is not None and job.attempt < attempt):
            return "not_owner"
        if self._is_lost(job):
            return "lease_expired"
        return "in_flight" if job.cancel_requested_at is None else "cancelled"

    def _mine(self, number: int, attempt: int, owner: str) -> Job | None:
        job = self.jobs.get(number)
        held = job is not None and job.state == "running" and (job.attempt, job.owner) == (attempt, owner)
        return job if job is not None and held and not self._is_lost(job) else None

    def renew(self, number: int, attempt: int, owner: str) -> str | None:
        job = self._mine(number, attempt, owner)
        if job is None:
            return self.explain(number, attempt, owner)
        job.expires_at, job.renewed_at = self.now + LEASE, self.now
        return None

    def report(self, number: int, attempt: int, owner: str, progress: Any) -> str | None:
        job = self._mine(number, attempt, owner)
        if job is None or job.cancel_requested_at is not None:
            return self.explain(number, attempt, owner)
        job.progress = progress
        return None

    def finish(self, number: int, attempt: int, owner: str, status: str, result: Any) -> str | None:
        job = self._mine(number, attempt, owner)
        if job is None or job.cancel_requested_at is not None:
            return self.explain(number, attempt, owner)
        self._end(number, "finished", status, None, result)
        return None

    def leave(
        self, number: int, attempt: int, owner: str, how: str, error: str | None, delay: timedelta | None
    ) -> tuple[str | None, str | None]:
        """The refusal, or the state that it is in now."""
        job = self._mine(number, attempt, owner)
        if job is None:
            return self.explain(number, attempt, owner), None
        if job.cancel_requested_at is not None:
            self._end(number, "cancelled", "cancelled", error)
        elif how == "bury" or (how == "retry" and job.tries >= job.tries_max):
            self._end(number, "dead", "failed", error)
        else:
            losses = job.losses
            self._put_back(job, delay or NOTHING, job.tries - (how == "release"), error)
            if losses is not None and how == "release" and not delay:
                # Its worker stops, which proves nothing.
                job.run_at, job.losses = NEVER, losses
        return None, job.state

    def reclaim(self, grace: timedelta) -> set[tuple[int, int, str | None, str, bool]]:
        found: set[tuple[int, int, str | None, str, bool]] = set()
        lost = [
            number
            for number, job in self.jobs.items()
            if job.state == "running" and self._is_lost(job, grace)
        ]
        self._open(lost)
        for number in lost:
            job = self.jobs[number]
            attempt, owner = job.attempt, job.owner
            charged = self._lose(number, job)
            found.add((number, attempt, owner, job.state, charged))
        return found

    def _operator(self, number: int) -> str:
        job = self.jobs.get(number)
        if job is None:
            return "not_found"
        return {"finished": "already_finished", "cancelled": "cancelled"}.get(job.state, "mismatch")

    def cancel(self, number: int, expected: str | None) -> str:
        job = self.jobs.get(number)
        if job is not None and job.state in WAITING and expected in (None, job.state):
            self._end(number, "cancelled", "cancelled", job.error)
            job.owner = job.claimed_at = job.entry = job.dispatched_at = None
            return "done"
        if job is not None and job.state == "running" and expected in (None, "running"):
            job.cancel_requested_at = job.cancel_requested_at or self.now
            return "done"
        return self._operator(number)

    def replay(self, number: int, expected: str) -> str:
        job = self.jobs.get(number)
        if job is None or job.state != expected:
            return self._operator(number)
        if job.unique_key in self.holders:
            return "duplicate"
        if job.unique_key is not None:
            self.holders[job.unique_key] = number
        job.final_status = job.finished_at = job.result = None
        self._put_back(job, NOTHING, 0, None)
        return "done"

    def discard(self, number: int) -> str:
        job = self.jobs.get(number)
        if job is None or job.state != "dead":
            return self._operator(number)
        job.state, job.final_status = "cancelled", "discarded"
        return "done"

    def hurry(self, number: int) -> str:
        job = self.jobs.get(number)
        if job is None or job.state not in WAITING or job.run_at in (None, NEVER):
            return self._operator(number)
        job.run_at = min(_sure(job.run_at), self.now)
        return "done"


def _sure(moment: datetime | None) -> datetime:
    assert moment is not None
    return moment
