"""The judge's metrics. No label has a value for each submission: the log identifies submissions."""

from __future__ import annotations

from fencepost.metrics import MetricSet, counter, gauge, histogram


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
        "fencepost_judge_output_truncated", "Sandbox outputs that were truncated.", labels=("stream",)
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
    listed = gauge("fencepost_judge_worker_listed", "1 while this worker is registered.")
