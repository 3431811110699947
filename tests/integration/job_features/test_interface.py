"""What an application does with jobs: search, wait, reschedule, override; and what ends a process."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from fencepost import (
    AlreadyFinished,
    Cancelled,
    Fencepost,
    InvalidInput,
    Job,
    JobFailed,
    Mismatch,
    NotFound,
    Unique,
    exponential,
)
from fencepost.embedded import Database
from fencepost.jobs._autoscaling import wanted_workers
from fencepost.kernel import _batch as kernel_batch
from fencepost.kernel import job as kernel_job
from fencepost.testing import Clock
from tests.integration.job_features import computing
from tests.integration.job_features.conftest import Working, quick
from tests.integration.job_features.probes import Probes


async def test_jobs_are_found_by_tag_and_argument_in_both_forms(fp: Fencepost) -> None:
    @fp.job("mail", tags=("letters",), search_by=("user",))
    async def letter(job: Job, user: int, text: str = "") -> None: ...

    one = await letter.enqueue(user=7, text="dear")
    other = await letter.options(tags=("letters", "import")).enqueue(user=8)
    async with fp.transaction() as tx:
        many = await letter.submit_many(tx, [{"user": 7}, {"user": 9}])

    assert [job.job_id for job in await fp.jobs.search(tags=["letters"], limit=3)] == [
        many[1].job_id,
        many[0].job_id,
        other.job_id,
    ]
    assert [job.job_id for job in await fp.jobs.search(tags=["letters"], before=other.job_id)] == [one.job_id]
    [found] = await fp.jobs.search(tags=["import"], arguments={"user": 8})
    assert (found.job_id, found.kind, found.queue, found.state) == (other.job_id, "letter", "mail", "pending")
    assert (found.arguments["user"], found.tags) == (8, ["import", "letters"])
    with fp.sync() as sync_fp:
        assert [job.job_id for job in sync_fp.jobs.search(arguments={"user": 7})] == [
            many[0].job_id,
            one.job_id,
        ]
    await fp.jobs.cancel(one)
    assert [job.job_id for job in await fp.jobs.search(arguments={"user": 7}, state="cancelled")] == [
        one.job_id
    ]

    with pytest.raises(InvalidInput, match="No job can be found by its argument text") as refused:
        await fp.jobs.search(arguments={"text": "dear"})
    assert refused.value.field == "text"
    with pytest.raises(InvalidInput, match="a search names one"):
        await fp.jobs.search()


async def test_a_schedule_submits_with_the_terms_of_its_handler(
    fp: Fencepost, database: Database, working: Working, probes: Probes
) -> None:
    @fp.every(1)
    @fp.job("mail", unique=Unique(period=3600), tags=("nightly",))
    async def nightly(job: Job) -> None: ...

    async with working(fp):
        await probes.until(
            "it has fired twice", lambda: probes.value("select count(*) from fencepost.job_tick") >= 2
        )
    assert [job.tags for job in await fp.jobs.search(tags=["nightly"])] == [["nightly"]], "one job an hour"


async def test_wait_answers_however_a_job_ends(fp: Fencepost, working: Working) -> None:
    @fp.job("mail", tries=1)
    async def one(job: Job, fails: bool) -> str:
        if fails:
            raise ValueError("no")
        return "yes"

    good, bad = await one.enqueue(fails=False), await one.enqueue(fails=True)
    gone = await one.options(delay=3600).enqueue(fails=False)
    await fp.jobs.cancel(gone)
    async with working(fp):
        ends = [await fp.jobs.wait(job, within=60) for job in (good, bad, gone)]
    assert [(end.state, end.result, end.error) for end in ends] == [
        ("finished", "yes", None),
        ("dead", None, "ValueError: no"),
        ("cancelled", None, None),
    ]
    with pytest.raises(JobFailed):
        await fp.jobs.result(bad)
    with pytest.raises(NotFound):
        await fp.jobs.wait(10**9)
    waiting = await one.options(delay=3600).enqueue(fails=False)
    with pytest.raises(TimeoutError, match="it is pending"):
        await fp.jobs.wait(waiting, within=0.01)
    with fp.sync() as sync_fp:
        assert sync_fp.jobs.wait(good, within=0).state == "finished"


async def test_a_waiting_job_gets_another_time(fp: Fencepost, database: Database, probes: Probes) -> None:
    @fp.job("mail")
    async def one(job: Job) -> None: ...

    job = await one.enqueue()
    later = datetime.now(UTC) + timedelta(hours=1)
    assert await fp.jobs.reschedule(job, run_at=later, actor="carol") == later
    assert (await fp.testing.drain()).jobs == []
    assert ("rescheduled", "carol") in probes.events("job", job.job_id)
    with fp.sync() as sync_fp:
        sync_fp.jobs.reschedule(job, delay=0)
    assert (await fp.testing.drain()).finished == 1


async def test_reschedule_refuses_with_the_reason(fp: Fencepost) -> None:
    @fp.job("mail", tries=1)
    async def one(job: Job, how: str) -> None:
        if how == "running":
            with pytest.raises(Mismatch) as refused:
                await fp.jobs.reschedule(job.id, delay=5)
            assert refused.value.seen["state"] == "running"
        if how == "dead":
            raise ValueError

    jobs = {how: await one.enqueue(how=how) for how in ("running", "dead", "cancelled")}
    await fp.jobs.cancel(jobs["cancelled"])
    drained = await fp.testing.drain()
    assert (drained.finished, drained.dead) == (1, 1)
    for how, reason in (("running", AlreadyFinished), ("dead", Mismatch), ("cancelled", Cancelled)):
        with pytest.raises(reason):
            await fp.jobs.reschedule(jobs[how], delay=5)
    with pytest.raises(NotFound):
        await fp.jobs.reschedule(10**9, delay=5)
    async with fp.transaction() as tx:
        [member], callback = await one.submit_many(tx, [{"how": ""}]), await one.submit(tx, how="")
        await fp.jobs.batch(tx, [member], then=callback)
    with pytest.raises(Mismatch):
        await fp.jobs.reschedule(callback, delay=5)
    with pytest.raises(InvalidInput, match="Give run_at or delay"):
        await fp.jobs.reschedule(member)
    with pytest.raises(InvalidInput, match="time zone"):
        await fp.jobs.reschedule(member, run_at=datetime(2030, 1, 1))  # noqa: DTZ001


async def test_a_worker_runs_a_job_under_the_options_of_its_submission(
    fp: Fencepost, working: Working, probes: Probes
) -> None:
    @fp.job("mail", timeout=3600, tries=1)
    async def slow(job: Job) -> None:
        await asyncio.Event().wait()

    @fp.job("mail", retry=exponential(first_seconds=3600), tries=2)
    async def flaky(job: Job) -> int:
        if job.tries == 1:
            raise ValueError
        return job.tries

    async with working(fp):
        job = await slow.options(timeout=0.05).enqueue()
        assert (await fp.jobs.wait(job, within=60)).error == (
            "TimeoutError: the handler did not finish within 0.05 s"
        )
        quickly = await flaky.options(retry=exponential(first_seconds=0, jitter=0)).enqueue()
        assert await fp.jobs.result(quickly, within=60) == 2
        elsewhere = await flaky.options(queue="mail", priority="urgent", tries=1, lease=7).enqueue()
        assert (await fp.jobs.wait(elsewhere, within=60)).state == "dead"
    assert (
        probes.value(
            "select extract(epoch from lease)::integer from fencepost.jobs where job_id = %s",
            elsewhere.job_id,
        )
        == 7
    )


async def test_options_that_cannot_be_read_bury_the_job_alone(fp: Fencepost, working: Working) -> None:
    @fp.job("mail")
    async def one(job: Job) -> str:
        return "ran"

    async with working(fp):
        bad = await fp.run(kernel_job.submit("mail", "one", {}, headers={"options": {"retry": 7}}))
        good = await one.enqueue()
        assert "the header options cannot be read" in str((await fp.jobs.wait(bad, within=60)).error)
        assert await fp.jobs.result(good, within=60) == "ran"


async def test_a_submission_replaces_the_job_that_waits(fp: Fencepost) -> None:
    seen: list[str] = []

    @fp.job("search", unique=Unique(args=("document",), replace=("payload", "run_at")))
    async def index(job: Job, document: int, version: str) -> None:
        seen.append(version)

    first = await index.options(delay=3600).enqueue(document=7, version="a")
    again = await index.enqueue(document=7, version="b")
    assert (again.job_id, again.created, again.replaced) == (first.job_id, False, True)
    other = await index.enqueue(document=8, version="c")
    assert (other.created, other.replaced) == (True, False)
    await fp.testing.drain()
    assert sorted(seen) == ["b", "c"]


async def test_a_callback_reads_the_results_of_its_batch(
    fp: Fencepost, working: Working, probes: Probes
) -> None:
    @fp.job("pages", tries=1)
    async def fetch(job: Job, page: int) -> dict[str, int]:
        if page == 3:
            raise ValueError("no page 3")
        return {"page": page}

    @fp.job("pages")
    def publish(job: Job) -> list[list[object]]:
        return [[one.state, one.result, one.error] for one in job.batch_results_sync()]

    @fp.job("pages")
    async def alone(job: Job) -> None:
        await job.batch_results()

    async with fp.transaction() as tx:
        pages = await fetch.submit_many(tx, [{"page": page} for page in range(1, 5)])
        after = await publish.submit(tx)
        await fp.jobs.batch(tx, pages, then=after)
    await fp.jobs.cancel(pages[3])
    async with working(fp):
        assert await fp.jobs.result(after, within=60) == [
            ["finished", {"page": 1}, None],
            ["finished", {"page": 2}, None],
            ["dead", None, "ValueError: no page 3"],
            ["cancelled", None, None],
        ]
        lonely = await alone.options(tries=1).enqueue()
        assert "is no callback of a batch" in str((await fp.jobs.wait(lonely, within=60)).error)


async def test_results_are_kept_until_the_callback_has_read_them(
    fp: Fencepost, database: Database, clock: Clock
) -> None:
    @fp.job("pages")
    async def fetch(job: Job, page: int) -> int:
        return page

    @fp.job("after")
    async def publish(job: Job) -> list[int]:
        return [one.result for one in await job.batch_results()]

    async with fp.transaction() as tx:
        pages = await fetch.submit_many(tx, [{"page": 1}, {"page": 2}])
        after = await publish.submit(tx)
        await fp.jobs.batch(tx, pages, then=after)
    await fp.testing.drain(["pages"])
    clock.advance(10 * 86_400)
    assert await fp.run(kernel_job.prune(86_400, 100)) == 0
    assert await fp.run(kernel_batch.prune(86_400, 100)) == 0
    assert (await fp.testing.drain()).finished == 1
    assert await fp.jobs.result(after, within=0) == [1, 2]
    clock.advance(10 * 86_400)
    assert await fp.run(kernel_job.prune(86_400, 100)) == 3
    assert await fp.run(kernel_batch.prune(86_400, 100)) == 1


async def test_a_worker_ends_when_its_process_has_run_its_jobs(fp: Fencepost) -> None:
    @fp.job("mail")
    async def one(job: Job) -> None: ...

    async with fp.transaction() as tx:
        jobs = await one.submit_many(tx, [dict[str, int]()] * 10)
    await asyncio.wait_for(fp.jobs.worker(quick(max_jobs_per_process=4, concurrency=3)).run(), 60)
    outcomes = [await fp.jobs.get(job) for job in jobs]
    assert sum(outcome is not None and outcome.state == "finished" for outcome in outcomes) == 4


async def test_a_handler_process_is_replaced_after_its_jobs(database: Database, working: Working) -> None:
    async with Fencepost(database.url, job_settings=quick()) as fp:
        for handler in computing.fp.handlers:
            fp.handlers.add(handler)
        async with working(fp, processes=1, max_jobs_per_process=6):
            async with fp.transaction() as tx:
                asked = [await computing.who.submit(tx) for _ in range(6)]
            pids = [await fp.jobs.result(job, within=60) for job in asked]
        assert len(set(pids)) == 1


async def test_a_worker_says_how_many_it_wants(fp: Fencepost, working: Working, probes: Probes) -> None:
    release = asyncio.Event()

    @fp.job("mail")
    async def one(job: Job) -> None:
        await release.wait()

    def wanted() -> float | None:
        return fp.metrics.registry.get_sample_value("fencepost_jobs_wanted_workers", {"queue": "mail"})

    async with fp.transaction() as tx:
        await one.submit_many(tx, [dict[str, int]()] * 20)
    async with working(fp, concurrency=5, scale_seconds=1):
        await probes.until("it wants more than itself", lambda: (wanted() or 0) >= 4)
        release.set()
        await probes.until("it wants none", lambda: wanted() == 0)


@pytest.mark.parametrize(
    ("due", "running", "run_seconds", "wanted"),
    [
        (0, 0, 1.0, 0),
        (1, 0, 0.001, 1),
        (0, 1, 9.0, 1),
        (0, 10, 9.0, 1),
        (0, 11, 9.0, 2),
        (600, 10, 1.0, 2),
        (6000, 0, 1.0, 10),
    ],
)
def test_wanted_workers(due: int, running: int, run_seconds: float, wanted: int) -> None:
    found = wanted_workers(
        due=due, running=running, run_seconds=run_seconds, concurrency=10, within_seconds=60
    )
    assert found == wanted
