"""Jobs that succeed, fail, die and come again by schedule; and a worker that returns from the dead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fencepost.cli.demo import QUEUES, DemoContext, DemoPart
from fencepost.cli.demo._processes import require_alive, worker_processes
from fencepost.embedded._process import KeptProcess
from fencepost.kernel.call import Call, each, scalar
from fencepost.transaction import Transaction

QUEUE, ZOMBIE_QUEUE = QUEUES
NAMES = ("Ada", "Bob", "Cyd", "Dan", "Eve", "Fay")
STAGE_SECONDS = 60.0
AGAIN_SECONDS = (8.0, 15.0)
DEATHS, REPORTS = 0.25, 0.25


async def _run_jobs(context: DemoContext) -> None:
    async with worker_processes(context, QUEUE, ["worker"]) as processes:
        while True:
            require_alive(context, processes)
            async with context.fp.transaction() as tx:
                await _submit_some(context, tx)
            await context.pause(0.5, 1.5)


async def _submit_some(context: DemoContext, tx: Transaction) -> None:
    """The next few jobs: most succeed, some fail before they do, a few die."""
    from fencepost.cli.demo import application as app  # noqa: PLC0415 - Makes a client from the environment.

    chance = context.chance
    for _ in range(chance.randrange(1, 4)):
        await app.thumbnail.submit(
            tx, image=chance.randrange(1000), seconds=round(chance.uniform(0.02, 0.8), 2)
        )
    await app.letter.submit_many(tx, [{"to": chance.choice(NAMES)} for _ in range(chance.randrange(1, 5))])
    await app.payment.submit(tx, customer=chance.choice(NAMES), fails=chance.choice((0, 0, 1, 3)))
    if chance.random() < DEATHS:
        await app.import_file.submit(tx, file=f"{chance.choice(NAMES)}.csv", broken=chance.random() < 0.5)
    if chance.random() < REPORTS:
        await app.report.submit(tx, pages=chance.randrange(3, 12))


async def _run_zombies(context: DemoContext) -> None:
    async with worker_processes(context, ZOMBIE_QUEUE, ("zombie-a", "zombie-b")) as processes:
        while True:
            require_alive(context, processes)
            await _stage(context, processes)
            await context.pause(*AGAIN_SECONDS)


async def _stage(context: DemoContext, processes: Sequence[KeptProcess]) -> None:
    """Stop the worker that holds the job past its lease, let the other take over, and wake the first."""
    from fencepost.cli.demo.application import withdrawal  # noqa: PLC0415 - As above.

    async with context.fp.transaction() as tx:
        job_id = (await withdrawal.submit(tx, account="demo-1")).job_id

    async def holder() -> KeptProcess | None:
        owner = await context.fp.run(_owner_of(job_id))
        return next((one for one in processes if owner and f":{one.pid}:" in owner), None)

    async def state() -> str | None:
        found = await context.fp.run(_state_of(job_id))
        return found if found in ("finished", "dead") else None

    zombie = await context.until(holder, within=STAGE_SECONDS)
    if zombie is None:
        context.say(
            f"Job {job_id} was not claimed within {STAGE_SECONDS:g} s.", path=f"/console/jobs/{job_id}"
        )
        return
    zombie.pause()
    try:
        context.say(f"Worker {zombie.pid} holds job {job_id} and is stopped (SIGSTOP) past its lease.")
        await context.until(state, within=STAGE_SECONDS)
    finally:
        zombie.resume()
    context.say(f"Another worker has finished job {job_id}. Worker {zombie.pid} continues (SIGCONT).")

    async def refusal() -> dict[str, Any] | None:
        found: list[dict[str, Any]] = await context.fp.run(_refusals_of(job_id))
        return found[0] if found else None

    refused = await context.until(refusal, within=STAGE_SECONDS)
    if refused is None:
        context.say(f"Worker {zombie.pid} tried to write nothing within {STAGE_SECONDS:g} s.")
        return
    context.say(
        f"The database refused worker {zombie.pid}: {refused['reason']} for its {refused['op']} "
        f"of attempt {refused['attempt']}, when job {job_id} was {refused['seen']}.",
        path=f"/console/jobs/{job_id}",
    )


def _owner_of(job_id: int) -> Call[str | None]:
    # One row whether it runs or not.
    return Call(
        "select max(owner) from fencepost.jobs where job_id = %s::bigint and state = 'running'"
        " and progress is not null",
        (job_id,),
        scalar,
    )


def _state_of(job_id: int) -> Call[str]:
    return Call("select max(state) from fencepost.jobs where job_id = %s::bigint", (job_id,), scalar)


def _refusals_of(job_id: int) -> Call[list[dict[str, Any]]]:
    return Call(
        "select reason, attempted ->> 'op', (attempted ->> 'attempt')::bigint, seen ->> 'state'"
        " from fencepost.refusals where noun = 'job' and subject = %s::text and attempted ? 'attempt'"
        " order by attempted ->> 'op' = 'renew', refusal_id",
        (str(job_id),),
        each(lambda *found: dict(zip(("reason", "op", "attempt", "seen"), found, strict=True))),
    )


async def _run_both(context: DemoContext) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_run_jobs(context))
        group.create_task(_run_zombies(context))


PART = DemoPart(
    name="jobs",
    about="jobs that succeed, fail and die; a schedule; a worker that is stopped past its lease and refused",
    path="/console/jobs?queue=demo",
    run=_run_both,
    counts="""
        select c.name, c.count from (
          select 1, 'finished', count(*) from fencepost.jobs where queue = 'demo' and state = 'finished'
          union all select 2, 'dead', count(*) from fencepost.jobs where queue = 'demo' and state = 'dead'
          union all select 3, 'retried', count(*) from fencepost.jobs
            where queue = 'demo' and kind = 'demo.payment' and tries > 1
          union all select 4, 'scheduled', count(*) from fencepost.jobs
            where queue = 'demo' and kind = 'demo.heartbeat'
          union all select 5, 'schedules', count(*) from fencepost.schedules where queue = 'demo'
          union all select 6, 'late writes refused', count(*) from fencepost.refusals r
            join fencepost.jobs j on r.noun = 'job' and r.subject = j.job_id::text
            where j.queue = 'demo-zombie' and r.attempted ? 'attempt'
        ) c (place, name, count) order by c.place""",
    others="""
        select exists (select 1 from fencepost.jobs where queue <> all (%(queues)s))
            or exists (select 1 from fencepost.schedules where queue <> all (%(queues)s))
            or exists (select 1 from fencepost.outbox_messages where channel <> all (%(channels)s))""",
    clean=Path(__file__).parent / "jobs.sql",
    queues=QUEUES,
)
