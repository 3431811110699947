"""How far back a claim looks.

Every claimed job leaves an entry in the index of pending jobs, which only a vacuum removes, and the oldest
come first. A worker that claims thousands of jobs would pass all of these each time. So a claim begins where
the worker's last claim did, and periodically scans everything: for jobs that were submitted long ago and
committed just now, and for jobs that were put back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from fencepost.kernel.job import Running
from fencepost.redis_streams.stream_names import PRIORITIES

WHOLE_SECONDS = 1.0
SLACK = timedelta(seconds=0.5)
"""A job that is committed at most this much later than its neighbours need not wait for the full scan."""


class ClaimCursor:
    """The claim position of one worker in one queue."""

    def __init__(self) -> None:
        self._since: list[datetime | None] = [None] * len(PRIORITIES)
        self._whole_at = -math.inf

    def since(self, now: float) -> Sequence[datetime | None] | None:
        """Where to begin in each priority; None for a full scan. `now` is from any monotonic clock."""
        if now - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = now
            return None
        return self._since

    def claimed(self, jobs: Sequence[Running]) -> None:
        """Records what the last claim returned. After a claim that returned nothing, the next is a full
        scan."""
        if not jobs:
            self._whole_at = -math.inf
        oldest: dict[int, datetime] = {}
        for job in jobs:
            if job.priority not in oldest or job.submitted_at < oldest[job.priority]:
                oldest[job.priority] = job.submitted_at
        for priority, moment in oldest.items():
            self._since[priority] = moment - SLACK
