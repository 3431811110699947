"""Names that allocators of nonces used, for the dashboards and scripts of their operators."""

from __future__ import annotations

from fencepost.compatible_names import CompatibleNames, OldMetric

_ACQUIRES = "fencepost_nonces_lease_acquire_total"
_RENEWALS = "fencepost_nonces_lease_renew_total"

NAMES = CompatibleNames(
    metrics=(
        OldMetric("lease_acquire_success_total", _ACQUIRES, where={"result": ("acquired", "renewed")}),
        OldMetric("lease_acquire_fail_total", _ACQUIRES, where={"result": ("not_owner",)}),
        OldMetric("lease_renew_success_total", _RENEWALS, where={"result": ("renewed",)}),
        OldMetric("lease_renew_fail_total", _RENEWALS, where={"result": ("lost",)}),
        OldMetric(
            "fence_reject_count_total",
            "fencepost_nonces_fence_reject_total",
            ("op",),
            values={"op": {"used": "markUsed", "recyclable": "markRecyclable"}},
        ),
        OldMetric("worker_queue_depth", "fencepost_nonces_queue_depth"),
        OldMetric("worker_queue_latency_seconds", "fencepost_nonces_queue_seconds"),
    ),
    views={
        "signer_lease": (
            "signer",
            "owner_node",
            "fencing_token",
            "acquired_at",
            "expires_at",
            "updated_at",
        ),
        "signer_nonce_allocation": (
            "signer",
            "nonce",
            "status",
            "locked_until",
            "fencing_token",
            "tx_hash",
            "created_at",
            "updated_at",
        ),
        "managed_transaction": ("signer", "nonce", "fencing_token"),
    },
)
