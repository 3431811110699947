"""What operators see: metrics without ids, and logs with them."""

import pytest
import structlog

from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import PermanentError
from fencepost.kernel import job as kernel_job
from fencepost.kernel.job import SubmitOptions
from fencepost.redis_streams.stream_names import PRIORITIES, stream_of
from tests.integration.jobs.harness import JobHarness, quick
from tests.takeover import TAKEN_OVER

# Name, and the labels that it has besides those that Prometheus adds.
PROMISED = {
    "fencepost_jobs_claims_total": {"queue", "kind", "status", "reason"},
    "fencepost_jobs_renewals_total": {"queue", "kind", "status", "reason"},
    "fencepost_jobs_outcomes_total": {"queue", "kind", "status"},
    "fencepost_jobs_outcomes_refused_total": {"queue", "kind", "reason"},
    "fencepost_jobs_outcome_errors_total": set[str](),
    "fencepost_jobs_run_seconds_bucket": {"queue", "kind", "le"},
    "fencepost_jobs_reclaims_total": {"status", "reason"},
    "fencepost_jobs_reclaim_seconds_bucket": {"le"},
    "fencepost_jobs_reclaims_in_progress": set[str](),
    "fencepost_jobs_dispatches_total": {"queue", "status", "reason"},
    "fencepost_jobs_dispatch_seconds_bucket": {"queue", "le"},
    "fencepost_jobs_pending": {"queue"},
    "fencepost_jobs_stream_length": {"stream"},
    "fencepost_jobs_stream_pending": {"stream"},
    "fencepost_jobs_stream_retention_seconds": {"stream"},
    "fencepost_jobs_acknowledge_errors_total": {"reason"},
    "fencepost_jobs_redispatches_total": {"queue", "reason"},
    "fencepost_jobs_held": set[str](),
    "fencepost_jobs_redis_up": set[str](),
    "fencepost_jobs_loop_errors_total": {"loop"},
}


async def test_every_promised_metric_is_there_and_none_carries_an_id(harness: JobHarness) -> None:
    @harness.fp.job("default", kind="good", lease=60)
    async def good(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("insert into effect (job_id) values (%s)", (job.id,))

    @harness.fp.job("default", kind="bad")
    async def bad(job: Job) -> None:
        raise PermanentError

    async with harness.fp.transaction() as tx:
        jobs = [(await handler.submit(tx)).job_id for handler in (good, bad) for _ in range(700)]
    async with harness.working(quick(concurrency=200)):
        await harness.until_all_ended(within=240)
        await harness.until(
            "the window is estimated",
            lambda: "fencepost_jobs_stream_retention_seconds" in {name for name, _ in harness.samples()},
        )
    families = {family.name: family for family in harness.fp.metrics.registry.collect()}
    for name, labels in PROMISED.items():
        family = name.removesuffix("_total").removesuffix("_bucket")
        assert family in families, f"{name} is promised"
        for sample in families[family].samples:
            if sample.name == name:
                assert set(sample.labels) == labels
    assert harness.metric("fencepost_jobs_outcomes_total", queue="default", kind="good", status="ok") == 700
    assert harness.metric("fencepost_jobs_run_seconds_count", queue="default", kind="bad") >= 700
    values = {value for _, labels in harness.samples() for value in labels.values() if "le" not in labels}
    assert values.isdisjoint({str(job_id) for job_id in jobs if job_id > 100})
    assert len(values) < 100, "a label has few values"


async def test_the_backlog_is_measured_in_redis_and_in_the_truth(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        for _ in range(300):
            await nothing.submit(tx)
    # The stream takes fifty; they are not read, because they are all of a kind that runs elsewhere.
    harness.execute("update fencepost.job set kind = 'elsewhere'")
    async with harness.working(quick(stream_maxlen=100, batch=10, concurrency=1)):
        await harness.until(
            "some wait in the truth", lambda: harness.metric("fencepost_jobs_pending", queue="default") > 100
        )
        stream = stream_of("fencepost:{jobs}", "default", 1)
        await harness.until(
            "some in the stream", lambda: harness.metric("fencepost_jobs_stream_length", stream=stream) > 10
        )
    assert {
        labels["stream"] for name, labels in harness.samples() if name == "fencepost_jobs_stream_length"
    } == {stream_of("fencepost:{jobs}", "default", priority) for priority in range(len(PRIORITIES))}


@pytest.mark.parametrize("how", ["bare", "own transaction", "failure"])
async def test_a_refused_outcome_is_logged_with_its_job_its_reason_and_what_was_seen(
    harness: JobHarness, how: str
) -> None:
    @harness.fp.job("default")
    async def slow(job: Job) -> None:
        harness.execute(TAKEN_OVER)
        if how == "failure":
            raise ValueError("too late")
        if how == "own transaction":
            async with job.finish():
                raise AssertionError("a stale attempt came past its fence")

    async with harness.fp.transaction() as tx:
        submitted = await slow.submit(tx)
    with structlog.testing.capture_logs() as logs:
        async with harness.working(quick(lease_seconds=120, heartbeat_seconds=60)):
            await harness.until(
                "it was refused",
                lambda: harness.metric("fencepost_jobs_outcomes_refused_total", reason="stale_attempt") == 1,
            )
    [rejected] = [log for log in logs if log["event"] == "finalize_rejected"]
    assert (rejected["job_id"], rejected["attempt"], rejected["reason"]) == (
        submitted.job_id,
        1,
        "stale_attempt",
    )
    assert (rejected["seen"]["state"], rejected["seen"]["owner"]) == ("running", "successor")
    assert rejected.keys() >= {"kind", "queue", "try", "trace_id"}
    # And the truth has the row that it saw.
    assert harness.rows("select reason, seen ->> 'owner' from fencepost.refusals") == [
        ("stale_attempt", "successor")
    ]


@pytest.mark.parametrize("headers", [{"trace_id": "of the caller"}, {}])
async def test_a_lost_job_is_logged_with_its_kind_its_queue_and_its_trace(
    harness: JobHarness, headers: dict[str, str]
) -> None:
    @harness.fp.job("default", kind="note")
    async def note(job: Job) -> None: ...

    call = kernel_job.submit("default", "note", {}, SubmitOptions(), headers=headers)
    job_id = (await harness.fp.run(call)).job_id
    await harness.fp.run(kernel_job.claim(job_id, "lost", lease_seconds=0.01))
    with structlog.testing.capture_logs() as logs:
        async with harness.working():
            await harness.until_state(job_id, "finished")
    [lost] = [log for log in logs if log["event"] == "worker_lost"]
    assert lost == {
        "event": "worker_lost",
        "log_level": "warning",
        "job_id": job_id,
        "kind": "note",
        "queue": "default",
        "attempt": 1,
        "trace_id": headers.get("trace_id") or f"{job_id:032x}",
        "owner": "lost",
        "state": "pending",
        "charged": True,
    }


async def test_what_a_handler_logs_carries_its_job(harness: JobHarness) -> None:
    @harness.fp.job("default", kind="in a thread")
    def sync(job: Job) -> None:
        seen.append(structlog.contextvars.get_contextvars())

    @harness.fp.job("default", kind="on the loop")
    async def on_loop(job: Job) -> None:
        seen.append(structlog.contextvars.get_contextvars())

    seen: list[dict[str, object]] = []
    async with harness.fp.transaction() as tx:
        traced = [handler.options(headers={"trace_id": "of the caller"}) for handler in (sync, on_loop)]
        jobs = [(await handler.submit(tx)).job_id for handler in traced]
    async with harness.working():
        await harness.until_all_ended()
    assert sorted(str(context["job_id"]) for context in seen) == sorted(map(str, jobs))
    assert all((context["attempt"], context["trace_id"]) == (1, "of the caller") for context in seen)
