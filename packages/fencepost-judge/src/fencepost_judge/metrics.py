"""The judge's metrics. No label has a value for each submission: the log identifies submissions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from prometheus_client import Counter, Gauge, Histogram

from fencepost.metrics import Metrics


@dataclass(frozen=True, slots=True)
class JudgeMetrics:
    """Sandbox runs, and judged submissions."""

    exec_seconds: Histogram
    exec_inflight: Gauge
    executions: Counter
    verdicts: Counter
    protocol_errors: Counter
    truncated: Counter
    foreign_attempts: Counter
    agent_failures: Counter
    sandbox_retries: Counter
    loop_errors: Counter
    listed: Gauge

    @classmethod
    def on(cls, metrics: Metrics) -> Self:
        return cls(
            exec_seconds=metrics.histogram(
                "judge_exec_duration_seconds", "Time of one run, as the judge sees it.", labels=("result",)
            ),
            exec_inflight=metrics.gauge("judge_exec_inflight", "Runs at this moment."),
            executions=metrics.counter("judge_exec", "Runs.", labels=("result",)),
            verdicts=metrics.counter("judge_verdict", "Submissions by verdict.", labels=("verdict",)),
            protocol_errors=metrics.counter(
                "judge_protocol_errors", "Answers of a box that were not understood.", labels=("reason",)
            ),
            truncated=metrics.counter(
                "judge_output_truncated", "Outputs of a box that were cut.", labels=("stream",)
            ),
            foreign_attempts=metrics.counter(
                "judge_foreign_attempt", "Answers that named another attempt than the claimed one."
            ),
            agent_failures=metrics.counter(
                "judge_agent_failures",
                "Agents that failed; the run went to a single box.",
                labels=("reason",),
            ),
            sandbox_retries=metrics.counter("judge_sandbox_retries", "Runs repeated after a sandbox error."),
            loop_errors=metrics.counter(
                "judge_loop_errors", "Ticks of the judge's loops that failed.", labels=("loop",)
            ),
            listed=metrics.gauge("judge_worker_listed", "1 while this worker is listed where others look."),
        )
