"""The judge's metrics. No label has a value for each submission: the log identifies submissions."""

from __future__ import annotations

from fencepost.metrics import Metrics, MetricSet, counter, gauge, histogram

VERDICT_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)


class JudgeMetrics(MetricSet):
    """Sandbox runs, and judged submissions."""

    run_seconds = histogram(
        "fencepost_judge_run_seconds", "Time of one run, as the judge sees it.", labels=("result",)
    )
    runs_in_progress = gauge("fencepost_judge_runs_in_progress", "Runs in progress.")
    runs = counter("fencepost_judge_runs", "Runs.", labels=("result",))
    verdicts = counter("fencepost_judge_verdicts", "Submissions by verdict.", labels=("verdict",))
    protocol_errors = counter(
        "fencepost_judge_protocol_errors",
        "Sandbox answers that could not be parsed.",
        labels=("reason",),
    )
    output_truncated = counter(
        "fencepost_judge_output_truncated",
        "Answers of single sandbox commands that were cut at their limit.",
        labels=("stream",),
    )
    foreign_attempts = counter(
        "fencepost_judge_foreign_attempts", "Answers that named another attempt than the claimed one."
    )
    agent_failures = counter(
        "fencepost_judge_agent_failures",
        "Resident sandboxes that failed; the run went to a single command.",
        labels=("reason",),
    )
    sandbox_retries = counter(
        "fencepost_judge_sandbox_retries", "Runs repeated after an error of the sandbox."
    )
    system_errors = counter(
        "fencepost_judge_system_errors",
        "Judgings that ended in a system error, blamed on this judge or charged to the submission.",
        labels=("reason", "outcome"),
    )
    loop_errors = counter(
        "fencepost_judge_loop_errors", "Ticks of the judge's loops that failed.", labels=("loop",)
    )
    store_waits = counter(
        "fencepost_judge_store_waits",
        "Tries of submissions that found the store of test data out of reach.",
    )
    verdict_seconds = histogram(
        "fencepost_judge_verdict_seconds",
        "From the submission to its verdict; rejudgings, which wait behind everything, are not counted.",
        buckets=VERDICT_SECONDS,
    )
    finish_seconds = histogram(
        "fencepost_judge_finish_seconds",
        "Time of the write that stores a verdict and ends its job, with its commit.",
    )
    listed = gauge(
        "fencepost_judge_worker_listed",
        "1 while this worker is registered and its lease has not run out.",
    )

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(metrics)
        # From the start, so that the first one is an increase: Prometheus sees none from nothing to 1.
        self.verdicts.labels(verdict="SE")
