"""`fp.schedules`: the schedules that `@fp.cron` and `@fp.every` declare, and control over those that run."""

from __future__ import annotations

from typing import Any

from fencepost._connections import Connections
from fencepost._sync_form import Form, Operations, operation
from fencepost.jobs._scheduler import Schedules
from fencepost.kernel import schedule as kernel_schedule


class ScheduleControl(Operations[Form]):
    """The schedules that this process declares, and control over those of all workers."""

    def __init__(self, connections: Connections[Any], declared: Schedules) -> None:
        self.declared = declared
        """The schedules of this process, by name. Its workers write them to the database."""
        self._connections = connections
        self.is_blocking = connections.is_blocking

    @operation
    async def pause(self, name: str, *, actor: str | None = None) -> None:
        """While paused, its ticks pass without a job, and are not made up for."""
        await self._connections.run(kernel_schedule.pause(name, actor or self._connections.owner))

    @operation
    async def resume(self, name: str, *, actor: str | None = None) -> None:
        await self._connections.run(kernel_schedule.resume(name, actor or self._connections.owner))
