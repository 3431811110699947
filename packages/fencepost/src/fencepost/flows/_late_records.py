"""Reports on late records: a few samples as text, and at intervals a line in the log."""

from __future__ import annotations

import time

from fencepost.flows._dead_letters import preview
from fencepost.flows._steps import Batch
from fencepost.kernel.call import Json
from fencepost.logs import get_logger

_log = get_logger(__name__)
SAMPLES_MAX = 5
LOG_SECONDS = 60.0


def late_samples(late: Batch) -> list[Json]:
    """The newest of them, with their times."""
    return [{"time": when, "record": preview(value)} for value, _, when, _ in late[-SAMPLES_MAX:]]


class LateLog:
    """Logs at most one line per minute for a task, however many records are late: the line has their
    number."""

    def __init__(self, flow: str, task: str) -> None:
        self._flow = flow
        self._task = task
        self._untold = 0
        self._tells_at = 0.0

    def saw(self, late: Batch) -> None:
        """Called after the commit that skips them."""
        self._untold += len(late)
        if not late or time.monotonic() < self._tells_at:
            return
        self._tells_at = time.monotonic() + LOG_SECONDS
        _log.warning(
            "flow_records_late",
            flow=self._flow,
            task=self._task,
            records=self._untold,
            samples=[sample["record"] for sample in late_samples(late)],
        )
        self._untold = 0
