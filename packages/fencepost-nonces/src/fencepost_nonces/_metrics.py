"""The metrics of a node."""

from __future__ import annotations

from fencepost.metrics import MetricSet, counter, gauge, histogram


class NonceMetrics(MetricSet):
    """Signers are ids and therefore not labels: the views and the log name the signer."""

    lease_acquire = counter(
        "fencepost_nonces_lease_acquire",
        "Times a signer was asked for: acquired, or held by another.",
        labels=("result", "mode"),
    )
    lease_renew = counter(
        "fencepost_nonces_lease_renew", "Leases of signers renewed, or lost.", labels=("result", "mode")
    )
    fence_reject = counter(
        "fencepost_nonces_fence_reject", "Writes refused by the signer's fence.", labels=("op",)
    )
    reserved = counter("fencepost_nonces_reserved", "Nonces given out, also to a repeat.")
    queue_depth = gauge("fencepost_nonces_queue_depth", "Requests that wait in this node.")
    queue_seconds = histogram(
        "fencepost_nonces_queue_seconds", "Time from a request to its answer: a nonce, or an error."
    )
    held_signers = gauge("fencepost_nonces_held_signers", "Signers that this node holds.")
    nodes = gauge("fencepost_nonces_nodes", "Nodes that are alive.")
    stuck_seconds = gauge(
        "fencepost_nonces_stuck_seconds",
        "Since the oldest transaction that is not mined was first signed, of all signers.",
    )
    waiting_seconds = gauge(
        "fencepost_nonces_waiting_seconds",
        "Since the oldest transaction that was never signed was taken in, of all signers.",
    )
    gaps = gauge("fencepost_nonces_gaps", "Nonces that were given back and not taken since, of all signers.")
    jamming_gaps = gauge(
        "fencepost_nonces_jamming_gaps", "Gaps below something that is under way, of all signers."
    )
    overdue = gauge(
        "fencepost_nonces_overdue",
        "Nonces of callers who have not said in their time what became of them, of all signers.",
    )
    recovering = gauge(
        "fencepost_nonces_recovering",
        "Signers of a restored backup for which nobody has said where they go on.",
    )
    in_doubt = gauge(
        "fencepost_nonces_in_doubt", "Transactions of a restored backup that may have been sent since."
    )
    unproved = gauge(
        "fencepost_nonces_unproved",
        "Signed transactions whose nonce is used for a minute, without a proof of who used it.",
    )
    contradictions = counter(
        "fencepost_nonces_contradictions",
        "Turns in which the answers of a chain's endpoints contradicted each other.",
    )
    transactions = counter(
        "fencepost_nonces_transactions",
        "Managed transactions that this process brought to their end.",
        labels=("state",),
    )
    loop_errors = counter("fencepost_nonces_loop_errors", "Turns of a loop that failed.", labels=("loop",))
