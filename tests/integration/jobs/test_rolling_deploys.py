"""Old and new workers side by side: what a worker does not serve it never takes, and nothing is lost."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.jobs._fetcher import Fetcher
from fencepost.jobs._handler import Handlers
from fencepost.jobs._worker import Worker
from fencepost.jobs.job import Job
from fencepost.kernel._job_need import Serves
from tests.integration.jobs.harness import JobHarness, open_harness, quick

SLOW = quick(reclaim_interval_seconds=600, sweep_interval_seconds=600, poll_seconds=2, lease_seconds=60)
"""A job that waited for a reclaim or a sweep would miss every deadline of these tests."""
MANY = 30


@dataclass
class Deploy:
    """Two releases of one application on one database. `new` is also what the tests submit with."""

    harness: JobHarness
    old: Fencepost
    new: Fencepost
    is_async: bool
    ran: list[tuple[str, int]]
    """Which release ran which job."""

    def declare(self, release: Literal["old", "new"], kind: str, **options: Any) -> Any:
        """A handler of one argument, in the form of this test."""
        ran, client = self.ran, getattr(self, release)

        async def run(job: Job, x: int) -> None:
            ran.append((release, job.id))

        def run_in_thread(job: Job, x: int) -> None:
            ran.append((release, job.id))

        return client.job("letters", kind=kind, **options)(run if self.is_async else run_in_thread)

    def declare_coloured(self, release: Literal["old", "new"], kind: str, **options: Any) -> Any:
        """The same in the next release: with an argument more."""
        ran, client = self.ran, getattr(self, release)

        async def run(job: Job, x: int, colour: str = "red") -> None:
            ran.append((f"{release} {colour}", job.id))

        def run_in_thread(job: Job, x: int, colour: str = "red") -> None:
            ran.append((f"{release} {colour}", job.id))

        return client.job("letters", kind=kind, **options)(run if self.is_async else run_in_thread)

    async def submit(self, handler: Any, count: int = MANY, **more: Any) -> list[int]:
        async with self.new.transaction() as tx:
            return [
                one.job_id for one in await handler.submit_many(tx, [{"x": x, **more} for x in range(count)])
            ]

    def counted(self, job_ids: Sequence[int]) -> set[tuple[str, int, int]]:
        """State, attempts and tries, each once."""
        return set(
            self.harness.rows(
                "select state, attempt, tries from fencepost.jobs where job_id = any(%s)", (list(job_ids),)
            )
        )

    async def until_ended(self, job_ids: Sequence[int]) -> None:
        await self.harness.until(
            "the jobs have ended",
            lambda: (
                self.harness.value(
                    "select count(*) from fencepost.job_finished where job_id = any(%s)", (list(job_ids),)
                )
                == len(job_ids)
            ),
        )


@asynccontextmanager
async def working(client: Fencepost, *, offers: Sequence[str] = (), **changes: Any) -> AsyncGenerator[Worker]:
    worker = client.jobs.worker(SLOW.model_copy(update=changes), offers=offers)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 60)


@pytest.fixture(params=["redis", "alone"])
def reached(request: pytest.FixtureRequest, redis_url: str) -> str | None:
    return redis_url if request.param == "redis" else None


@pytest.fixture(params=["async", "sync"])
async def deploy(
    request: pytest.FixtureRequest, database: Database, reached: str | None
) -> AsyncIterator[Deploy]:
    async with (
        open_harness(database, reached) as harness,
        Fencepost(database.url, redis_url=reached, settings=harness.fp.settings) as new,
    ):
        yield Deploy(harness, harness.fp, new, request.param == "async", [])


async def test_a_new_kind_in_an_old_queue_starts_on_the_new_worker(deploy: Deploy) -> None:
    deploy.declare("old", "greet")
    deploy.declare("new", "greet")
    part = deploy.declare("new", "part")
    async with working(deploy.old), working(deploy.new):
        job_ids = await deploy.submit(part)
        await deploy.until_ended(job_ids)
    assert deploy.counted(job_ids) == {("finished", 1, 1)}
    assert {release for release, _ in deploy.ran} == {"new"}


async def test_a_new_kind_keeps_no_old_one_from_the_old_worker(deploy: Deploy) -> None:
    deploy.declare("old", "greet")
    greet = deploy.declare("new", "greet")
    part = deploy.declare("new", "part")
    strange = await deploy.submit(part)
    known = await deploy.submit(greet)
    async with working(deploy.old, concurrency=2):
        await deploy.until_ended(known)
        assert deploy.counted(strange) == {("pending", 0, 0)}
        async with working(deploy.new):
            await deploy.until_ended(strange)
    assert deploy.counted(known) == deploy.counted(strange) == {("finished", 1, 1)}


async def test_a_new_argument_goes_to_the_worker_that_knows_it(deploy: Deploy) -> None:
    deploy.declare("old", "greet")
    greet = deploy.declare_coloured("new", "greet")
    async with working(deploy.old):
        coloured = await deploy.submit(greet, colour="blue")
        plain = await deploy.submit(greet)
        # The default is not in the payload: the old worker runs it.
        await deploy.until_ended(plain)
        assert {release for release, _ in deploy.ran} == {"old"}
        assert deploy.counted(coloured) <= {("pending", 0, 0), ("dispatched", 0, 0)}
        async with working(deploy.new):
            await deploy.until_ended(coloured)
    assert deploy.counted(coloured) == {("finished", 1, 1)}
    assert {release for release, job_id in deploy.ran if job_id in coloured} == {"new blue"}


async def test_a_handler_may_ignore_arguments_that_it_does_not_know(deploy: Deploy) -> None:
    deploy.declare("old", "greet", unknown_arguments="ignore")
    greet = deploy.declare_coloured("new", "greet")
    job_ids = await deploy.submit(greet, colour="blue")
    async with working(deploy.old):
        await deploy.until_ended(job_ids)
    assert deploy.counted(job_ids) == {("finished", 1, 1)}


async def test_a_job_that_needs_an_ability_runs_where_it_is_offered(deploy: Deploy) -> None:
    deploy.declare("old", "greet")
    greet = deploy.declare("new", "greet").options(headers={"needs": ["gpu"]})
    async with working(deploy.old), working(deploy.new, offers=["gpu", "disk"]):
        job_ids = await deploy.submit(greet)
        await deploy.until_ended(job_ids)
    assert deploy.counted(job_ids) == {("finished", 1, 1)}
    assert {release for release, _ in deploy.ran} == {"new"}


async def test_what_waits_for_the_next_release_is_told(deploy: Deploy) -> None:
    deploy.declare("old", "greet")
    greet, part = deploy.declare_coloured("new", "greet"), deploy.declare("new", "part")

    def told() -> set[str]:
        return {message for (message,) in deploy.harness.rows("select message from fencepost.unserved_work")}

    await deploy.submit(greet, 3, colour="blue")
    await deploy.submit(part, 2)
    assert told() == {"queue letters: 5 waiting, no worker serves it"}
    async with working(deploy.old):
        expected = {
            "queue letters: 3 waiting, kind greet waits for workers that know argument colour",
            "queue letters: 2 waiting, no worker has a handler for kind part",
        }
        await deploy.harness.until("both are told", lambda: told() == expected)
        async with working(deploy.new):
            await deploy.harness.until_all_ended()
    assert told() == set()


async def test_a_planted_bug_leaves_what_was_set_aside_to_nobody(
    harness: JobHarness, database: Database, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the first test sees when a worker that reads streams does not claim what is in none."""
    looked = asyncio.Event()

    async def forget(self: Fetcher, queue: str) -> bool:
        looked.set()
        return False

    monkeypatch.setattr(Fetcher, "claim_set_aside", forget)
    async with Fencepost(database.url, redis_url=redis_url, settings=harness.fp.settings) as new:
        deploy = Deploy(harness, harness.fp, new, is_async=True, ran=[])
        deploy.declare("old", "greet")
        part = deploy.declare("new", "part")
        job_ids = await deploy.submit(part)
        async with working(deploy.old):
            await harness.until(
                "all are set aside",
                lambda: harness.value("select count(need_id) from fencepost.job_waiting") == MANY,
            )
            async with working(deploy.new):
                await asyncio.wait_for(looked.wait(), 60)
    assert deploy.counted(job_ids) == {("pending", 0, 0)}


async def test_a_planted_bug_buries_what_an_old_worker_does_not_know(
    lonely_harness: JobHarness, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test of a new argument sees when a worker says that it knows every argument."""
    right = Handlers.serves

    def boast(self: Handlers, offers: Sequence[str] = ()) -> Serves:
        return Serves(dict.fromkeys(right(self).kinds), offers)

    monkeypatch.setattr(Handlers, "serves", boast)
    async with Fencepost(database.url, settings=lonely_harness.fp.settings) as new:
        deploy = Deploy(lonely_harness, lonely_harness.fp, new, is_async=True, ran=[])
        deploy.declare("old", "greet")
        job_ids = await deploy.submit(deploy.declare_coloured("new", "greet"), colour="blue")
        async with working(deploy.old):
            await deploy.until_ended(job_ids)
    assert {state for state, _, _ in deploy.counted(job_ids)} == {"dead"}
