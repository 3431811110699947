"""Queries about jobs, over the kernel's views."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row, dict_row

from fencepost.cli.database_reader import Reader
from fencepost.cli.exit_codes import ExitCode, UserError
from fencepost.errors import NotFound
from fencepost.kernel import job_queries
from fencepost.kernel.call import Json
from fencepost.kernel.drivers import run


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job in a list."""

    job_id: int
    queue: str
    kind: str
    priority: int
    state: str
    final_status: str | None
    tries: int
    tries_max: int
    submitted_at: datetime
    run_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None
    owner: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class JobPage:
    jobs: tuple[JobRow, ...]
    next_before: int | None

    def as_json(self) -> dict[str, Any]:
        return {"jobs": [asdict(job) for job in self.jobs], "next_before": self.next_before}


@dataclass(frozen=True, slots=True)
class Cause:
    """Dead letters with the same cause."""

    queue: str
    kind: str
    cause: str
    jobs: int
    first_at: datetime
    last_at: datetime
    newest_job_id: int
    newest_error: str | None


def read_page(
    connection: Reader,
    *,
    state: str | None,
    queue: str | None,
    kind: str | None,
    before_id: int | None,
    limit: int,
    tags: Sequence[str] = (),
    arguments: Mapping[str, Json] | None = None,
) -> JobPage:
    """One page, newest first. A full page says where the next one begins."""
    call = job_queries.page(state=state, queue=queue, kind=kind, before_id=before_id, limit=limit)
    if tags or arguments:
        call = job_queries.search_ids(
            tags=tags,
            arguments=arguments,
            state=state,
            queue=queue,
            kind=kind,
            before_id=before_id,
            limit=limit,
        )
    job_ids = run(connection, call)
    with connection.cursor(row_factory=class_row(JobRow)) as cursor:
        jobs = cursor.execute(
            """select job_id, queue, kind, priority, state, final_status, tries, tries_max, submitted_at,
                      run_at, claimed_at, finished_at, owner, error
               from fencepost.jobs where job_id = any (%s) order by job_id desc""",
            (job_ids,),
        ).fetchall()
    return JobPage(tuple(jobs), job_ids[-1] if len(job_ids) == limit else None)


def read_job(connection: Reader, job_id: int) -> dict[str, Any]:
    """Everything about one job."""
    cursor = connection.execute("select * from fencepost.jobs where job_id = %s", (job_id,))
    row = cursor.fetchone()
    if row is None:
        raise UserError(f"There is no job {job_id}: it never existed, or it was pruned.", ExitCode.NOT_FOUND)
    job = dict(zip((column.name for column in cursor.description or ()), row, strict=True))
    suspicion = _suspicion(connection, job_id)
    if suspicion is not None and job["state"] == "pending":
        # Its time never comes: it is claimed in another way.
        job["run_at"] = None
    return {**job, "suspicion": suspicion, "failed_tries": _failed_tries(connection, job_id)}


def _suspicion(connection: Reader, job_id: int) -> str | None:
    """Why the job runs apart from other work, in words; None for a job that does not."""
    row = connection.execute(
        "select lost_owner, since, beside, losses, running from fencepost.suspects where job_id = %s",
        (job_id,),
    ).fetchone()
    if row is None:
        return None
    lost_owner, since, beside, losses, running = row
    lost = "beside other jobs" if beside else "while it ran alone, so the try was charged"
    uncharged = f"; tries returned so far: {losses}" if losses else ""
    now = "runs now" if running else "waits to run"
    return (
        f"suspect since {since:%Y-%m-%d %H:%M:%S %Z}: its worker {lost_owner} was lost {lost}{uncharged}; "
        f"it {now} apart from other work"
    )


def _failed_tries(connection: Reader, job_id: int) -> list[dict[str, Any]]:
    """The tries that failed, as far as the history goes back, each with its traceback."""
    with connection.cursor(row_factory=dict_row) as cursor:
        return cursor.execute(
            """select (detail ->> 'try')::integer as try, token as attempt, at, detail ->> 'error' as error,
                      detail ->> 'traceback' as traceback
               from fencepost.explain(%s) where detail ? 'traceback'""",
            (f"job:{job_id}",),
        ).fetchall()


def read_causes(connection: Reader, *, queue: str | None, kind: str | None) -> list[Cause]:
    with connection.cursor(row_factory=class_row(Cause)) as cursor:
        return cursor.execute(
            """select queue, kind, cause, jobs, first_at, last_at, newest_job_id, newest_error
               from fencepost.dead_causes
               where (%(queue)s::text is null or queue = %(queue)s)
                 and (%(kind)s::text is null or kind = %(kind)s)
               order by jobs desc, queue, kind, cause""",
            {"queue": queue, "kind": kind},
        ).fetchall()


def require_queue(connection: Reader, queue: str) -> None:
    """Raises NotFound for a queue that no live worker serves, that has no settings, and of which no job is
    kept."""
    row = connection.execute(
        """select exists (select 1 from fencepost.queue_status where queue = %(queue)s)
                  or exists (select 1 from fencepost.schedules where queue = %(queue)s)
                  or exists (select 1 from fencepost.job_workers where %(queue)s = any (queues))""",
        {"queue": queue},
    ).fetchone()
    known = row is not None and row[0]
    page = job_queries.page(state=None, queue=queue, kind=None, before_id=None, limit=1)
    if not known and not run(connection, page):
        raise NotFound(
            f"There is no queue {queue}: no live worker serves it, and no job of it was submitted, or all "
            "were pruned. Check the name; --new pauses it before its first job.",
            noun="queue",
            subject=queue,
        )
