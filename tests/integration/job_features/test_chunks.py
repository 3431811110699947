"""Chunk handlers: many jobs in one transaction, each under its own fence, each with its own end."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel

from fencepost import (
    Chunk,
    Ended,
    Fencepost,
    Handler,
    InvalidInput,
    Job,
    JobFailed,
    PermanentError,
    Retry,
    ServerUnavailable,
    StaleAttempt,
    exponential,
)
from fencepost.embedded import Database
from fencepost.jobs.retry_policy import Verdict
from fencepost.kernel import job as kernel_job
from fencepost.kernel.drivers import run
from fencepost.testing import Child, Clock
from tests.integration.job_features import chunk_worker
from tests.integration.job_features.conftest import Working
from tests.integration.job_features.probes import Probes
from tests.takeover import TAKEN_OVER

ONE_TAKEN_OVER = TAKEN_OVER.replace("job_running r returning", "job_running r where job_id = %s returning")

WAITING_FOR_LOCKS = """
    select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"""


@dataclass(frozen=True)
class Mail:
    to: str
    copies: int = 1


def at_once(_tries: int, _error: Exception) -> Verdict:
    return Retry(0)


@pytest.fixture(autouse=True)
def note_table(probes: Probes) -> None:
    probes.plant(
        """create table note (id bigint generated always as identity, text text);
           grant select, insert on note to fencepost_app"""
    )


def written(probes: Probes) -> list[str]:
    return [str(text) for text in probes.column("select text from note order by id")]


async def submitted(fp: Fencepost, handler: Handler[[Mail]], names: Sequence[str]) -> list[int]:
    async with fp.transaction() as tx:
        jobs = await handler.submit_many(tx, [{"to": name} for name in names])
    return [job.job_id for job in jobs]


async def test_jobs_arrive_together_and_finish_in_one_transaction(
    anywhere: Fencepost, probes: Probes, working: Working
) -> None:
    fp, sizes = anywhere, list[int]()

    @fp.job("mail", chunk=10, chunk_wait=30)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))
        async with chunk.finish() as tx:
            await tx.execute("insert into note (text) values (txid_current()::text)")
            for member in chunk:
                member.finish_as({"to": member.arguments.to, "copies": member.arguments.copies})

    job_ids = await submitted(fp, send, [f"user {n}" for n in range(20)])
    async with working(fp):
        results = [await fp.jobs.result(job_id, within=60) for job_id in job_ids]
    assert results == [{"to": f"user {n}", "copies": 1} for n in range(20)]
    assert sizes == [10, 10], "neither waited thirty seconds"
    assert len(written(probes)) == 2


async def test_a_chunk_that_is_not_full_begins_after_its_wait(fp: Fencepost, working: Working) -> None:
    sizes: list[int] = []

    @fp.job("mail", chunk=100, chunk_wait=0.05)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))

    async with working(fp):
        job = await send.enqueue(Mail("Ada"))
        assert await fp.jobs.result(job, within=60) is None
    assert sizes == [1]


async def test_a_worker_without_a_free_place_waits_for_no_more_members(
    fp: Fencepost, working: Working
) -> None:
    sizes: list[int] = []

    @fp.job("mail", chunk=100, chunk_wait=3600)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))

    job_ids = await submitted(fp, send, ["Ada", "Bob", "Cyd", "Dan"])
    async with working(fp, concurrency=4):
        for job_id in job_ids:
            await fp.jobs.result(job_id, within=60)
    assert sum(sizes) == 4


async def test_a_worker_that_stops_begins_the_chunks_that_wait(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    @fp.job("mail", chunk=100, chunk_wait=3600)
    async def send(chunk: Chunk[Mail]) -> None: ...

    [job_id] = await submitted(fp, send, ["Ada"])
    async with working(fp):
        await probes.until_state(job_id, "running")
    assert probes.state(job_id) == "finished"


async def test_single_members_fail_snooze_and_are_buried_in_the_same_commit(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    ends: dict[int, Ended] = {}
    told: list[str] = []
    tries: list[tuple[str, int, int]] = []

    @fp.on_finish
    def note_end(job: Job, ended: Ended) -> None:
        ends.setdefault(job.id, ended)

    @fp.on_error
    def note_error(job: Job, error: BaseException) -> None:
        told.append(str(error))

    @fp.job("mail", chunk=5, chunk_wait=30, tries=2, retry=lambda _tries, _error: Retry(3600))
    async def send(chunk: Chunk[Mail]) -> None:
        async with chunk.finish() as tx:
            for member in chunk:
                tries.append((member.arguments.to, member.job.tries, len(chunk)))
                match member.arguments.to:
                    case "fails":
                        member.fail(ValueError("no such box"))
                    case "snoozes":
                        member.snooze(60)
                    case "is buried":
                        member.bury("no such street")
                    case "is cancelled":
                        member.cancel("moved away")
                    case name:
                        await tx.execute("insert into note (text) values (%s)", (name,))

    names = ["arrives", "fails", "snoozes", "is buried", "is cancelled"]
    job_ids = dict(zip(names, await submitted(fp, send, names), strict=True))
    async with working(fp):
        await probes.until("all are told", lambda: len(ends) == 5)
    states = {name: probes.state(job_id) for name, job_id in job_ids.items()}
    assert states == {
        "arrives": "finished",
        "fails": "pending",
        "snoozes": "pending",
        "is buried": "dead",
        "is cancelled": "cancelled",
    }
    assert written(probes) == ["arrives"]
    spent = {
        name: probes.value("select tries from fencepost.jobs where job_id = %s", job_id)
        for name, job_id in job_ids.items()
    }
    assert (spent["fails"], spent["snoozes"]) == (1, 0), "a snooze is not charged"
    failed = ends[job_ids["fails"]]
    assert (failed.state, failed.error, failed.retry_seconds) == ("pending", "ValueError: no such box", 3600)
    assert ends[job_ids["is buried"]].error == "no such street"
    assert told == [], "a decision is no exception"


async def test_a_chunk_without_a_transaction_of_its_own_ends_as_decided(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    @fp.job("mail", chunk=2, chunk_wait=30)
    def send(chunk: Chunk[Mail]) -> None:
        for member in chunk:
            if member.arguments.to == "nobody":
                member.fail(PermanentError("unknown"))
            else:
                member.finish_as({"sent": True}, final_status="sent")

    good, bad = await submitted(fp, send, ["Ada", "nobody"])
    async with working(fp):
        assert await fp.jobs.result(good, within=60) == {"sent": True}
        with pytest.raises(JobFailed, match="PermanentError: unknown"):
            await fp.jobs.result(bad, within=60)
    assert probes.value("select final_status from fencepost.jobs where job_id = %s", good) == "sent"


async def test_one_that_fails_the_whole_chunk_runs_alone_the_next_time(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    sizes: list[int] = []

    @fp.job("mail", chunk=10, chunk_wait=30, tries=3, retry=at_once)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))
        async with chunk.finish() as tx:
            for member in chunk:
                await tx.execute("insert into note (text) values (%s)", (member.arguments.to,))
                if member.arguments.to == "poison":
                    raise ValueError("cannot be sent")

    names = [*(f"user {n}" for n in range(9)), "poison"]
    job_ids = await submitted(fp, send, names)
    async with working(fp):
        for job_id in job_ids[:-1]:
            await fp.jobs.result(job_id, within=60)
        await probes.until_state(job_ids[-1], "dead")
    assert sizes == [10] + [1] * 11
    assert sorted(written(probes)) == sorted(names[:-1]), "each once, and nothing of the poison"
    tries = probes.rows("select distinct state, tries from fencepost.jobs order by tries")
    assert tries == [("finished", 2), ("dead", 3)]


@pytest.mark.parametrize("form", ["async", "sync"])
async def test_a_member_that_was_lost_refuses_the_whole_transaction_and_charges_nobody(
    fp: Fencepost, database: Database, probes: Probes, working: Working, form: str
) -> None:
    refused: list[StaleAttempt] = []
    sizes, entered = list[int](), list[int]()

    def lose_one(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))
        if len(chunk) == 3 and len(sizes) == 1:
            with database.connect_admin() as admin:
                one = TAKEN_OVER.replace(
                    "job_running r returning", "job_running r where job_id = %s returning"
                )
                admin.execute(one.encode(), (chunk[1].job.id,))

    @fp.job("mail", kind="async", chunk=3, chunk_wait=0.1, tries=1)
    async def send(chunk: Chunk[Mail]) -> None:
        lose_one(chunk)
        try:
            async with chunk.finish() as tx:
                entered.append(len(chunk))
                await tx.execute("insert into note (text) values ('sent')")
        except StaleAttempt as refusal:
            refused.append(refusal)
            raise

    @fp.job("mail", kind="sync", chunk=3, chunk_wait=0.1, tries=1)
    def send_sync(chunk: Chunk[Mail]) -> None:
        lose_one(chunk)
        try:
            with chunk.finish_sync() as tx:
                entered.append(len(chunk))
                tx.execute("insert into note (text) values ('sent')")
        except StaleAttempt as refusal:
            refused.append(refusal)
            raise

    handler = send if form == "async" else send_sync
    first, lost, last = await submitted(fp, handler, ["Ada", "Bob", "Cyd"])
    async with working(fp, lease_seconds=120, heartbeat_seconds=60):
        for job_id in (first, last):
            await fp.jobs.result(job_id, within=60)
    [refusal] = refused
    assert (refusal.subject, refusal.seen["owner"]) == (str(lost), "successor")
    assert sizes == [3, 2], "the others came again, together"
    assert entered == [2], "the fence refused it before the block ran"
    assert written(probes) == ["sent"]
    assert probes.state(lost) == "running", "its new owner has it"
    spent = probes.rows("select attempt, tries from fencepost.jobs where job_id in (%s, %s)", first, last)
    assert spent == [(2, 1)] * 2


async def test_a_member_that_is_cancelled_stops_the_chunk_and_the_others_come_again(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    began = asyncio.Event()
    sizes: list[int] = []

    @fp.job("mail", chunk=2, chunk_wait=0.1, tries=1)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))
        if len(chunk) == 2:
            began.set()
            await asyncio.Event().wait()

    other, cancelled = await submitted(fp, send, ["Ada", "Bob"])
    async with working(fp):
        await asyncio.wait_for(began.wait(), 60)
        await fp.run(kernel_job.cancel(cancelled, "alice"))
        await fp.jobs.result(other, within=60)
        await probes.until_state(cancelled, "cancelled")
    assert sizes == [2, 1]


async def test_a_commit_that_fails_ends_no_member(fp: Fencepost, probes: Probes, working: Working) -> None:
    probes.plant("alter table note add constraint once unique (text) deferrable initially deferred")
    errors: list[str] = []

    @fp.on_error
    def note_error(job: Job, error: BaseException) -> None:
        errors.append(type(error).__name__)

    @fp.job("mail", chunk=2, chunk_wait=30, tries=2, retry=at_once)
    async def send(chunk: Chunk[Mail]) -> None:
        async with chunk.finish() as tx:
            for _ in chunk:
                await tx.execute("insert into note (text) values ('the same')")

    job_ids = await submitted(fp, send, ["Ada", "Bob"])
    async with working(fp):
        await probes.until(
            "both have ended", lambda: probes.value("select count(*) from fencepost.job_finished") == 2
        )
    assert sorted(probes.state(job_id) for job_id in job_ids) == ["dead", "finished"]
    assert errors == ["UniqueViolation"] * 3, "both together, and then the second alone"
    assert written(probes) == ["the same"]


async def test_a_server_that_is_away_charges_no_member(fp: Fencepost, working: Working) -> None:
    sizes: list[int] = []

    @fp.job("mail", chunk=2, chunk_wait=0.1, tries=1)
    async def send(chunk: Chunk[Mail]) -> None:
        sizes.append(len(chunk))
        if len(sizes) == 1:
            raise ServerUnavailable("PostgreSQL is away")

    job_ids = await submitted(fp, send, ["Ada", "Bob"])
    async with working(fp):
        for job_id in job_ids:
            await fp.jobs.result(job_id, within=60)
    assert sizes[0] == sum(sizes[1:]) == 2


async def test_a_member_whose_payload_does_not_fit_is_buried_alone(
    fp: Fencepost, probes: Probes, working: Working
) -> None:
    @fp.job("mail", chunk=2, chunk_wait=30)
    async def send(chunk: Chunk[Mail]) -> None:
        assert [member.arguments.to for member in chunk] == ["Ada"]

    good, bad = await submitted(fp, send, ["Ada", "Bob"])
    with probes.database.connect_admin() as admin:
        admin.execute("update fencepost.job set payload = '{}' where job_id = %s", (bad,))
    async with working(fp):
        await fp.jobs.result(good, within=60)
        await probes.until_state(bad, "dead")


async def test_a_timeout_says_how_long_and_middleware_wraps_the_chunk_once(
    fp: Fencepost, working: Working
) -> None:
    wrapped: list[int] = []

    @fp.middleware
    async def count(chunk: Chunk[Mail], call: Callable[[], Any]) -> Any:
        wrapped.append(len(chunk))
        return await call()

    @fp.job("mail", chunk=2, chunk_wait=30, tries=1, timeout=0.05)
    async def send(chunk: Chunk[Mail]) -> None:
        await asyncio.Event().wait()

    job_ids = await submitted(fp, send, ["Ada", "Bob"])
    async with working(fp):
        for job_id in job_ids:
            with pytest.raises(JobFailed, match=r"the handler did not finish within 0\.05 s"):
                await fp.jobs.result(job_id, within=60)
    assert wrapped == [2]


class Row(NamedTuple):
    n: int


class Model(BaseModel):
    n: int


@pytest.mark.parametrize("row", [Row(3), Model(n=3)])
async def test_arguments_are_named_tuples_or_models_too(fp: Fencepost, working: Working, row: Any) -> None:
    seen: list[object] = []

    async def take(chunk: Chunk[Any]) -> None:
        seen.extend(member.arguments for member in chunk)

    take.__annotations__["chunk"] = Chunk[type(row)]  # type: ignore[misc]
    handler = fp.job("mail", chunk=1, kind=type(row).__name__)(take)
    async with working(fp):
        await fp.jobs.result(await handler.enqueue(row), within=60)
    assert seen == [row]
    with pytest.raises(InvalidInput, match="n"):
        handler.submission(type(row)._make(["many"]) if isinstance(row, Row) else {"n": "many"})


async def test_a_member_is_tried_again_by_the_policy_of_its_own_submission(
    fp: Fencepost, working: Working
) -> None:
    @fp.job("mail", chunk=2, chunk_wait=60, retry=exponential(first_seconds=3600, most_seconds=3600))
    async def send(chunk: Chunk[Mail]) -> None:
        for member in chunk:
            if member.job.tries == 1 and member.arguments.to == "Ada":
                member.fail("not now")
            elif member.job.tries == 1:
                raise ConnectionError("the server does not answer")

    at_once = send.options(retry=exponential(first_seconds=0, jitter=0))
    async with fp.transaction() as tx:
        jobs = [await at_once.submit(tx, Mail(name)) for name in ("Ada", "Bob")]
    async with working(fp):
        for job in jobs:
            assert await fp.jobs.result(job, within=60) is None


async def test_two_chunks_that_end_members_of_crossing_batches_do_not_deadlock(
    fp: Fencepost, database: Database, probes: Probes, working: Working
) -> None:
    """One finishes a member of the first batch and buries one of the second, the other does the opposite."""

    async def settle(chunk: Chunk[Mail]) -> None:
        async with chunk.finish():
            for member in chunk:
                if member.arguments.to == "nowhere":
                    member.bury("no such address")

    up = fp.job("up", kind="up", chunk=2, chunk_wait=60)(settle)
    down = fp.job("down", kind="down", chunk=2, chunk_wait=60)(settle)
    [first, second] = await submitted(fp, up, ["Ada", "nowhere"])
    [third, fourth] = await submitted(fp, down, ["nowhere", "Bob"])
    with database.connect() as other:
        held = run(other, kernel_job.submit("elsewhere", "x", {})).job_id
        for batch in ([first, third, held], [second, fourth]):
            other.execute("select fencepost.batch_make(%s)", (batch,))
        run(other, kernel_job.claim(held, "elsewhere"))
        # The chunks meet at the first batch, which this transaction keeps until both wait for it.
        with other.transaction():
            run(other, kernel_job.finish(kernel_job.Finish(held, 1), "elsewhere"))
            running = asyncio.create_task(wait_and_work(fp, working, [first, second, third, fourth]))
            await probes.until(
                "both chunks wait for a lock",
                lambda: probes.value(WAITING_FOR_LOCKS) == 2,
            )
        await running
    ends = probes.rows("select job_id, state, attempt from fencepost.job_finished where job_id <> %s", held)
    assert sorted(ends) == [
        (first, "finished", 1),
        (second, "dead", 1),
        (third, "dead", 1),
        (fourth, "finished", 1),
    ]
    assert probes.column("select remaining from fencepost.batches") == [0, 0]


async def wait_and_work(fp: Fencepost, working: Working, job_ids: Sequence[int]) -> None:
    async with working(fp):
        for job_id in job_ids:
            with suppress(JobFailed):
                await fp.jobs.result(job_id, within=60)


def test_what_cannot_be_a_chunk_is_refused_when_it_is_declared() -> None:
    fp = Fencepost("postgresql://localhost/never-opened")

    async def one(job: Job, to: str) -> None: ...

    async def untyped(chunk: Any) -> None: ...

    def fine(chunk: Chunk[Mail]) -> None: ...

    declare: Any = fp.job
    for function, options in (
        (one, {"chunk": 10}),
        (untyped, {"chunk": 10}),
        (fine, {"chunk": 0}),
        (fine, {"chunk": 1001}),
        (fine, {"chunk": 10, "run_in": "process"}),
        (fine, {"chunk": 10, "chunk_wait": -1}),
    ):
        with pytest.raises(InvalidInput):
            declare("mail", **options)(function)
    assert len(fp.handlers) == 0


@pytest.mark.parametrize("form", ["async", "sync"])
@pytest.mark.parametrize("point", ["after_fence", "before_commit", "after_commit"])
@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_worker_that_dies_or_stands_still_around_the_commit_doubles_and_loses_nothing(
    fp: Fencepost,
    database: Database,
    probes: Probes,
    working: Working,
    clock: Clock,
    form: str,
    point: str,
    how: str,
) -> None:
    handler = chunk_worker.declare(fp)[form]
    async with fp.transaction() as tx:
        await handler.submit_many(tx, [{"text": f"note {n}"} for n in range(3)])
    name = f"jobs.{'chunk' if form == 'async' else 'chunk_sync'}.{point}"
    with Child(chunk_worker.work, database.url, crash=f"{name}:{how}") as victim:
        if how == "kill":
            victim.be_killed(within=60)
        else:
            victim.wait_until_stopped(within=60)
        clock.advance(chunk_worker.LEASE_SECONDS + 1)
        async with working(fp):
            await probes.until(
                "all have ended",
                lambda: probes.value("select count(*) from fencepost.job_finished") == 3,
            )
        if how == "stop":
            victim.resume()
            victim.say("stop")
            victim.succeed(within=60)
    assert sorted(written(probes)) == [f"note {n}" for n in range(3)]
    if how == "kill":
        attempts = {1} if point == "after_commit" else {2}
        assert set(probes.column("select attempt from fencepost.job_finished")) == attempts
