"""Names that online judges on Redis Streams used, for the dashboards and scripts of their operators."""

from __future__ import annotations

from fencepost.compatible_names import CompatibleNames, OldMetric, OldSetting
from fencepost.jobs.retry_policy import RECLAIM_DECISIONS

_REFUSED_FINISH = {
    "not_running": "not_in_expected_state",
    "cancelled": "not_in_expected_state",
    "lease_expired": "lease_lost_or_owner_mismatch",
    "not_owner": "lease_lost_or_owner_mismatch",
    "in_flight": "lease_lost_or_owner_mismatch",
}
_BY_STATUS = ("status", "reason")

NAMES = CompatibleNames(
    metrics=(
        OldMetric("judge_exec_duration_seconds", "fencepost_judge_run_seconds", ("result",)),
        OldMetric("judge_exec_inflight", "fencepost_judge_runs_in_progress"),
        OldMetric("judge_exec_total", "fencepost_judge_runs_total", ("result",)),
        OldMetric("judge_verdict_total", "fencepost_judge_verdicts_total", ("verdict",)),
        OldMetric("judge_protocol_errors_total", "fencepost_judge_protocol_errors_total", ("reason",)),
        OldMetric("judge_output_truncated_total", "fencepost_judge_output_truncated_total", ("stream",)),
        OldMetric(
            "worker_claim_total",
            "fencepost_jobs_claims_total",
            _BY_STATUS,
            values={"reason": dict.fromkeys(RECLAIM_DECISIONS, "db_claim_reject")},
        ),
        OldMetric(
            "worker_lease_heartbeat_total",
            "fencepost_jobs_renewals_total",
            _BY_STATUS,
            values={"reason": {"db_error": "db_error_heartbeat"}},
        ),
        OldMetric(
            "worker_stale_attempt_total",
            "fencepost_jobs_outcomes_refused_total",
            where={"reason": ("stale_attempt",)},
        ),
        # Without jobs that were put back, which are not final.
        OldMetric(
            "worker_finalize_total",
            "fencepost_jobs_outcomes_total",
            ("status",),
            where={"status": ("ok", "rejected", "lost", "dead", "cancelled", "repeated")},
        ),
        OldMetric(
            "worker_finalize_rejected_total",
            "fencepost_jobs_outcomes_refused_total",
            ("reason",),
            values={"reason": _REFUSED_FINISH},
        ),
        OldMetric("worker_finalize_errors_total", "fencepost_jobs_outcome_errors_total"),
        OldMetric("worker_finalize_latency_ms", "fencepost_judge_finish_seconds", factor=1000),
        OldMetric("worker_reclaim_total", "fencepost_jobs_reclaims_total", _BY_STATUS),
        OldMetric("worker_reclaim_latency_ms", "fencepost_jobs_reclaim_seconds", factor=1000),
        OldMetric("worker_reclaim_inflight", "fencepost_jobs_reclaims_in_progress"),
        OldMetric("api_outbox_dispatch_total", "fencepost_jobs_dispatches_total", _BY_STATUS),
        OldMetric("api_outbox_dispatch_latency_seconds", "fencepost_jobs_dispatch_seconds"),
        OldMetric("api_outbox_pending", "fencepost_jobs_pending"),
    ),
    settings=(
        OldSetting("JOB_STREAM_KEY", "JOBS_STREAM_KEY", "api.stream.stream_key"),
        OldSetting("JOB_STREAM_GROUP", "JOBS_STREAM_GROUP", "worker.stream.group"),
        OldSetting("JOB_STREAM_CONSUMER", "JOBS_STREAM_CONSUMER", "worker.stream.consumer"),
        OldSetting("JOB_STREAM_MAXLEN", "JOBS_STREAM_MAXLEN", "api.stream.stream_maxlen"),
        OldSetting("WORKER_ID", "JOBS_WORKER_ID", "worker.id"),
        OldSetting("JOB_LEASE_SEC", "JOBS_LEASE_SEC", "worker.stream.lease_sec"),
        OldSetting("JOB_HEARTBEAT_SEC", "JOBS_HEARTBEAT_SEC", "worker.stream.heartbeat_sec"),
        OldSetting(
            "JOB_RECLAIM_INTERVAL_SEC", "JOBS_RECLAIM_INTERVAL_SEC", "worker.stream.reclaim_interval_sec"
        ),
        OldSetting("JOB_RECLAIM_COUNT", "JOBS_RECLAIM_COUNT", "worker.stream.reclaim_count"),
        OldSetting("JOB_RECLAIM_GRACE_SEC", "JOBS_RECLAIM_GRACE_SEC", "worker.stream.reclaim_grace_sec"),
    ),
    redis_keys={
        "JOBS_STREAM_KEY": "deepoj:jobs",
        "JOBS_STREAM_GROUP": "deepoj:workers",
        "JOBS_MAIN_QUEUE": "judge",
    },
    views={
        "submissions": (
            "job_id",
            "attempt_id",
            "status",
            "state",
            "lease_owner",
            "lease_until",
            "result",
            "created_at",
            "updated_at",
        ),
        "outbox_events": (
            "job_id",
            "payload",
            "status",
            "attempts",
            "next_attempt_at",
            "last_error",
            "dispatched_at",
            "stream_entry_id",
        ),
    },
    own=("JUDGE_STDOUT_LIMIT_BYTES", "JUDGE_STDERR_LIMIT_BYTES", "POST /submit", "GET /status/{job_id}"),
)
