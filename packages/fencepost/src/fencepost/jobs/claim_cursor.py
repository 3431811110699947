"""How far back a claim looks.

Every claimed job leaves an entry in the index of those that wait, which only a vacuum removes, and the oldest
come first. Whoever claims by the thousand would pass all of them each time. So he begins where his last claim
did, and looks at everything once in a while: for what was submitted long ago and committed just now, and for
what was put back.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta

from fencepost.kernel.job import Running
from fencepost.redis_streams.stream_names import LANES

WHOLE_SECONDS = 1.0
SLACK = timedelta(seconds=0.5)
"""So much later than those beside it a job may be committed, and need not wait for the look at everything."""


class ClaimCursor:
    """Of one queue, for one worker."""

    def __init__(self) -> None:
        self._since: list[datetime | None] = [None] * len(LANES)
        self._whole_at = -math.inf

    def since(self, now: float) -> Sequence[datetime | None] | None:
        """Where to begin in each lane; None for everything. `now` is by any steady clock."""
        if now - self._whole_at >= WHOLE_SECONDS:
            self._whole_at = now
            return None
        return self._since

    def claimed(self, jobs: Sequence[Running]) -> None:
        """What the last claim brought. After one that brought nothing everything is looked at."""
        if not jobs:
            self._whole_at = -math.inf
        oldest: dict[int, datetime] = {}
        for job in jobs:
            if job.lane not in oldest or job.submitted_at < oldest[job.lane]:
                oldest[job.lane] = job.submitted_at
        for lane, moment in oldest.items():
            self._since[lane] = moment - SLACK
