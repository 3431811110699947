"""The state of the whole system at one moment, read from the kernel's views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from psycopg.rows import class_row

from fencepost.cli.database_reader import Reader
from fencepost.kernel._lineage import PRIMARY, ReadAge, read_age
from fencepost.kernel.drivers import run

# Keeps the output to one screen, however many leases exist: held ones come first.
LEASES_MAX = 20
UNSERVED_MAX = 100
SCHEDULES_MAX = 100
FLOWS_MAX = 100
DEAD_MAX = 10_000


@dataclass(frozen=True, slots=True)
class QueueStatus:
    queue: str
    pending: int
    dispatched: int
    running: int
    dead: int
    oldest_waiting_seconds: float | None
    paused: bool
    due: int = 0
    """Of those that wait, the ones whose time has come."""


@dataclass(frozen=True, slots=True)
class Workers:
    """How many job workers are registered, and how jobs reach them: through `redis` or `postgresql`."""

    drive: str
    workers: int


@dataclass(frozen=True, slots=True)
class UnservedWork:
    """Due work that no live worker takes, and a sentence that says why."""

    reason: str
    queue: str
    kind: str | None
    schedule: str | None
    missing: Sequence[str]
    waiting: int
    oldest_seconds: float | None
    message: str


@dataclass(frozen=True, slots=True)
class OutOfService:
    """A worker, the workers of a name on a host, or a host, that claims nothing; and why."""

    target: str
    state: str
    actor: str
    reason: str
    held_at: datetime


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    resource: str
    owner: str | None
    token: int
    acquired_at: datetime
    renewed_at: datetime
    expires_at: datetime
    held: bool


@dataclass(frozen=True, slots=True)
class ChannelStatus:
    channel: str
    queued: int
    sending: int
    failed: int
    unknown: int
    parked: int
    lag_seconds: float | None


@dataclass(frozen=True, slots=True)
class Reason:
    reason: str
    sqlstate: str
    refused: int
    meaning: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Suspects:
    """Jobs of a queue that came back from a lost worker and wait to run, or run, apart from other work."""

    queue: str
    suspects: int


@dataclass(frozen=True, slots=True)
class ScheduleStatus:
    """A schedule that is neither paused nor retired, and how long ago its next tick should have fired."""

    schedule: str
    late_seconds: float


@dataclass(frozen=True, slots=True)
class FlowStatus:
    """A flow that is neither drained nor at the end of its sources, and how many tasks live workers hold."""

    flow: str
    held_tasks: int


@dataclass(frozen=True, slots=True)
class StuckWorkflows:
    """Workflows of a queue that run without recording a step, or wait for an event without a deadline."""

    queue: str
    reason: str
    workflows: int


@dataclass(frozen=True, slots=True)
class StatusSnapshot:
    """What `fencepost status` shows, in a terminal, as JSON and on a page."""

    at: datetime
    queues: tuple[QueueStatus, ...]
    workers: tuple[Workers, ...]
    leases: tuple[LeaseStatus, ...]
    leases_held: int
    outbox: tuple[ChannelStatus, ...]
    refusals: tuple[Reason, ...]
    compatible_names: tuple[str, ...] = ()
    """Services that use names of earlier systems, by the settings of the process that looked."""
    unserved: tuple[UnservedWork, ...] = ()
    suspects: tuple[Suspects, ...] = ()
    schedules: tuple[ScheduleStatus, ...] = ()
    """Those with the earliest ticks."""
    flows: tuple[FlowStatus, ...] = ()
    dead_undos: int = 0
    """Jobs that should have undone a step of a workflow, and died."""
    event_waits: int = 0
    """Events that workflows wait for, of the 10,000 oldest workflows that do."""
    stuck_workflows: tuple[StuckWorkflows, ...] = ()
    out_of_service: tuple[OutOfService, ...] = ()
    read_from: ReadAge = PRIMARY

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def refused(self) -> Iterable[Reason]:
        """The reasons that occurred at least once, the most frequent first."""
        return sorted((r for r in self.refusals if r.refused), key=lambda r: (-r.refused, r.reason))


def read_board(connection: Reader) -> StatusSnapshot:
    """Read each view in its own statement. The system changes meanwhile: the result is not consistent."""
    read_from = run(connection, read_age())
    with connection.cursor(row_factory=class_row(QueueStatus)) as cursor:
        queues = cursor.execute(
            """select queue, pending, dispatched, running, dead, oldest_waiting_seconds, paused, due
               from fencepost.queue_status order by queue"""
        ).fetchall()
    with connection.cursor(row_factory=class_row(Workers)) as cursor:
        # The workers' leases, as `jobs.worker_registry` names them.
        workers = cursor.execute(
            """select case when resource like 'job-worker:alone:%' then 'postgresql' else 'redis' end drive,
                 count(distinct owner) as workers
               from fencepost.lease_status
               where resource >= 'job-worker:' and resource < 'job-worker;' and held group by 1 order by 1"""
        ).fetchall()
    with connection.cursor(row_factory=class_row(UnservedWork)) as cursor:
        unserved = cursor.execute(
            """select reason, queue, kind, schedule, missing, waiting, oldest_seconds, message
               from fencepost.unserved_work order by waiting desc, reason, queue, kind, schedule, missing
               limit %s""",
            (UNSERVED_MAX,),
        ).fetchall()
    with connection.cursor(row_factory=class_row(LeaseStatus)) as cursor:
        leases = cursor.execute(
            """select resource, owner, token, acquired_at, renewed_at, expires_at, held
               from fencepost.lease_status order by held desc, expires_at desc, resource limit %s""",
            (LEASES_MAX,),
        ).fetchall()
    held = connection.execute("select count(*) from fencepost.lease_status where held").fetchone()
    with connection.cursor(row_factory=class_row(ChannelStatus)) as cursor:
        outbox = cursor.execute(
            """select channel, queued, sending, failed, unknown, parked, lag_seconds
               from fencepost.outbox_status order by channel"""
        ).fetchall()
    with connection.cursor(row_factory=class_row(Suspects)) as cursor:
        suspects = cursor.execute(
            "select queue, count(*) as suspects from fencepost.suspects group by queue order by queue"
        ).fetchall()
    with connection.cursor(row_factory=class_row(OutOfService)) as cursor:
        out_of_service = cursor.execute(
            """select target, state, actor, reason, held_at
               from fencepost.worker_holds order by state, held_at desc, target limit %s""",
            (UNSERVED_MAX,),
        ).fetchall()
    event_waits, stuck = _read_workflows(connection)
    return StatusSnapshot(
        at=datetime.now(UTC),
        queues=tuple(queues),
        workers=tuple(workers),
        unserved=tuple(unserved),
        leases=tuple(leases),
        leases_held=int(held[0]) if held else 0,
        outbox=tuple(outbox),
        suspects=tuple(suspects),
        schedules=_read_schedules(connection),
        flows=_read_flows(connection),
        dead_undos=_count_dead_undos(connection),
        event_waits=event_waits,
        stuck_workflows=stuck,
        out_of_service=tuple(out_of_service),
        refusals=read_reasons(connection),
        read_from=read_from,
    )


def read_reasons(connection: Reader) -> tuple[Reason, ...]:
    with connection.cursor(row_factory=class_row(Reason)) as cursor:
        return tuple(
            cursor.execute(
                """select reason, sqlstate, refused, meaning, remedy
                   from fencepost.refusal_status order by sqlstate"""
            ).fetchall()
        )


def _read_schedules(connection: Reader) -> tuple[ScheduleStatus, ...]:
    with connection.cursor(row_factory=class_row(ScheduleStatus)) as cursor:
        return tuple(
            cursor.execute(
                """select name as schedule,
                     greatest(0, extract(epoch from now - next_tick))::float8 as late_seconds
                   from fencepost.schedule_next(%s) where not paused""",
                (SCHEDULES_MAX,),
            ).fetchall()
        )


def _read_flows(connection: Reader) -> tuple[FlowStatus, ...]:
    """A database with the kernel alone has no flows. Whether a flow has ended is read only when no task is
    held."""
    found = connection.execute("select to_regclass('fencepost.flows') is not null").fetchone()
    if found is None or not found[0]:
        return ()
    with connection.cursor(row_factory=class_row(FlowStatus)) as cursor:
        return tuple(
            cursor.execute(
                """select f.name as flow, h.held_tasks
                   from (select name from fencepost.flows where draining_at is null order by name limit %s) f,
                     lateral (select count(*) as held_tasks from fencepost.flow_holders(f.name)
                              where held and resource not like '%%/slot/%%') h
                   where h.held_tasks > 0 or not coalesce(
                     (select bool_and((mark.value ->> 'ended')::boolean)
                      from fencepost.flow_frontiers(f.name) t, jsonb_each(t.frontier) mark), false)""",
                (FLOWS_MAX,),
            ).fetchall()
        )


def _count_dead_undos(connection: Reader) -> int:
    found = connection.execute(
        """select count(*) from (select headers from fencepost.dead_letters order by job_id desc limit %s) d
           where headers ? 'undo_of'""",
        (DEAD_MAX,),
    ).fetchone()
    return int(found[0]) if found else 0


def _read_workflows(connection: Reader) -> tuple[int, tuple[StuckWorkflows, ...]]:
    found = connection.execute("select waiting, stuck from fencepost.workflow_status()").fetchone()
    assert found is not None, "a function that returns one row"
    return int(found[0]), tuple(StuckWorkflows(**one) for one in found[1])
