"""Schedules: declared in code, stored in the database, fired by the first worker that finds them due.

What the code of a worker declares is a release. Its workers renew it; the database stores what the live
releases declare, and retires what none of them does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from fencepost.crashpoints import crash_point
from fencepost.errors import FencepostError, InvalidInput
from fencepost.jobs._cron import parse_cron, plan
from fencepost.jobs._handler import Handler, Handlers
from fencepost.kernel import rate as kernel_rate
from fencepost.kernel import schedule as kernel_schedule
from fencepost.kernel.call import CallRunner
from fencepost.kernel.job import Submission
from fencepost.logs import LogLimiter, get_logger
from fencepost.signals import announce
from fencepost.tracing import TRACE_HEADERS

_log = get_logger(__name__)
LOOK_SECONDS_MAX = 30.0
RELEASE_SECONDS = 3 * LOOK_SECONDS_MAX
"""A release without a live worker is live for so long: schedules that no other declares then retire."""
AGAIN_SECONDS = 1.0
LOOK_COUNT = 100
TICKS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Schedule:
    """A handler, when it runs, and with which arguments."""

    name: str
    handler: Handler[...]
    expression: str
    zone: str
    missed: kernel_schedule.Missed
    grace_seconds: float
    arguments: Mapping[str, Any]

    def declaration(self) -> kernel_schedule.Declaration:
        return kernel_schedule.Declaration(
            name=self.name,
            expression=self.expression,
            zone=self.zone,
            missed=self.missed,
            grace_seconds=self.grace_seconds,
            job=untraced(self.handler.submission(**self.arguments)),
        )


def untraced(job: Submission) -> Submission:
    """The job without its trace: each tick has its own."""
    return replace(job, headers={name: v for name, v in job.headers.items() if name not in TRACE_HEADERS})


class Schedules:
    """The schedules of one process, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Schedule] = {}

    def add(self, schedule: Schedule) -> None:
        if schedule.name in self._by_name:
            raise InvalidInput(
                f"There is a schedule {schedule.name} already; give this one another name.", field="name"
            )
        # A schedule that cannot fire fails now, not at its first tick.
        parse_cron(schedule.expression, schedule.zone)
        schedule.declaration()
        self._by_name[schedule.name] = schedule

    def of(self, kinds: Iterable[str]) -> Schedules:
        """The schedules of the given kinds."""
        chosen, wanted = Schedules(), set(kinds)
        chosen._by_name.update((n, s) for n, s in self._by_name.items() if s.handler.kind in wanted)
        return chosen

    def __iter__(self) -> Iterator[Schedule]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)


@dataclass(frozen=True, slots=True)
class Release:
    """What the code of a worker declares. Equal code has an equal name."""

    name: str
    schedules: Mapping[str, Any]
    expressions: Mapping[str, tuple[str, str]]

    @classmethod
    def of(cls, schedules: Schedules) -> Release:
        declared = {schedule.name: schedule.declaration().definition() for schedule in schedules}
        name = hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()[:16]
        return cls(name, declared, {one.name: (one.expression, one.zone) for one in schedules})

    def next_ticks(self, now: datetime) -> dict[str, datetime]:
        return {name: parse_cron(*when).after(now) for name, when in self.expressions.items()}


async def declare(database: CallRunner, handlers: Handlers, schedules: Schedules, actor: str) -> Release:
    """Writes the rates and schedules of the code to the database. Returns what its workers must renew."""
    limits = {handler.kind: handler.declared.bucket for handler in handlers}
    await database.run(kernel_rate.declare(limits))
    release = Release.of(schedules.of(handler.kind for handler in handlers))
    now = await database.run(kernel_schedule.clock())
    await renew(database, release, actor, release.next_ticks(now))
    return release


async def renew(
    database: CallRunner, release: Release, actor: str, next_ticks: Mapping[str, datetime] | None = None
) -> None:
    call = kernel_schedule.release(release.name, release.schedules, next_ticks or {}, RELEASE_SECONDS, actor)
    for changed in await database.run(call):
        _log.info(f"schedule_{changed.event}", schedule=changed.name, release=release.name)


class Scheduler:
    """Fires due schedules. Several nodes may run it: the database lets each tick be taken once."""

    def __init__(self, database: CallRunner, actor: str) -> None:
        self.release: Release | None = None
        """What this worker declares, and renews."""
        self._database = database
        self._actor = actor
        self._log_limiter = LogLimiter()

    async def tick(self) -> float:
        """Renew the release and fire what is due; returns the time until the next tick."""
        if self.release is not None:
            await renew(self._database, self.release, self._actor)
        upcoming = await self._database.run(kernel_schedule.upcoming(LOOK_COUNT))
        waits = [LOOK_SECONDS_MAX]
        for due in upcoming:
            if due.next_tick > due.now:
                waits.append((due.next_tick - due.now).total_seconds())
            else:
                # A schedule that fired may have more ticks; one that did not is left to another node, or a
                # later tick.
                waits.append(0.0 if await self._fire(due) else AGAIN_SECONDS)
        return min(waits)

    async def _fire(self, due: kernel_schedule.Due) -> bool:
        try:
            planned = plan(due, parse_cron(due.expression, due.zone), ticks_max=TICKS_MAX)
            crash_point("jobs.schedule.before_fire")
            fired = await self._database.run(
                kernel_schedule.fire(due.name, due.next_tick, planned.ticks, planned.next_tick)
            )
            crash_point("jobs.schedule.after_fire")
        except FencepostError as error:
            # A full queue, or an expression of newer code: it must not delay the others.
            self._log_limiter.log(
                _log.warning,
                "schedule_not_fired",
                flood=due.name,
                schedule=due.name,
                tick=due.next_tick.isoformat(),
                error=str(error),
            )
            return False
        for one in fired:
            _log.info("schedule_fired", schedule=due.name, tick=one.tick.isoformat(), job_id=one.job_id)
            announce("schedule.fired")
        return bool(fired)
