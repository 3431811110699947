"""The metrics of a node."""

from __future__ import annotations

from fencepost.metrics import MetricSet, counter, gauge, histogram


class NonceMetrics(MetricSet):
    """Signers are ids and therefore not labels: the views and the log name the signer. Only the balances have
    them, of at most a hundred: an account without funds must be named by its alert."""

    lease_acquire = counter(
        "fencepost_nonces_lease_acquire",
        "Attempts to acquire a signer, by result.",
        labels=("result", "mode"),
    )
    lease_renew = counter(
        "fencepost_nonces_lease_renew", "Leases of signers renewed, or lost.", labels=("result", "mode")
    )
    fence_reject = counter(
        "fencepost_nonces_fence_reject", "Writes refused by the signer's fence.", labels=("op",)
    )
    reserved = counter("fencepost_nonces_reserved", "Nonces handed out, including repeats.")
    queue_depth = gauge("fencepost_nonces_queue_depth", "Requests waiting in this node.")
    queue_seconds = histogram(
        "fencepost_nonces_queue_seconds", "Time from a request to its answer: a nonce, or an error."
    )
    held_signers = gauge("fencepost_nonces_held_signers", "Signers that this node holds.")
    nodes = gauge("fencepost_nonces_nodes", "Nodes that are alive.")
    stuck_seconds = gauge(
        "fencepost_nonces_stuck_seconds",
        "Age of the oldest signed transaction that is not mined, over all signers.",
    )
    waiting_seconds = gauge(
        "fencepost_nonces_waiting_seconds",
        "Age of the oldest accepted transaction that was never signed, over all signers.",
    )
    gaps = gauge("fencepost_nonces_gaps", "Nonces that were released and not reused yet, over all signers.")
    jamming_gaps = gauge(
        "fencepost_nonces_jamming_gaps", "Gaps below a nonce that is in use, over all signers."
    )
    overdue = gauge(
        "fencepost_nonces_overdue",
        "Nonces whose callers did not report an outcome in time, over all signers.",
    )
    recovering = gauge(
        "fencepost_nonces_recovering",
        "Signers of a restored backup whose next nonce has not been confirmed yet.",
    )
    in_doubt = gauge(
        "fencepost_nonces_in_doubt", "Transactions of a restored backup that may have been sent since."
    )
    unproved = gauge(
        "fencepost_nonces_unproved",
        "Signed transactions whose nonce was used more than a minute ago, with no proof by which "
        "transaction.",
    )
    contradictions = counter(
        "fencepost_nonces_contradictions",
        "Rounds in which the endpoints of a chain contradicted each other.",
    )
    balance = gauge(
        "fencepost_nonces_balance",
        "Balance of a signer in the coin of its chain, of at most a hundred signers.",
        labels=("chain", "signer"),
    )
    balance_min = gauge(
        "fencepost_nonces_balance_min",
        "The balance below which a signer of the chain needs funds: NONCES_BALANCE_MIN.",
        labels=("chain",),
    )
    unwatched_balances = gauge(
        "fencepost_nonces_unwatched_balances", "Signers beyond the hundred whose balances are watched."
    )
    transactions = counter(
        "fencepost_nonces_transactions",
        "Managed transactions that this process completed.",
        labels=("state",),
    )
    loop_errors = counter("fencepost_nonces_loop_errors", "Loop ticks that failed.", labels=("loop",))
