"""The windows of a commit, as crash points: where a task may be ended, and what is durable there."""

from __future__ import annotations

from fencepost.flows.sinks._sink import Sink

PHASES = (
    "flows.commit.before_begin",
    "flows.commit.after_begin",
    "flows.commit.before_invoke",
    "flows.commit.after_pre_commit",
    "flows.commit.before_store",
    "flows.commit.after_store",
    "flows.commit.before_flag",
    "flows.commit.after_flag",
    "flows.ack.before",
    "flows.ack.after",
)
"""Where a commit in phases may end; `flows.commit.after_store` and `before_flag` leave it to recovery."""

TWO_PHASES = (*PHASES[:3], "flows.commit.after_invoke", *PHASES[3:])
"""Where a commit of a two-phase sink may end: also with every value written, and nothing prepared."""

WITHIN = (
    "flows.commit.before_fence",
    "flows.commit.after_fence",
    "flows.commit.before_commit",
    "flows.commit.after_commit",
    "flows.ack.before",
    "flows.ack.after",
)
"""Where a commit in one transaction may end."""

BETWEEN = "flows.commit.between_finishes"
"""Where a flow with several sinks has committed one of them."""

DURABLE = frozenset({*PHASES[PHASES.index("flows.commit.after_store") :], *WITHIN[-3:], BETWEEN})
"""Where the checkpoint is stored: recovery completes the commit, and its records are not read again."""


def windows_of(*sinks: Sink) -> tuple[str, ...]:
    """The crash points that a commit to these sinks goes through."""
    if not any(sink.two_phase or sink.staged for sink in sinks):
        return WITHIN
    windows = TWO_PHASES if any(sink.two_phase for sink in sinks) else PHASES
    return (*windows, BETWEEN) if len(sinks) > 1 else windows
