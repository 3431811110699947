"""A system with handlers, its workers, and what a test asks of them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any, LiteralString, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._database import SERVICE
from fencepost.embedded._deadline import Deadline
from fencepost.jobs._worker import Worker
from fencepost.jobs.settings import JobSettings
from fencepost.redis_streams.connection import connect_sync
from fencepost.settings import Settings
from tests.reused_databases import furnish
from tests.waiting_for import Waiter

WAIT_SECONDS = 60.0
TABLES: LiteralString = """
    create table if not exists effect (
      id bigint generated always as identity, job_id bigint, attempt bigint, note text
    );
    grant select, insert on effect to fencepost_app;
"""


def quick(**changes: Any) -> JobSettings:
    """Settings under which every loop comes round in a fraction of a second."""
    values: dict[str, Any] = {
        "lease_seconds": 5,
        "heartbeat_seconds": 0.2,
        "poll_seconds": 0.1,
        "sweep_interval_seconds": 0.1,
        "reclaim_interval_seconds": 0.1,
        "reclaim_grace_seconds": 0,
        "drain_seconds": 5,
        "concurrency": 20,
        # Jobs come through the streams; test_notice.py has the shorter way.
        "notice_claims": 0,
    }
    return JobSettings(**(values | changes))


class Seen(NamedTuple):
    """A job as people see it."""

    state: str
    final_status: str | None
    attempt: int
    tries: int
    owner: str | None
    result: Any
    error: str | None
    progress: Any


@dataclass
class JobHarness:
    """One Fencepost on a database of its own, and eyes that see everything."""

    database: Database
    fp: Fencepost
    redis: Any
    looker: Waiter

    def rows(self, query: LiteralString, parameters: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self.looker.rows(query, parameters)

    def value(self, query: LiteralString, parameters: tuple[Any, ...] = ()) -> Any:
        return self.rows(query, parameters)[0][0]

    def execute(self, statement: LiteralString, parameters: tuple[Any, ...] = ()) -> None:
        with self.database.connect_admin() as admin:
            admin.execute(statement, parameters)

    def job(self, job_id: int) -> Seen:
        [row] = self.rows(
            "select state, final_status, attempt, tries, owner, result, error, progress"
            " from fencepost.jobs where job_id = %s",
            (job_id,),
        )
        return Seen(*row)

    def events(self, job_id: int) -> list[str]:
        return [
            str(event)
            for (event,) in self.rows(
                "select event from fencepost.events where noun = 'job' and subject = %s order by event_id",
                (str(job_id),),
            )
        ]

    def refusals(self) -> list[tuple[str, str]]:
        """Reason and operation of what was recorded."""
        return [
            (str(reason), str(op))
            for reason, op in self.rows(
                "select reason, attempted ->> 'op' from fencepost.refusals order by refusal_id"
            )
        ]

    def left(self) -> int:
        """Jobs that have not ended."""
        return int(
            self.value(
                "select (select count(*) from fencepost.job_waiting)"
                " + (select count(*) from fencepost.job_running)"
            )
        )

    def metric(self, name: str, **labels: str) -> float:
        return self.fp.metrics.value(name, **labels)

    def samples(self) -> list[tuple[str, dict[str, str]]]:
        """Every sample that a scrape would see: its name and its labels."""
        text = self.fp.metrics.page().body.decode()
        return [
            (sample.name, dict(sample.labels))
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    async def until(self, condition: str, holds: Callable[[], bool], *, within: float = WAIT_SECONDS) -> None:
        await asyncio.to_thread(Deadline(within, condition).wait, holds)

    async def until_state(self, job_id: int, *states: str, within: float = WAIT_SECONDS) -> Seen:
        try:
            await self.until(
                f"job {job_id} is {' or '.join(states)}",
                lambda: self.job(job_id).state in states,
                within=within,
            )
        except TimeoutError as error:
            raise AssertionError(f"{error} It is {self.job(job_id)}; {self.events(job_id)}") from error
        return self.job(job_id)

    async def until_all_ended(self, *, within: float = WAIT_SECONDS) -> None:
        await self.until("every job has ended", lambda: self.left() == 0, within=within)

    def entries(self) -> int:
        """How many entries lie in the streams."""
        return sum(self.redis.xlen(key) for key in self.redis.scan_iter(_type="stream"))

    async def until_empty(self, *, within: float = WAIT_SECONDS) -> None:
        await self.until("no stream holds an entry", lambda: self.entries() == 0, within=within)

    @asynccontextmanager
    async def working(
        self, settings: JobSettings | None = None, *, queues: Sequence[str] | None = None
    ) -> AsyncGenerator[Worker]:
        """A worker that runs inside the block."""
        worker = self.fp.jobs.worker(settings or quick(), queues=queues)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(task, 60)


@asynccontextmanager
async def open_harness(
    database: Database, redis_url: str | None, *, through: str | None = None
) -> AsyncGenerator[JobHarness]:
    """A scene; its client reaches the database `through` another address, if one is given."""
    redis: Any = None if redis_url is None else connect_sync(redis_url, reply_seconds=5)
    furnish(database, TABLES)
    try:
        # A pooler keeps no subscription, so that its user names the server for it.
        settings = Settings(listen_database_url=through or database.server.url(database.name, SERVICE))
        async with Fencepost(through or database.url, redis_url=redis_url, settings=settings) as fp:
            with closing(Waiter(database)) as looker:
                yield JobHarness(database, fp, redis, looker)
    finally:
        if redis is not None:
            redis.close()
