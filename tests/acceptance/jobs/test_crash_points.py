"""A worker dies, or stands still past its leases, at every named crash point: nothing is lost or doubled.

The victim works alone until it comes to the point. Then the database's clock passes the end of its leases,
and another worker does what is left. A victim that stood still is woken after that, and goes on as if nothing
had happened.
"""

from pathlib import Path

import pytest

import fencepost
from fencepost.testing import Child, Clock, points_in
from tests.acceptance.jobs import worker_processes
from tests.acceptance.jobs.env import JobsEnv

ELSEWHERE = ("jobs.schedule.", "jobs.chunk")
"""Struck by tests of their own: of schedules, and tests/integration/job_features/test_chunks.py."""
POINTS = sorted(
    str(point.name)
    for point in points_in(Path(fencepost.__file__).parent / "jobs")
    if point.hook == "crash_point" and not str(point.name).startswith(ELSEWHERE)
)
WITHOUT_REDIS = frozenset({"jobs.claim_next.before_commit", "jobs.claim_next.after_commit"})
ON_NOTICE = "jobs.notice."
WHEN_LEAVING = frozenset({"jobs.give_back.before_commit", "jobs.give_back.after_commit"})

# Standing still is slower than dying: these are always tried, and the others with --full.
ALWAYS_STOPPED = frozenset(
    {
        "jobs.dispatch.after_add",
        "jobs.claim.after_commit",
        "jobs.notice.after_claim",
        "jobs.finish.before_commit",
        "jobs.finish_sync.before_commit",
        "jobs.group.before_commit",
        "jobs.settle.before_finish",
        "jobs.settle.before_leave",
        "jobs.renew.before_commit",
    }
)


def prepare(env: JobsEnv) -> None:
    """Work that leads a worker past every point."""
    for kind in worker_processes.KINDS:
        env.ask(kind, [f"{kind}-{n}" for n in range(3)])
        env.ask(kind, [f"{kind}-stumbling"], fail=1)
        # Long enough for a heartbeat.
        env.ask(kind, [f"{kind}-long"], linger=0.5)
    # An entry that cannot be read.
    env.entry_for("seven")
    # A job that was driven in a life of Redis that is over.
    [wiped] = env.ask("own", ["own-wiped"])
    env.record(wiped, "1-1", "a former life")
    # A job whose entry was delivered to a worker that died before the claim.
    [abandoned] = env.ask("bare", ["bare-abandoned"])
    entry_id = env.entry_for(abandoned)
    env.deliver(entry_id, "long gone", idle_ms=3_600_000)
    # A job that another worker holds, with an entry that the victim has: to be given back when it leaves.
    [held] = env.ask("own", ["own-held"])
    with env.database.connect() as holder:
        holder.execute("select * from fencepost.job_claim(%s, 'somebody')", (held,))
        holder.execute("select * from fencepost.job_renew(%s, 1, 'somebody')", (held,))
    env.deliver(env.entry_for(held), "victim")


def victim(env: JobsEnv, order: str) -> Child:
    point = order.partition(":")[0]
    notice_claims = 4 if point.startswith(ON_NOTICE) else 0
    child = env.child(
        crash=order,
        redis=point not in WITHOUT_REDIS,
        stream_consumer="victim",
        notice_claims=notice_claims,
    )
    if point in WHEN_LEAVING:
        child.line("working")
        child.say("stop")
    return child


@pytest.mark.parametrize("point", POINTS)
async def test_killed_at(point: str, env: JobsEnv, clock: Clock) -> None:
    prepare(env)
    with victim(env, f"{point}:kill") as child:
        child.be_killed(within=60)
    clock.advance(worker_processes.LEASE_SECONDS + 1)
    async with env.survivor():
        await env.until_nothing_is_left()
    env.check()


@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=() if p in ALWAYS_STOPPED else pytest.mark.full) for p in POINTS],
)
async def test_stopped_past_the_lease_at(point: str, env: JobsEnv, clock: Clock) -> None:
    prepare(env)
    with victim(env, f"{point}:stop") as child:
        child.wait_until_stopped(within=60)
        clock.advance(worker_processes.LEASE_SECONDS + 1)
        async with env.survivor():
            await env.until_nothing_is_left()
        env.check()
        child.resume()
        child.say("stop")
        child.succeed(within=60)
    assert env.left() == 0
    env.check()
