"""Retries with backoff, dead letters, timeouts and poison."""

import asyncio
import json
import threading
from datetime import timedelta
from functools import partial

import structlog

from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import Bury, PermanentError, Retry, exponential
from fencepost.testing import Clock, Signals
from tests.integration.jobs.harness import JobHarness, quick


async def test_a_job_that_fails_is_tried_again_after_its_delay(harness: JobHarness, clock: Clock) -> None:
    tries: list[int] = []

    @harness.fp.job("default", retry=exponential(first_seconds=600, jitter=0))
    async def stumble(job: Job) -> str:
        tries.append(job.tries)
        if job.tries < 3:
            raise ValueError(f"try {job.tries}")
        return "at last"

    async with harness.fp.transaction() as tx:
        submitted = await stumble.submit(tx)
    async with harness.working():
        for delay_seconds in (600, 1200):
            seen = await harness.until_state(submitted.job_id, "pending")
            await harness.until("it failed", lambda: harness.job(submitted.job_id).error is not None)
            [(run_at,)] = harness.rows(
                "select run_at from fencepost.jobs where job_id = %s", (submitted.job_id,)
            )
            assert run_at - clock.now() <= timedelta(seconds=delay_seconds)
            assert run_at - clock.now() > timedelta(seconds=delay_seconds - 60)
            again = tries[-1] + 1
            clock.advance(delay_seconds + 1)
            await harness.until("it is tried again", partial(tries.__contains__, again))
        seen = await harness.until_state(submitted.job_id, "finished")
    assert (tries, seen.result, seen.attempt, seen.tries) == ([1, 2, 3], "at last", 3, 3)


async def test_an_old_entry_does_not_cut_the_delay_short(harness: JobHarness) -> None:
    tries: list[int] = []

    @harness.fp.job("default", retry=lambda _tries, _error: Retry(3600))
    async def fail(job: Job) -> None:
        tries.append(job.tries)
        raise ValueError

    async with harness.fp.transaction() as tx:
        submitted = await fail.submit(tx)
    async with harness.working():
        await harness.until("it failed", lambda: harness.job(submitted.job_id).error is not None)
        harness.redis.xadd(
            "fencepost:{jobs}",
            {"job_id": submitted.job_id, "enqueue_ts": 1, "payload_ref": "x", "priority": 1},
        )
        await harness.until_empty()
    assert tries == [1]


async def test_past_its_tries_a_job_is_dead_with_its_cause_and_history(harness: JobHarness) -> None:
    @harness.fp.job("default", tries=3, retry=lambda _tries, _error: Retry(0))
    async def fail(job: Job) -> None:
        raise ValueError(f"no {job.tries}")

    async with harness.fp.transaction() as tx:
        submitted = await fail.submit(tx)
    async with harness.working():
        seen = await harness.until_state(submitted.job_id, "dead")
        await harness.until_empty()
    assert (seen.final_status, seen.error, seen.tries) == ("failed", "ValueError: no 3", 3)
    assert harness.events(submitted.job_id).count("failed") == 3


async def test_what_cannot_succeed_is_dead_at_once(harness: JobHarness) -> None:
    @harness.fp.job("default", kind="permanent")
    async def permanent(job: Job) -> None:
        raise PermanentError("gone for good")

    @harness.fp.job("default", kind="by policy", retry=lambda _tries, error: Bury())
    async def by_policy(job: Job) -> None:
        raise KeyError("x")

    async with harness.fp.transaction() as tx:
        both = [(await handler.submit(tx)).job_id for handler in (permanent, by_policy)]
    async with harness.working():
        for job_id in both:
            assert (await harness.until_state(job_id, "dead")).tries == 1


async def test_a_handler_past_its_time_is_stopped_and_tried_again(harness: JobHarness) -> None:
    @harness.fp.job("default", tries=2, timeout=0.05, retry=lambda _tries, _error: Retry(0))
    async def slow(job: Job) -> None:
        await asyncio.Event().wait()

    async with harness.fp.transaction() as tx:
        submitted = await slow.submit(tx)
    async with harness.working():
        seen = await harness.until_state(submitted.job_id, "dead")
    assert (seen.tries, seen.error) == (2, "TimeoutError: the handler did not finish within 0.05 s")


async def test_a_thread_that_outlives_its_time_keeps_its_place_and_writes_nothing(
    harness: JobHarness,
) -> None:
    refusals: list[str] = []
    let_go, wrote = threading.Event(), threading.Event()

    @harness.fp.job("default", tries=1, timeout=0.1)
    def stuck(job: Job) -> None:
        let_go.wait(60)
        try:
            with job.finish_sync() as tx:
                tx.execute("insert into effect (job_id) values (%s)", (job.id,))
        except Exception as error:
            refusals.append(type(error).__name__)
        finally:
            wrote.set()

    @harness.fp.job("default")
    async def other(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await stuck.submit(tx)
    async with harness.working(quick(concurrency=1)):
        await harness.until_state(submitted.job_id, "dead")
        async with harness.fp.transaction() as tx:
            next_one = await other.submit(tx)
        # Room for one, and a thread that cannot be ended has it.
        with Signals() as signals:
            await signals.wait("reclaim.ticked", count=3)
        assert harness.job(next_one.job_id).state in ("pending", "dispatched")
        let_go.set()
        await harness.until_state(next_one.job_id, "finished")
    assert wrote.wait(60)
    assert refusals == ["AlreadyFinished"]
    assert harness.value("select count(*) from effect") == 0


async def test_a_poison_entry_is_recorded_and_then_acknowledged(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    whole = {"job_id": "1", "enqueue_ts": 1, "payload_ref": "x", "priority": 1}
    poison = [
        ({name: value for name, value in whole.items() if name != "priority"}, "missing_field"),
        ({"unrelated": "x"}, "missing_field"),
        ({**whole, "job_id": "seven"}, "invalid_field"),
        ({**whole, "job_id": "-7"}, "invalid_field"),
        ({**whole, "job_id": "9" * 30}, "invalid_field"),
        ({**whole, "job_id": b"\xff\x00"}, "invalid_field"),
    ]
    ids = [harness.redis.xadd("fencepost:{jobs}", fields) for fields, _ in poison]
    async with harness.working():
        await harness.until_empty()
    events = harness.rows(
        "select subject, event, detail ->> 'reason' from fencepost.events"
        " where noun = 'stream' order by event_id"
    )
    assert events == [
        (f"fencepost:{{jobs}}#{entry_id}", "poison", reason)
        for entry_id, (_, reason) in zip(ids, poison, strict=True)
    ]
    assert harness.metric("fencepost_jobs_claims_total", status="poison", reason="missing_field") == 2
    assert harness.metric("fencepost_jobs_claims_total", status="poison", reason="invalid_field") == 4


async def test_an_entry_of_a_job_that_is_not_there_is_acknowledged(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    harness.redis.xadd(
        "fencepost:{jobs}", {"job_id": 999, "enqueue_ts": 1, "payload_ref": "x", "priority": 1}
    )
    async with harness.working():
        await harness.until_empty()
    assert harness.refusals() == [("not_found", "claim")]
    assert harness.metric("fencepost_jobs_claims_total", status="refused", reason="not_found") == 1


async def test_a_payload_that_no_longer_fits_is_a_dead_letter(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def typed(job: Job, x: int) -> None: ...

    with harness.database.connect() as old_version:
        row = old_version.execute(
            "select job_id from fencepost.job_submit('default', 'typed', %s)",
            (json.dumps({"x": "one"}),),
        ).fetchone()
    assert row is not None
    async with harness.working():
        seen = await harness.until_state(row[0], "dead")
    assert (seen.error or "").startswith("payload_missing_or_invalid")
    assert (
        harness.metric("fencepost_jobs_claims_total", status="poison", reason="payload_missing_or_invalid")
        == 1
    )


async def test_a_result_that_is_too_large_harms_no_other_caller(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def answer(job: Job, size: int) -> str:
        return "".join(chr(0x4E00 + n % 20_000) for n in range(size))

    async with harness.fp.transaction() as tx:
        jobs = [(await answer.submit(tx, size=size)).job_id for size in (1, 200_000, 2)]
    async with harness.working():
        await harness.until_all_ended()
    assert [harness.job(job_id).state for job_id in jobs] == ["finished", "dead", "finished"]
    assert "result has" in (harness.job(jobs[1]).error or "")


async def test_a_job_that_kills_its_workers_ends_too(harness: JobHarness, clock: Clock) -> None:
    """Its tries are counted at the claim: no process survives to report the failure."""

    @harness.fp.job("default", tries=3, lease=60)
    async def never_runs(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        submitted = await never_runs.submit(tx)
    for n in range(3):
        with harness.database.connect() as victim:
            claimed = "select attempt from fencepost.job_claim(%s, %s)"
            assert victim.execute(claimed, (submitted.job_id, f"victim-{n}")).fetchone() == (n + 1,)
            clock.advance(61)
            victim.execute("select * from fencepost.job_reclaim(10)")
    seen = harness.job(submitted.job_id)
    assert (seen.state, seen.final_status, seen.tries) == ("dead", "worker_lost", 3)


async def test_each_failed_try_leaves_its_traceback_in_the_history_and_a_line_in_the_log(
    harness: JobHarness,
) -> None:
    @harness.fp.job("default", kind="stumble", tries=2, retry=lambda _tries, _error: Retry(0))
    async def stumble(job: Job) -> None:
        raise ValueError(f"try {job.tries}, password=hush")

    async with harness.fp.transaction() as tx:
        submitted = await stumble.submit(tx)
    with structlog.testing.capture_logs() as logs:
        async with harness.working():
            await harness.until_state(submitted.job_id, "dead")
    tracebacks = harness.rows(
        """select (detail ->> 'try')::integer, detail ->> 'traceback' from fencepost.explain(%s)
           where event = 'failed'""",
        (f"job:{submitted.job_id}",),
    )
    assert [number for number, _ in tracebacks] == [1, 2]
    for number, traceback in tracebacks:
        assert "in stumble" in traceback
        assert traceback.endswith(f"ValueError: try {number}, password=***")
    lines = [log for log in logs if log["event"] == "job_failed"]
    assert [(log["log_level"], log["try"], log["state"]) for log in lines] == [
        ("warning", 1, "pending"),
        ("error", 2, "dead"),
    ]
    assert [log["exception"] for log in lines] == [traceback for _, traceback in tracebacks]
