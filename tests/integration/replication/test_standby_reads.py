"""Reads that may be old go to a standby, and say how old they are."""

import asyncio
from contextlib import closing
from typing import Any

import psycopg
import pytest

from fencepost import Fencepost, Job, NotFound
from fencepost.cli._live_status import look
from fencepost.embedded._deadline import Deadline
from fencepost.kernel import _lineage as lineage
from fencepost.kernel.drivers import run
from fencepost.settings import Settings
from fencepost_server.console._read_pool import ReadPool
from tests.integration.replication.replicas import Replicas


def settings(pair: Replicas) -> Settings:
    return Settings(database_url=pair.database.url, standby_database_url=pair.successor.url)


def age_on(connection: psycopg.Connection[Any]) -> lineage.ReadAge:
    return run(connection, lineage.read_age())


async def test_results_status_and_pages_are_read_from_the_standby_with_their_age(pair: Replicas) -> None:
    async with Fencepost(pair.database.url, settings=settings(pair)) as fp:

        @fp.job("mail")
        async def mail(_job: Job) -> None: ...

        async with fp.transaction() as tx:
            job = await mail.submit(tx)
        pair.wait_until_caught_up()
        await asyncio.to_thread(_wait_until_replayed, pair, job.job_id)
        polled = await fp.jobs.poll(job)
        assert polled.outcome.state in ("pending", "dispatched")
        assert polled.read_from.is_standby
        assert polled.read_from.age_seconds is not None

        board = await asyncio.to_thread(look, settings(pair))
        assert board.read_from.is_standby
        assert [queue.queue for queue in board.queues] == ["mail"]
        assert board.as_json()["read_from"]["age_seconds"] >= 0

        reading = ReadPool(pair.successor.viewer_url, pool_max=1, statement_seconds=5, connect_seconds=5)
        async with reading.running():
            assert (await reading.age()).is_standby

        with pytest.raises(NotFound):
            await fp.jobs.poll(10**12)


async def test_a_standby_that_is_away_is_no_reason_to_fail(pair: Replicas) -> None:
    quick = settings(pair).model_copy(update={"connect_seconds": 1.0})
    async with Fencepost(pair.database.url, settings=quick) as fp:

        @fp.job("mail")
        async def mail(_job: Job) -> None: ...

        async with fp.transaction() as tx:
            job = await mail.submit(tx)
        pair.standby.kill()
        assert (await fp.jobs.poll(job)).read_from == lineage.PRIMARY


def test_the_age_grows_while_the_standby_hears_nothing(pair: Replicas) -> None:
    with closing(pair.database.connect()) as primary:
        run(primary, lineage.check(None, recover=True))
        assert age_on(primary) == lineage.PRIMARY
    pair.wait_until_caught_up()
    with closing(pair.successor.connect()) as standby:
        Deadline(30, "the mark is there").wait(lambda: age_on(standby).age_seconds is not None)
        before = age_on(standby).age_seconds
        Deadline(30, "it is older").wait(lambda: (age_on(standby).age_seconds or 0) > (before or 0) + 0.2)
        assert "at most" in str(age_on(standby))


def _wait_until_replayed(pair: Replicas, job_id: int) -> None:
    with closing(pair.successor.connect()) as standby:
        Deadline(30, "the standby has the job").wait(
            lambda: (
                standby.execute(
                    "select count(*) from fencepost.job_outcome(%s::bigint)", (job_id,)
                ).fetchone()
                == (1,)
            )
        )
