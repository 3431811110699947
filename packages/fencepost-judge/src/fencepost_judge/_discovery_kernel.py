"""Workers listed in the database under the kernel's leases, implemented by `functions/judge_worker.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from fencepost.client import Fencepost
from fencepost.errors import Refusal
from fencepost.kernel.call import Call, document, duration, each, nothing, one, parsed, text
from fencepost_judge._discovery import (
    ListedWorker,
    Load,
    Registration,
    RegistrationLost,
    WorkerInfo,
    WorkerState,
)


class KernelDirectory:
    """The default: needs no other server."""

    def __init__(self, fp: Fencepost, *, lease_seconds: float) -> None:
        self._fp = fp
        self._lease_seconds = lease_seconds

    async def enter(self, info: WorkerInfo) -> Registration:
        return await self._fp.run(enter(info, self._lease_seconds))

    async def beat(self, registration: Registration, load: Load) -> None:
        try:
            await self._fp.run(beat(registration, load, self._lease_seconds))
        except Refusal as refusal:
            raise RegistrationLost(str(refusal)) from refusal

    async def leave(self, registration: Registration) -> None:
        await self._fp.run(leave(registration))

    async def workers(self) -> Sequence[ListedWorker]:
        return await self._fp.run(workers())


def enter(info: WorkerInfo, lease_seconds: float) -> Call[Registration]:
    def registration(number: int, token: int) -> Registration:
        return Registration(info.owner, number, token)

    return Call(
        "select number, token from fencepost.judge_worker_enter(%s::text, %s::text, %s::text, %s::jsonb,"
        " %s::integer, %s::integer, %s::text, %s::jsonb, %s::interval)",
        (
            text("owner", info.owner),
            text("host", info.host),
            info.version,
            document("languages", dict(info.languages)),
            info.slots,
            info.processors,
            info.sandbox,
            document("degraded", list(info.degraded)),
            duration("lease", lease_seconds),
        ),
        one(registration),
    )


def beat(registration: Registration, load: Load, lease_seconds: float) -> Call[None]:
    return Call(
        "select fencepost.judge_worker_beat(%s::integer, %s::bigint, %s::text, %s::integer,"
        " %s::double precision, %s::interval)",
        (
            registration.number,
            registration.token,
            registration.owner,
            load.busy,
            load.load_average,
            duration("lease", lease_seconds),
        ),
        nothing,
    )


def leave(registration: Registration) -> Call[None]:
    return Call(
        "select fencepost.judge_worker_leave(%s::integer, %s::bigint, %s::text)",
        (registration.number, registration.token, registration.owner),
        nothing,
    )


def workers() -> Call[list[ListedWorker]]:
    """Every worker that has a number, including those that left or were lost, until another worker takes
    the number."""
    return Call(
        "select owner, state, host, version, languages::text, slots, processors, sandbox, degraded::text,"
        " busy, running, load_average, entered_at, seen_at, expires_at from fencepost.judge_worker_list()",
        (),
        each(_worker),
    )


def _worker(
    owner: str,
    state: WorkerState,
    host: str,
    version: str,
    languages: str,
    slots: int,
    processors: int,
    sandbox: str,
    degraded: str,
    busy: int,
    running: int,
    load_average: float,
    entered_at: datetime,
    seen_at: datetime,
    expires_at: datetime,
) -> ListedWorker:
    return ListedWorker(
        owner=owner,
        state=state,
        host=host,
        version=version,
        languages=parsed(languages),
        slots=slots,
        processors=processors,
        sandbox=sandbox,
        degraded=parsed(degraded),
        busy=busy,
        running=running,
        load_average=load_average,
        entered_at=entered_at,
        seen_at=seen_at,
        expires_at=expires_at,
    )
