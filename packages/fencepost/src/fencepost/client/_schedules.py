"""`fp.schedules`: the schedules that `@fp.cron` and `@fp.every` declare, and those of run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol, TypeVar, cast

from fencepost._durations import Duration, seconds_of
from fencepost._sync_form import Form, Operations, operation
from fencepost.errors import InvalidInput, Mismatch, NotFound
from fencepost.jobs._cron import parse_cron
from fencepost.jobs._handler import Handler, Handlers
from fencepost.jobs._scheduler import Schedules, untraced
from fencepost.kernel import schedule as kernel_schedule
from fencepost.kernel.call import Call, Json
from fencepost.kernel.job import Submission, SubmitOptions, Submitted
from fencepost.kernel.schedule import Missed, ScheduledRun, ScheduleStatus

T = TypeVar("T")


class CallSender(Protocol):
    """What the operations need of a client, or of a connection."""

    is_blocking: bool
    owner: str

    async def run(self, call: Call[T]) -> T: ...


class ScheduleControl(Operations[Form]):
    """The schedules that this process declares, and control over those of all workers."""

    def __init__(self, connections: CallSender, declared: Schedules, handlers: Handlers) -> None:
        self.declared = declared
        """The schedules of this process, by name. Its workers write them to the database."""
        self._connections = connections
        self._handlers = handlers
        self.is_blocking = connections.is_blocking

    @operation
    async def list(self) -> Sequence[ScheduleStatus]:
        """Every schedule, by name; retired ones too."""
        return await self._connections.run(kernel_schedule.look())

    @operation
    async def get(self, name: str) -> ScheduleStatus:
        """One schedule. Raises NotFound if there is none of this name."""
        return await self._get(name)

    @operation
    async def history(
        self, name: str, *, before: datetime | None = None, limit: int = 50
    ) -> Sequence[ScheduledRun]:
        """The schedule's jobs, newest first: those of its ticks, and those of `run_now`."""
        return await self._connections.run(kernel_schedule.history(name, before, limit))

    @operation
    async def add(
        self,
        name: str,
        expression: str,
        handler: Handler[...] | str,
        *,
        queue: str | None = None,
        zone: str = "UTC",
        missed: Missed = "once",
        grace: Duration = 60,
        arguments: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> ScheduleStatus:
        """Add a schedule at run time; it stays until it is removed.

        await fp.schedules.add("prices jp", "*/15 * * * *", prices, arguments={"region": "jp"})

        `expression` is a cron expression, or `every 90s`. `handler` is a handler, or the kind of one; for a
        kind that this process does not declare, `queue` says where its jobs wait.
        """
        declaration = kernel_schedule.Declaration(
            name=name,
            expression=expression,
            zone=zone,
            missed=missed,
            grace_seconds=seconds_of("grace", grace),
            job=untraced(self._submission(handler, queue, arguments or {})),
        )
        next_tick = await self._next_tick(expression, zone)
        await self._connections.run(kernel_schedule.add(declaration, next_tick, self._actor(actor)))
        return await self._get(name)

    @operation
    async def change(
        self,
        name: str,
        *,
        expression: str | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
        grace: Duration | None = None,
        arguments: Mapping[str, Any] | None = None,
        actor: str | None = None,
    ) -> ScheduleStatus:
        """Change a schedule at run time, on all workers at once. What is not given stays as it is.

        A change has precedence over what the code declares, also after a deployment, until `reset`.
        """
        stored = await self._get(name)
        given = {"expression": expression, "zone": zone, "missed": missed}
        changes: dict[str, Json] = {column: value for column, value in given.items() if value is not None}
        if grace is not None:
            changes["grace"] = seconds_of("grace", grace)
        if arguments is not None:
            changes |= self._arguments(stored, arguments)
        next_tick = None
        if expression is not None or zone is not None:
            next_tick = await self._next_tick(expression or stored.expression, zone or stored.zone)
        await self._connections.run(kernel_schedule.change(name, changes, next_tick, self._actor(actor)))
        return await self._get(name)

    @operation
    async def reset(self, name: str, *, actor: str | None = None) -> None:
        """Undo what was changed at run time. Raises Mismatch when no live worker declares the schedule."""
        try:
            await self._connections.run(kernel_schedule.reset(name, self._actor(actor)))
        except Mismatch as refusal:
            raise _explained(
                refusal, f"No live worker declares the schedule {name}, so there is nothing to go back to."
            ) from None

    @operation
    async def remove(self, name: str, *, actor: str | None = None) -> None:
        """Remove a schedule. Raises Mismatch while a live worker declares it: pause it instead."""
        try:
            await self._connections.run(kernel_schedule.remove(name, self._actor(actor)))
        except Mismatch as refusal:
            raise _explained(
                refusal,
                f"Live workers declare the schedule {name}: removed, it would come back. Pause it, or remove "
                "it from their code; it then retires by itself.",
            ) from None

    @operation
    async def revive(self, name: str, *, actor: str | None = None) -> None:
        """Bring a retired schedule back, although no live worker declares it. It stays until it is removed,
        or belongs to the release that declares it next."""
        await self._connections.run(kernel_schedule.revive(name, self._actor(actor)))

    @operation
    async def run_now(self, name: str, *, actor: str | None = None) -> Submitted:
        """Submit the schedule's job now, also when it is paused or retired. Its ticks go on as they were."""
        return await self._connections.run(kernel_schedule.run_now(name, self._actor(actor)))

    @operation
    async def pause(self, name: str, *, actor: str | None = None) -> None:
        """While paused, its ticks pass without a job, and are not made up for."""
        await self._connections.run(kernel_schedule.pause(name, self._actor(actor)))

    @operation
    async def resume(self, name: str, *, actor: str | None = None) -> None:
        """Let a paused schedule submit again."""
        await self._connections.run(kernel_schedule.resume(name, self._actor(actor)))

    async def _get(self, name: str) -> ScheduleStatus:
        found = await self._connections.run(kernel_schedule.look(name))
        if not found:
            raise NotFound(f"There is no schedule {name}.", noun="schedule", subject=name)
        return found[0]

    async def _next_tick(self, expression: str, zone: str) -> datetime:
        calendar = parse_cron(expression, zone)
        return calendar.after(await self._connections.run(kernel_schedule.clock()))

    def _submission(
        self, handler: Handler[...] | str, queue: str | None, arguments: Mapping[str, Any]
    ) -> Submission:
        known = self._handlers.get(handler) if isinstance(handler, str) else handler
        if known is not None:
            return replace(known.submission(**arguments), queue=queue or known.queue)
        if queue is None:
            raise InvalidInput(
                f"This process has no handler of kind {handler}, so it does not know where its jobs wait; "
                "name the queue.",
                field="queue",
            )
        return Submission(queue=queue, kind=cast("str", handler), payload=dict(arguments), options=UNDECLARED)

    def _arguments(self, stored: ScheduleStatus, arguments: Mapping[str, Any]) -> dict[str, Json]:
        """The changes of a payload: its keys depend on it, and the handler knows how."""
        handler = self._handlers.get(stored.kind)
        if handler is not None:
            job = handler.submission(**arguments)
            keys = {"unique_key": job.unique_key, "concurrency_key": job.concurrency_key}
            return {"payload": job.payload, **keys}
        if stored.has_keys:
            raise InvalidInput(
                f"The handler of {stored.kind} makes a key of the arguments; change them in a process that "
                "declares it.",
                field="arguments",
            )
        return {"payload": dict(arguments)}

    def _actor(self, actor: str | None) -> str:
        return actor or self._connections.owner


def _explained(refusal: Mismatch, message: str) -> Mismatch:
    return Mismatch(
        message,
        noun=refusal.noun,
        subject=refusal.subject,
        attempted=refusal.attempted,
        seen=refusal.seen,
    )


UNDECLARED = SubmitOptions()
"""For a kind whose handler is declared by other processes."""
