"""Stand-ins for the servers: what a loop decides can be tried without them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from fencepost.database import AsyncDatabase
from fencepost.jobs._executor import HeldJob, HeldJobs, ThreadPool
from fencepost.jobs._handler import Handler, Handlers
from fencepost.jobs._metrics import JobMetrics
from fencepost.jobs._options import JobOptions
from fencepost.jobs._redis_health import RedisHealth
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call
from fencepost.metrics import Metrics
from fencepost.redis_streams.stream import StreamEntry, Streams
from fencepost.transaction import Transaction

T = TypeVar("T")


def running(job_id: int = 7, attempt: int = 1, payload: Any = None, lease: float = 60) -> kernel_job.Running:
    now = datetime.now(UTC)
    return kernel_job.Running(job_id, attempt, 1, "default", 1, "work", payload or {}, {}, lease, now, now)


def held(job_id: int = 7, attempt: int = 1, *, payload: Any = None, lease: float = 60) -> HeldJob:
    row = running(job_id, attempt, payload, lease)
    entry = StreamEntry("jobs", f"{job_id}-{attempt}", job_id)
    job = Job(row, "me", cast("AsyncDatabase", None), cast("Any", None))
    return HeldJob(row, entry, job, time.monotonic() + lease)


def held_jobs(places: int = 100) -> HeldJobs:
    room = asyncio.Event()
    return HeldJobs(places, ThreadPool(room.set), room, Counted().jobs)


def handler_of(function: Callable[..., Any], **options: Any) -> Handler[...]:
    handler: Handler[...] = Handler(function, "default", "work", JobOptions(**options))
    Handlers().add(handler)
    return handler


@dataclass
class FakeDatabase:
    """Answers each call by what the test says: a value, or an error to raise."""

    answer: Callable[[Call[Any]], Any]
    calls: list[Call[Any]] = field(default_factory=list[Call[Any]])

    async def run(self, call: Call[T]) -> T:
        self.calls.append(call)
        result = self.answer(call)
        if isinstance(result, BaseException):
            raise result
        return cast("T", result)

    def transaction(self, **_: object) -> AbstractAsyncContextManager[Transaction]:
        raise NotImplementedError

    def transaction_in(self, _line: object, **_: object) -> AbstractAsyncContextManager[Transaction]:
        raise NotImplementedError

    @property
    def functions(self) -> list[str]:
        return [call.function for call in self.calls]


@dataclass
class FakeStreams:
    """Remembers what was acknowledged, or fails as often as the test says."""

    failures: list[Exception] = field(default_factory=list[Exception])
    settled: list[str] = field(default_factory=list[str])

    async def settle(self, _stream: str, entry_ids: Sequence[str]) -> int:
        if self.failures:
            raise self.failures.pop(0)
        self.settled += entry_ids
        return len(entry_ids)


@dataclass
class FakeRedis:
    """Redis as the process sees it: up until something has failed."""

    fake: FakeStreams = field(default_factory=FakeStreams)
    failed_with: list[Exception] = field(default_factory=list[Exception])
    reply_seconds: float = 5

    @property
    def streams(self) -> Streams | None:
        return None if self.failed_with else cast("Streams", self.fake)

    def failed(self, error: Exception) -> None:
        self.failed_with.append(error)

    @property
    def health(self) -> RedisHealth:
        return cast("RedisHealth", self)


@dataclass
class Counted:
    """Metrics of the runtime, and their values by name."""

    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.jobs = JobMetrics.on(self.metrics)

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.value(name, **labels)
