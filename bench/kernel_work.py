"""The calls of the kernel benchmark: each hot function through Python, on one row and on many.

Every step does to the rows from `first` on what the script of the same name in `scripts/` does under pgbench.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg

from fencepost.kernel import _checkpoint as checkpoint
from fencepost.kernel import idempotency, job, lease, outbox
from fencepost.kernel.call import Json
from fencepost.kernel.drivers import run

Connection = psycopg.AsyncConnection[Any]
BATCH = 100
OWNER = "owner"
LEASE_SECONDS = 600
PAYLOAD = {"n": 1}
STATE = b"x" * 1000
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Turn:
    """One step of one worker: the rows from `first` on are its own."""

    worker: int
    first: int
    batch: int

    @property
    def ids(self) -> list[int]:
        return list(range(self.first, self.first + self.batch))


Step = Callable[[Connection, Turn], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Work:
    """A function in its two forms, or in one. `stock` names the rows that must exist before."""

    name: str
    single: Step
    many: Step | None = None
    stock: str | None = None


def _claim(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(
        connection, idempotency.claim("bench", f"key-{turn.first}", digest="digest", response={"ok": True})
    )


def claim_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, idempotency.claim_many("bench", [f"key-{number}" for number in turn.ids]))


def _outbox_put(connection: Connection, _: Turn) -> Awaitable[object]:
    return run(connection, outbox.put("bench", PAYLOAD))


def _outbox_put_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, outbox.put_many("bench", [PAYLOAD] * turn.batch))


async def _outbox_deliver(connection: Connection, _: Turn) -> None:
    (message,) = await run(connection, outbox.take("bench", OWNER, LEASE_SECONDS, 1))
    await run(connection, outbox.settle(outbox.Settlement(message.id, message.take, "sent"), OWNER))


async def outbox_deliver_many(connection: Connection, turn: Turn) -> None:
    messages = await run(connection, outbox.take("bench", OWNER, LEASE_SECONDS, turn.batch))
    sent = [outbox.Settlement(message.id, message.take, "sent") for message in messages]
    await run(connection, outbox.settle_many(sent, OWNER))


def _job_submit(connection: Connection, _: Turn) -> Awaitable[object]:
    return run(connection, job.submit("submitted", "kind", PAYLOAD))


def _job_submit_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.submit_many("submitted", "kind", [PAYLOAD] * turn.batch))


async def _job_dispatch(connection: Connection, turn: Turn) -> None:
    async with connection.transaction():
        due = [found.job_id for found in await run(connection, job.dispatch("bench", 1, turn.batch))]
        await run(connection, job.dispatched(due, ["1-1"] * len(due), "bench"))


def _job_claim(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.claim(turn.first, OWNER))


def _job_claim_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.claim_many(turn.ids, OWNER))


def _job_renew(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.renew(turn.first, 1, OWNER))


def _job_renew_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.renew_many(turn.ids, [1] * turn.batch, OWNER))


def _job_progress(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.progress(turn.first, 1, OWNER, PAYLOAD))


def _job_finish(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.finish(job.Finish(turn.first, 1, result=PAYLOAD), OWNER))


def _job_finish_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, job.finish_many([job.Finish(i, 1, result=PAYLOAD) for i in turn.ids], OWNER))


def held_lease(number: int) -> lease.Lease:
    """The lease as its holder knows it."""
    return lease.Lease(f"lease-{number}", OWNER, 1, _LONG_AGO, _LONG_AGO, _LONG_AGO)


def _lease_acquire(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, lease.acquire(f"new-{turn.first}", OWNER, LEASE_SECONDS))


def _lease_acquire_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, lease.acquire_many([f"new-{n}" for n in turn.ids], OWNER, LEASE_SECONDS))


def _lease_renew(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, lease.renew(held_lease(turn.first), LEASE_SECONDS))


def _lease_renew_many(connection: Connection, turn: Turn) -> Awaitable[object]:
    held = [held_lease(number) for number in turn.ids]
    return run(connection, lease.renew_many(held, OWNER, LEASE_SECONDS))


async def _checkpoint(connection: Connection, turn: Turn) -> None:
    resource = f"lease-{turn.first}"
    async with connection.transaction():
        number = await run(connection, checkpoint.begin(resource, 1))
        await run(
            connection,
            checkpoint.store(resource, 1, number, expected=None, frontier=PAYLOAD, state=STATE),
        )
        await run(connection, checkpoint.commit(resource, 1, number))


def _checkpoint_restore(connection: Connection, turn: Turn) -> Awaitable[object]:
    return run(connection, checkpoint.restore(f"lease-{turn.first}", 1))


async def _job_life(connection: Connection, turn: Turn) -> None:
    queue = f"life-{turn.worker}"
    await run(connection, job.submit(queue, "kind", PAYLOAD))
    async with connection.transaction():
        (due,) = await run(connection, job.dispatch(queue, 1, 1))
        await run(connection, job.dispatched([due.job_id], ["1-1"], "life"))
    running = await run(connection, job.claim(due.job_id, OWNER))
    await run(connection, job.finish(job.Finish(running.job_id, running.attempt, result=PAYLOAD), OWNER))


def lives_with(payload: Json) -> Step:
    """Whole lives of jobs with this payload, and a result of the same size."""

    async def live(connection: Connection, turn: Turn) -> None:
        queue = f"life-{turn.worker}"
        await run(connection, job.submit_many(queue, "kind", [payload] * turn.batch))
        async with connection.transaction():
            due = [found.job_id for found in await run(connection, job.dispatch(queue, 1, turn.batch))]
            await run(connection, job.dispatched(due, ["1-1"] * len(due), "life"))
        claims = await run(connection, job.claim_many(due, OWNER))
        running = [claim.running for claim in claims if claim.running is not None]
        done = [job.Finish(held.job_id, held.attempt, result=payload) for held in running]
        await run(connection, job.finish_many(done, OWNER))

    return live


FUNCTIONS = (
    Work("claim", _claim, claim_many),
    Work("outbox_put", _outbox_put, _outbox_put_many),
    Work("outbox_deliver", _outbox_deliver, outbox_deliver_many, stock="messages"),
    Work("job_submit", _job_submit, _job_submit_many),
    Work("job_claim", _job_claim, _job_claim_many, stock="waiting_jobs"),
    Work("job_dispatch", _job_dispatch, _job_dispatch, stock="waiting_jobs"),
    Work("job_renew", _job_renew, _job_renew_many, stock="running_jobs"),
    Work("job_progress", _job_progress, stock="running_jobs"),
    Work("job_finish", _job_finish, _job_finish_many, stock="running_jobs"),
    Work("lease_acquire", _lease_acquire, _lease_acquire_many),
    Work("lease_renew", _lease_renew, _lease_renew_many, stock="leases"),
    Work("checkpoint", _checkpoint, stock="leases"),
    Work("checkpoint_restore", _checkpoint_restore, stock="checkpoints"),
)
LIFE = Work("job_life", _job_life, lives_with(PAYLOAD))
