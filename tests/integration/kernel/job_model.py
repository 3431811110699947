"""What jobs promise, in Python: each by its id, and how every call moves it."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

WAITING = ("pending", "dispatched")
LEASE = timedelta(seconds=3)
NOTHING = timedelta(0)


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
        lost = job is not None and job.state == "running" and self._is_lost(job)
        if job is not None and lost and self._lost_end(number, job) is None:
            self._start(job, owner)
            return "claimed", None
        return "refused", self.explain(number, None, owner)

    def _start(self, job: Job, owner: str) -> None:
        job.state, job.owner, job.attempt, job.tries = "running", owner, job.attempt + 1, job.tries + 1
        job.claimed_at, job.expires_at, job.run_at = self.now, self.now + LEASE, None
        job.entry, job.dispatched_at, job.progress, job.error = None, None, None, None

    def _is_lost(self, job: Job, grace: timedelta = NOTHING) -> bool:
        return job.expires_at is not None and job.expires_at <= self.now - grace

    def _lost_end(self, number: int, job: Job) -> str | None:
        if job.cancel_requested_at is not None:
            self._end(number, "cancelled", "cancelled", None)
            return "cancelled"
        if job.tries >= job.tries_max:
            self._end(number, "dead", "worker_lost", "its lease expired in its last try")
            return "dead"
        return None

    def _end(self, number: int, state: str, status: str, error: str | None, result: Any = None) -> None:
        job = self.jobs[number]
        job.state, job.final_status, job.error, job.result = state, status, error, result
        job.finished_at, job.run_at, job.expires_at, job.cancel_requested_at = self.now, None, None, None
        job.progress = None
        if job.unique_key is not None and self.holders.get(job.unique_key) == number:
            del self.holders[job.unique_key]

    def _put_back(self, job: Job, delay: timedelta, tries: int, error: str | None) -> None:
        job.state, job.run_at, job.tries, job.error = "pending", self.now + delay, tries, error
        job.owner = job.claimed_at = job.expires_at = job.cancel_requested_at = job.progress = None

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
        job.expires_at = self.now + LEASE
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
            self._put_back(job, delay or NOTHING, job.tries - (how == "release"), error)
        return None, job.state

    def reclaim(self, grace: timedelta) -> set[tuple[int, int, str | None, str]]:
        found: set[tuple[int, int, str | None, str]] = set()
        for number, job in self.jobs.items():
            if job.state == "running" and self._is_lost(job, grace):
                attempt, owner = job.attempt, job.owner
                if self._lost_end(number, job) is None:
                    self._put_back(job, NOTHING, job.tries, "its lease expired")
                found.add((number, attempt, owner, job.state))
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
        if job is None or job.state not in WAITING or job.run_at is None:
            return self._operator(number)
        job.run_at = min(job.run_at, self.now)
        return "done"
