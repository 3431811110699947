"""Submitting: when, how many, how urgent, once, under which trace; over any connection."""

import asyncio
import json
import logging
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import asyncpg
import psycopg
import pytest
import structlog
from pydantic import BaseModel
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from fencepost import Fencepost, Handler, InvalidInput, Job
from fencepost.embedded import Database
from fencepost.kernel import job as kernel_job
from fencepost.logs import configure_logging, log_context
from fencepost.testing import Clock
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes


class Point(BaseModel):
    x: int
    y: int


async def test_a_job_waits_for_its_time_on_the_databases_clock(
    fp: Fencepost, clock: Clock, probes: Probes
) -> None:
    @fp.job("work")
    async def one(job: Job, n: int) -> None: ...

    moment = datetime(2030, 1, 1, 12, tzinfo=UTC)
    clock.freeze(moment)
    async with fp.transaction() as tx:
        await one.options(run_at=moment + timedelta(hours=2)).submit(tx, n=1)
        await one.options(delay=90).submit(tx, n=2)
        await one.options(delay=30).submit_many(tx, [{"n": 3}, {"n": 4}])
    due = probes.rows("select payload -> 'n', run_at from fencepost.jobs order by 1")
    assert [(n, (at - moment).total_seconds()) for n, at in due] == [(1, 7200), (2, 90), (3, 30), (4, 30)]


async def test_a_time_without_a_zone_and_two_times_at_once_are_refused(fp: Fencepost) -> None:
    @fp.job("work")
    async def one(job: Job) -> None: ...

    with pytest.raises(InvalidInput, match="time zone"):
        one.options(run_at=datetime(2030, 1, 1))  # noqa: DTZ001 -- this is what is refused
    with pytest.raises(InvalidInput, match="give one"):
        one.options(run_at=datetime.now(UTC), delay=3)


async def test_priorities_have_names(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work", priority="bulk")
    async def one(job: Job) -> None: ...

    async with fp.transaction() as tx:
        await one.submit(tx)
        await one.options(priority="urgent").submit(tx)
        await one.options(priority=2).submit(tx)
    assert probes.column("select priority from fencepost.job order by job_id") == [3, 0, 2]
    with pytest.raises(InvalidInput, match="one of urgent, normal, low, bulk"):
        one.options(priority="now")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType] -- refused at both times


async def test_a_unique_job_is_there_once(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work", unique="{album}/{page}")
    async def one(job: Job, album: int, page: int, note: str = "") -> None: ...

    async with fp.transaction() as tx:
        first = await one.submit(tx, album=1, page=2)
        again = await one.submit(tx, album=1, page=2, note="the note is not part of the key")
        other = await one.submit(tx, album=1, page=3)
    assert (again.job_id, again.created, other.created) == (first.job_id, False, True)
    assert probes.column("select unique_key from fencepost.job order by 1") == ["one:1/2", "one:1/3"]


async def test_a_concurrency_key_lets_so_many_run(fp: Fencepost, probes: Probes, working: Working) -> None:
    together, most, pair = 0, 0, asyncio.Barrier(2)

    @fp.job("work", concurrency_key="user:{user}", concurrency_limit=2)
    async def one(job: Job, user: int) -> None:
        nonlocal together, most
        together += 1
        most = max(most, together)
        await pair.wait()
        together -= 1

    async with working(fp):
        async with fp.transaction() as tx:
            jobs = await one.submit_many(tx, [{"user": 1}] * 10)
        await asyncio.gather(*(fp.jobs.result(job, within=60) for job in jobs))
    assert most == 2


async def test_thousands_are_one_statement_and_answer_in_their_order(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work", unique="{n}")
    async def one(job: Job, n: int) -> None: ...

    async with fp.transaction() as tx:
        jobs = await one.submit_many(tx, ({"n": n} for n in range(5000)))
        assert await one.submit_many(tx, []) == []
    assert len({job.job_id for job in jobs}) == 5000
    assert probes.column("select payload -> 'n' from fencepost.job order by job_id") == list(range(5000))
    assert len(set(probes.column("select headers ->> 'trace_id' from fencepost.job"))) == 1


async def test_a_row_that_does_not_fit_submits_nothing(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work")
    async def one(job: Job, n: int) -> None: ...

    async with fp.transaction() as tx:
        with pytest.raises(InvalidInput, match="one: n: Input should be a valid integer") as refused:
            await one.submit_many(tx, [{"n": 1}, {"n": "many"}])
        assert refused.value.field == "n"
        with pytest.raises(InvalidInput, match="needs the argument n"):
            await one.submit_many(tx, [{}])
        with pytest.raises(InvalidInput, match="no argument m"):
            await one.submit_many(tx, [{"n": 1, "m": 2}])
    assert probes.value("select count(*) from fencepost.job") == 0


async def test_arguments_come_back_as_the_types_that_went_in(fp: Fencepost, working: Working) -> None:
    seen: list[Any] = []

    @fp.job("work")
    async def one(job: Job, at: datetime, point: Point, names: set[str]) -> None:
        seen.extend([at, point, names])

    when = datetime(2030, 1, 1, tzinfo=UTC)
    async with working(fp):
        async with fp.transaction() as tx:
            job = await one.submit(tx, at=when, point=Point(x=1, y=2), names={"a", "b"})
        await fp.jobs.result(job)
    assert seen == [when, Point(x=1, y=2), {"a", "b"}]


async def test_one_trace_goes_from_the_submission_into_the_log_of_the_worker_and_on(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    @fp.job("work")
    async def first(job: Job) -> None:
        structlog.get_logger().info("first runs")
        async with job.finish() as tx:
            await second.submit(tx)

    @fp.job("work")
    def second(job: Job) -> None:
        logging.getLogger("somebody.else").warning("second runs")

    lines = StringIO()
    configure_logging(level="info", form="json", stream=lines)
    async with working(fp):
        with log_context(trace_id="7" * 32):
            async with fp.transaction() as tx:
                await first.submit(tx)
        await probes.until("both have run", lambda: probes.value(FINISHED) == 2)
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    ours = {entry["event"]: entry for entry in logged if entry["event"].endswith("runs")}
    assert ours["first runs"]["trace_id"] == ours["second runs"]["trace_id"] == "7" * 32
    assert ours["first runs"]["job_id"] != ours["second runs"]["job_id"]


FINISHED = "select count(*) from fencepost.jobs where state = 'finished'"


async def test_headers_travel_and_a_trace_of_ones_own_is_kept(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work")
    async def one(job: Job) -> None: ...

    async with fp.transaction() as tx:
        await one.options(headers={"tenant": "acme", "trace_id": "mine"}).submit(tx)
        await one.submit(tx)
        await one.submit(tx)
    mine, *others = probes.column("select headers from fencepost.job order by job_id")
    assert mine == {"tenant": "acme", "trace_id": "mine"}
    assert len({headers["trace_id"] for headers in others}) == 2, "each without a trace begins one"


async def test_submitting_on_any_connection_is_part_of_its_transaction(
    database: Database, probes: Probes
) -> None:
    fp = Fencepost(database.url)

    @fp.job("work")
    async def one(job: Job, driver: str) -> None: ...

    def sync_drivers(*, commit: bool) -> None:
        with psycopg.connect(database.url) as connection:
            one.submit(connection, driver="psycopg")
            if not commit:
                connection.rollback()
        engine = create_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.connect() as connection:
            one.submit_many(connection, [{"driver": "sqlalchemy"}])
            if commit:
                connection.commit()
        engine.dispose()

    async def async_drivers(*, commit: bool) -> None:
        plain = await asyncpg.connect(database.url)
        transaction = plain.transaction()
        await transaction.start()
        await one.submit(plain, driver="asyncpg")
        await (transaction.commit() if commit else transaction.rollback())
        await plain.close()
        engine = create_async_engine(database.url.replace("postgresql://", "postgresql+psycopg://"))
        async with engine.connect() as connection:
            await one.submit(connection, driver="sqlalchemy async")
            if commit:
                await connection.commit()
        await engine.dispose()

    for commit in (False, True):
        await asyncio.to_thread(sync_drivers, commit=commit)
        await async_drivers(commit=commit)
    assert probes.column("select payload ->> 'driver' from fencepost.job order by 1") == [
        "asyncpg",
        "psycopg",
        "sqlalchemy",
        "sqlalchemy async",
    ]


async def test_a_handlers_lease_comes_from_the_settings_unless_it_says_more(
    database: Database, probes: Probes
) -> None:
    fp = Fencepost.from_env(
        # On a busy machine a connection may take longer than the usual five seconds.
        {"DATABASE_URL": database.url, "DATABASE_CONNECT_SEC": "60", "JOBS_LEASE_SEC": "90"}
    )

    @fp.job("work")
    async def usual(job: Job) -> None: ...

    @fp.job("work", lease=5)
    async def short(job: Job) -> None: ...

    async with fp, fp.transaction() as tx:
        await usual.submit(tx)
        await short.submit(tx)
    leases = probes.column("select lease from fencepost.job order by job_id")
    assert [lease.total_seconds() for lease in leases] == [90, 5]


async def test_a_job_is_enqueued_in_a_transaction_of_its_own(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work")
    async def one(job: Job, n: int) -> None: ...

    submitted = await one.enqueue(n=1)
    delayed = await one.options(priority="urgent").enqueue(2)
    assert submitted.created
    assert probes.rows("select job_id, payload -> 'n', priority from fencepost.jobs order by 1") == [
        (submitted.job_id, 1, 1),
        (delayed.job_id, 2, 0),
    ]


async def test_code_without_a_loop_enqueues_through_the_open_client(fp: Fencepost, probes: Probes) -> None:
    @fp.job("work")
    def one(job: Job, n: int) -> None: ...

    # Opened by the handler, and closed with `fp`.
    first = await asyncio.to_thread(one.enqueue_sync, n=1)
    with fp.sync() as sync_fp:
        second = one.enqueue_sync(n=2)
        assert sync_fp.jobs.get(second) is not None
    third = one.enqueue_sync(n=3)
    ids = [job.job_id for job in (first, second, third)]
    assert probes.rows("select job_id, payload -> 'n' from fencepost.jobs order by 1") == [
        (job_id, n) for n, job_id in enumerate(ids, 1)
    ]


def test_a_sync_client_alone_is_the_one_that_handlers_enqueue_through(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No second pool is opened, which nothing would close."""
    fp = Fencepost(database.url)
    monkeypatch.setattr(fp, "_sync_facade", lambda: pytest.fail("a second pool"))

    @fp.job("work")
    def one(job: Job) -> None: ...

    with fp.sync() as sync_fp:
        submitted = one.enqueue_sync()
        assert sync_fp.jobs.get(submitted) is not None


async def test_a_handler_without_a_client_says_how_to_get_one() -> None:
    async def one(job: Job) -> None: ...

    alone: Handler[[]] = Handler(one, "work", "one")
    with pytest.raises(InvalidInput, match=r"declare it with @fp\.job"):
        await alone.enqueue()
    with pytest.raises(InvalidInput, match=r"declare it with @fp\.job"):
        alone.enqueue_sync()


async def test_a_handler_is_called_like_its_function(fp: Fencepost) -> None:
    @fp.job("work")
    async def double(job: Job, n: int) -> int:
        async with job.finish({"doubled": 2 * n}):
            return 2 * n

    @fp.job("work")
    def plain(job: Job, n: int) -> str:
        return f"{job.kind} {n}"

    submitted = await double.enqueue(n=4)
    running = await fp.run(kernel_job.claim(submitted.job_id, "a test"))
    job = Job(running, "a test", fp, fp.sync)
    assert await double(job, n=4) == 8
    assert await fp.jobs.result(submitted) == {"doubled": 8}
    assert plain(job, 3) == "double 3"
