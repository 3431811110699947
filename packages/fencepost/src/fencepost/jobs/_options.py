"""The options of a handler's jobs: one value, from `@fp.job` to the SQL call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal, get_args

from fencepost._durations import Duration, seconds_of
from fencepost.errors import InvalidInput
from fencepost.jobs._payload_schema import Key
from fencepost.jobs.retry_policy import Rate, RetryPolicy, exponential
from fencepost.kernel.call import Json
from fencepost.kernel.job import SubmitOptions
from fencepost.kernel.rate import Limit
from fencepost.redis_streams.stream_names import PRIORITIES

Priority = Literal["urgent", "normal", "low", "bulk"]
Place = Literal["loop", "thread", "process"]
CHUNK_MAX = 1000


@dataclass(frozen=True, kw_only=True)
class JobOptions(SubmitOptions):
    """How the jobs of a handler are submitted, claimed and run."""

    timeout_seconds: float | None = None
    retry: RetryPolicy = field(default_factory=exponential)
    run_in: Place | None = None
    unique: Key | None = None
    concurrency_key: Key | None = None
    rate: Rate | None = None
    headers: Mapping[str, Json] = field(default_factory=dict[str, Json])
    chunk: int | None = None
    """How many jobs its function takes at once; None for a function that takes one."""
    chunk_wait_seconds: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.run_in is not None and self.run_in not in get_args(Place):
            raise InvalidInput(
                f"run_in is {self.run_in!r}; it must be one of {', '.join(get_args(Place))}.", field="run_in"
            )

        if self.chunk is not None and not 1 <= self.chunk <= CHUNK_MAX:
            raise InvalidInput(f"chunk is {self.chunk}; it must be 1 to {CHUNK_MAX}.", field="chunk")
        if self.chunk is not None and self.run_in == "process":
            raise InvalidInput("A chunk runs in the loop or in a thread, not in a process.", field="run_in")

    @property
    def bucket(self) -> Limit | None:
        """How fast its jobs may start."""
        return None if self.rate is None else self.rate.bucket

    def changed(
        self,
        *,
        run_at: datetime | None = None,
        delay: Duration | None = None,
        priority: Priority | int | None = None,
        headers: Mapping[str, Json] | None = None,
    ) -> JobOptions:
        """The options of one submission. A new time replaces the old one."""
        is_timed = run_at is not None or delay is not None
        delay_seconds = None if delay is None else seconds_of("delay", delay)
        return replace(
            self,
            run_at=run_at if is_timed else self.run_at,
            delay_seconds=delay_seconds if is_timed else self.delay_seconds,
            priority=self.priority if priority is None else priority_number(priority),
            headers={**self.headers, **(headers or {})},
        )


def priority_number(priority: Priority | int) -> int:
    """The number of a priority. Priorities have names in the API and numbers in the database."""
    if isinstance(priority, int):
        return priority
    if priority not in PRIORITIES:
        raise InvalidInput(
            f"priority is {priority!r}; it must be one of {', '.join(PRIORITIES)}.", field="priority"
        )
    return PRIORITIES.index(priority)
