"""Names that outboxes of orders used, for the dashboards and scripts of their operators."""

from __future__ import annotations

from fencepost.compatible_names import CompatibleNames, OldMetric, OldSetting

NAMES = CompatibleNames(
    metrics=(
        OldMetric("outbox_dequeue_total", "fencepost_orders_takes_total", ("result",)),
        OldMetric("outbox_send_total", "fencepost_orders_sends_total", ("outcome",)),
        OldMetric("outbox_inflight", "fencepost_orders_in_flight"),
        OldMetric("outbox_lag_seconds", "fencepost_orders_lag_seconds"),
        OldMetric("outbox_retry_count", "fencepost_orders_retries"),
    ),
    settings=(
        OldSetting("OUTBOX_BATCH_SIZE", "OUTBOX_BATCH", "outbox.batch_size"),
        OldSetting("OUTBOX_PARALLELISM", "OUTBOX_BATCHES", "outbox.parallelism"),
        OldSetting("OUTBOX_RETRY_MAX", "OUTBOX_RETRIES", "outbox.retry_max"),
        OldSetting("OUTBOX_IDLE_SLEEP_MS", "OUTBOX_IDLE_SEC", "outbox.idle_sleep_ms", factor=0.001),
        OldSetting("OUTBOX_STUCK_THRESHOLD_MIN", "OUTBOX_STUCK_SEC", "outbox.stuck_threshold_min", factor=60),
    ),
    views={
        "outbox_orders": (
            "id",
            "idempotency_key",
            "request_json",
            "request_digest",
            "status",
            "retry_count",
            "next_attempt_at",
            "last_error",
            "created_at",
            "updated_at",
        ),
        "idempo_ledger": ("idempotency_key", "request_digest", "result_digest", "expires_at"),
        "exec_result": ("idempotency_key", "broker_order_id", "status", "accepted_at", "fills"),
    },
)
