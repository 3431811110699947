"""How long a task gathers records before it commits."""

from __future__ import annotations

from fencepost.flows._settings import FlowSettings

SOONEST_SECONDS = 0.05
COMMIT_TIMES = 4
"""A commit is followed by this many times its own duration, so that commits take a fifth of the time."""


class CommitPace:
    """Soon while the task has caught up and commits are cheap; by the interval while it is behind, since a
    commit then only delays the records that wait.

    An interval that was set counts as it is, and so it does if effects follow a commit: each commit is then a
    file, a request or a transaction elsewhere.
    """

    def __init__(self, settings: FlowSettings, *, groups: int | None, follows: bool) -> None:
        self._interval_seconds = settings.interval_seconds
        self._is_fixed = follows or not settings.adapts_interval
        # A forwarder that is behind sends full batches, divided among the groups.
        self._many = settings.batch / (groups or 1) / 2
        self._is_behind = False
        self._commit_seconds = 0.0

    def read(self, count: int) -> None:
        """`count` is the most records that one sender had for a read."""
        self._is_behind = count >= self._many

    def committed(self, seconds: float) -> None:
        self._commit_seconds = seconds

    @property
    def wait_seconds(self) -> float:
        """The time from one commit to the next."""
        if self._is_fixed or self._is_behind:
            return self._interval_seconds
        return min(self._interval_seconds, max(SOONEST_SECONDS, COMMIT_TIMES * self._commit_seconds))
