"""Jobs of a worker that was lost with several: a worker inside a program drains, and runs them itself."""

import asyncio

import pytest

from fencepost.cli._job_queries import read_job
from fencepost.cli._status_metrics import StatusCollector
from fencepost.cli._status_snapshot import read_board
from fencepost.jobs.job import Job
from fencepost.kernel import job as kernel_job
from fencepost.testing import Signals
from tests.integration.jobs.harness import JobHarness, quick

LOST = "a worker that was lost"


class Company:
    """Which jobs ran beside each other, and a door behind which a job waits."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.beside: dict[int, set[int]] = {}
        self.door = asyncio.Event()

    async def hold(self, job: Job, *, wait: bool) -> None:
        self.running.add(job.id)
        for number in self.running:
            self.beside.setdefault(number, set()).update(self.running - {number})
        await (self.door.wait() if wait else asyncio.sleep(0))
        self.running.remove(job.id)


@pytest.fixture
def company(harness: JobHarness) -> Company:
    return declare(harness)


def declare(harness: JobHarness) -> Company:
    company = Company()

    @harness.fp.job("default", kind="one", lease=60, tries=2)
    async def one(job: Job, wait: bool = False) -> None:
        await company.hold(job, wait=wait)

    return company


async def submit(harness: JobHarness, count: int, *, wait: bool = False) -> list[int]:
    [one] = harness.fp.handlers
    async with harness.fp.transaction() as tx:
        return [int((await one.submit(tx, wait=wait)).job_id) for _ in range(count)]


async def lose(harness: JobHarness, count: int) -> list[int]:
    """Jobs that a worker held when it was lost."""
    [one] = harness.fp.handlers
    async with harness.fp.transaction() as tx:
        # Claimed before a worker sees them.
        job_ids = [int((await one.submit(tx)).job_id) for _ in range(count)]
        await tx.run(kernel_job.claim_many(job_ids, LOST))
    reclaimed = await harness.fp.run(kernel_job.reclaim_owner(LOST, "its process was killed by SIGKILL"))
    assert [job.charged for job in reclaimed] == [False] * count
    return job_ids


async def until_draining(harness: JobHarness) -> None:
    await harness.until(
        "a worker makes room for suspects",
        lambda: bool(harness.rows("select from fencepost.job_suspicion where reserved_by is not null")),
    )


async def test_a_worker_runs_suspects_when_its_own_jobs_have_ended_and_claims_nothing_meanwhile(
    harness: JobHarness, company: Company
) -> None:
    [own] = await submit(harness, 1, wait=True)
    with Signals() as signals:
        async with harness.working():
            await harness.until_state(own, "running")
            lost = await lose(harness, 5)
            await until_draining(harness)
            later = await submit(harness, 3)
            for _ in range(3):
                await signals.wait("heartbeat.beat")
            company.door.set()
            await harness.until_all_ended()
    assert company.beside[own] == set()
    for suspect in lost:
        assert company.beside[suspect] <= set(lost) - {suspect}
        assert len(company.beside[suspect]) < 3, "at most half of the group runs together"
    assert {harness.job(job_id).tries for job_id in [*lost, own, *later]} == {1}
    assert harness.events(lost[0]) == ["lost", "cleared"]


async def test_a_worker_without_redis_does_so_too(lonely_harness: JobHarness) -> None:
    company = declare(lonely_harness)
    lost = await lose(lonely_harness, 3)
    own = await submit(lonely_harness, 3)
    async with lonely_harness.working():
        await lonely_harness.until_all_ended()
    for suspect in lost:
        assert company.beside[suspect].isdisjoint(own)


async def test_a_worker_that_drains_for_suspects_can_be_stopped(
    harness: JobHarness, company: Company
) -> None:
    [own] = await submit(harness, 1, wait=True)
    async with harness.working(quick(drain_seconds=0.1)):
        await harness.until_state(own, "running")
        lost = await lose(harness, 2)
        await until_draining(harness)
    assert harness.job(own).tries == 0
    assert [harness.job(job_id).state for job_id in lost] == ["pending"] * 2
    assert len(harness.rows("select from fencepost.suspects")) == 2


async def test_what_a_lost_worker_held_is_counted_as_suspect(harness: JobHarness, company: Company) -> None:
    job_ids = await submit(harness, 2)
    await harness.fp.run(kernel_job.claim_many(job_ids, LOST, lease_seconds=0.01))
    async with harness.working():
        await harness.until_all_ended()
    assert harness.metric("fencepost_jobs_reclaims_total", status="suspect", reason="worker_lost") == 2


async def test_people_are_told_of_a_suspicion_in_plain_words(harness: JobHarness, company: Company) -> None:
    first, _ = await lose(harness, 2)
    with harness.database.connect() as connection:
        shown = read_job(connection, first)
        families = StatusCollector(lambda: read_board(connection)).collect()
        told = {family.name: family.samples for family in families}
    [metric] = told["fencepost_jobs_suspects"]
    assert shown["run_at"] is None
    assert shown["suspicion"].startswith("suspect since ")
    assert shown["suspicion"].endswith(
        f"its worker {LOST} was lost beside other jobs; tries returned so far: 1; "
        "it waits to run apart from other work"
    )
    assert (metric.name, metric.labels, metric.value) == ("fencepost_jobs_suspects", {"queue": "default"}, 2)
