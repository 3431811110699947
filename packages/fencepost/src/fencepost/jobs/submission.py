"""A job to be submitted, as a value: the call to send, and the connection to send it on."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from fencepost.errors import InvalidInput
from fencepost.kernel import job as kernel_job
from fencepost.kernel.call import Call, Json
from fencepost.kernel.drivers import run
from fencepost.redis_streams.stream_names import PRIORITIES
from fencepost.transaction import SyncTransaction, Transaction

if TYPE_CHECKING:
    from fencepost.kernel.drivers import AsyncConnection, SyncConnection

T = TypeVar("T")
Priority = Literal["urgent", "normal", "low", "bulk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job. Nothing is sent until its `call` is sent."""

    queue: str
    kind: str
    payload: Json
    priority: int
    tries_max: int
    lease_seconds: float
    headers: Mapping[str, Json]
    run_at: datetime | None = None
    delay_seconds: float | None = None
    unique_key: str | None = None
    concurrency_key: str | None = None
    concurrency_limit: int | None = None

    def call(self) -> Call[kernel_job.Submitted]:
        return kernel_job.submit(
            self.queue,
            self.kind,
            self.payload,
            priority=self.priority,
            run_at=self.run_at,
            delay_seconds=self.delay_seconds,
            tries_max=self.tries_max,
            lease_seconds=self.lease_seconds,
            unique_key=self.unique_key,
            concurrency_key=self.concurrency_key,
            concurrency_limit=self.concurrency_limit,
            headers=self.headers,
        )


def call_for_many(submissions: Sequence[Submission]) -> Call[list[kernel_job.Submitted]]:
    """Submits many jobs of one handler with one statement. The handler's options are the same for all of
    them."""
    first = submissions[0]
    unique_keys = [one.unique_key for one in submissions]
    return kernel_job.submit_many(
        first.queue,
        first.kind,
        [one.payload for one in submissions],
        priority=first.priority,
        run_at=first.run_at,
        delay_seconds=first.delay_seconds,
        tries_max=first.tries_max,
        lease_seconds=first.lease_seconds,
        unique_keys=unique_keys if any(key is not None for key in unique_keys) else None,
        concurrency_keys=None
        if first.concurrency_key is None
        else [one.concurrency_key for one in submissions],
        concurrency_limit=first.concurrency_limit,
        headers=[one.headers for one in submissions],
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


@overload
def send(tx: Transaction | AsyncConnection, call: Call[T]) -> Awaitable[T]: ...
@overload
def send(tx: SyncTransaction | SyncConnection, call: Call[T]) -> T: ...
def send(tx: Any, call: Call[T]) -> Any:
    """Make a call in a Fencepost transaction, or on a connection of yours."""
    if isinstance(tx, Transaction | SyncTransaction):
        return tx.run(call)
    # The overloads of `run` tell sync from async; the type of `tx` does not say it here.
    return cast("Any", run)(tx, call)
