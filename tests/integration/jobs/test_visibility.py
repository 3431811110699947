"""What operators see: metrics under the names they know, without ids, and logs with them."""

import structlog

from fencepost.jobs.job import Job
from fencepost.jobs.retry_policy import PermanentError
from fencepost.redis_streams.stream_names import PRIORITIES, stream_of
from tests.integration.jobs.harness import JobHarness, quick
from tests.takeover import TAKEN_OVER

# Name, and the labels that it has besides those that Prometheus adds.
PROMISED = {
    "worker_claim_total": {"status", "reason"},
    "worker_lease_heartbeat_total": {"status", "reason"},
    "worker_stale_attempt_total": set[str](),
    "worker_finalize_total": {"status"},
    "worker_finalize_rejected_total": {"reason"},
    "worker_finalize_errors_total": set[str](),
    "worker_finalize_latency_ms_bucket": {"le"},
    "worker_reclaim_total": {"status", "reason"},
    "worker_reclaim_latency_ms_bucket": {"le"},
    "worker_reclaim_inflight": set[str](),
    "api_outbox_dispatch_total": {"status", "reason"},
    "api_outbox_dispatch_latency_seconds_bucket": {"le"},
    "api_outbox_pending": {"queue"},
    "job_stream_length": {"stream"},
    "job_stream_pending": {"stream"},
    "job_stream_retention_window_seconds": {"stream"},
    "worker_acknowledge_errors_total": {"reason"},
    "job_swept_total": {"reason"},
    "worker_active_jobs": set[str](),
    "worker_drive_up": set[str](),
    "loop_errors_total": {"loop"},
}


async def test_every_promised_metric_is_there_and_none_carries_an_id(harness: JobHarness) -> None:
    @harness.fp.job("default", kind="good", lease=5)
    async def good(job: Job) -> None:
        async with job.finish() as tx:
            await tx.execute("insert into effect (job_id) values (%s)", (job.id,))

    @harness.fp.job("default", kind="bad")
    async def bad(job: Job) -> None:
        raise PermanentError

    async with harness.fp.transaction() as tx:
        jobs = [(await handler.submit(tx)).job_id for handler in (good, bad) for _ in range(700)]
    async with harness.working(quick(concurrency=200)):
        await harness.until_all_ended(within=60)
        await harness.until(
            "the window is estimated",
            lambda: "job_stream_retention_window_seconds" in {name for name, _ in harness.samples()},
        )
    families = {family.name: family for family in harness.fp.metrics.registry.collect()}
    for name, labels in PROMISED.items():
        family = name.removesuffix("_total").removesuffix("_bucket")
        assert family in families, f"{name} is promised"
        for sample in families[family].samples:
            if sample.name == name:
                assert set(sample.labels) == labels
    values = {value for _, labels in harness.samples() for value in labels.values() if "le" not in labels}
    assert values.isdisjoint({str(job_id) for job_id in jobs if job_id > 100})
    assert len(values) < 100, "a label has few values"


async def test_the_backlog_is_measured_in_redis_and_in_the_truth(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def nothing(job: Job) -> None: ...

    async with harness.fp.transaction() as tx:
        for _ in range(300):
            await nothing.submit(tx)
    # The stream takes fifty; nobody reads them, because they are all of a kind that runs elsewhere.
    harness.execute("update fencepost.job set kind = 'elsewhere'")
    async with harness.working(quick(stream_maxlen=100, batch=10, concurrency=1)):
        await harness.until(
            "some wait in the truth", lambda: harness.metric("api_outbox_pending", queue="default") > 100
        )
        stream = stream_of("deepoj:jobs", "default", 1)
        await harness.until(
            "some in the stream", lambda: harness.metric("job_stream_length", stream=stream) > 10
        )
    assert {labels["stream"] for name, labels in harness.samples() if name == "job_stream_length"} == {
        stream_of("deepoj:jobs", "default", priority) for priority in range(len(PRIORITIES))
    }


async def test_a_refused_finish_is_logged_with_its_job_and_its_reason(harness: JobHarness) -> None:
    @harness.fp.job("default")
    async def slow(job: Job) -> None:
        harness.execute(TAKEN_OVER)

    async with harness.fp.transaction() as tx:
        submitted = await slow.submit(tx)
    with structlog.testing.capture_logs() as logs:
        async with harness.working(quick(lease_seconds=120, heartbeat_seconds=60)):
            await harness.until("it was refused", lambda: harness.metric("worker_stale_attempt_total") == 1)
    [rejected] = [log for log in logs if log["event"] == "finalize_rejected"]
    assert (rejected["job_id"], rejected["attempt"], rejected["reason"]) == (
        submitted.job_id,
        1,
        "stale_attempt",
    )
    # And the truth has the row that it saw.
    assert harness.rows("select reason, seen ->> 'owner' from fencepost.refusals") == [
        ("stale_attempt", "successor")
    ]


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
