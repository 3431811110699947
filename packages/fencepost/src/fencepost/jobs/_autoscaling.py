"""How many workers a queue wants: a hint for what starts and stops workers. Pure."""

from __future__ import annotations

import math


def wanted_workers(
    *, due: int, running: int, run_seconds: float, concurrency: int, within_seconds: float
) -> int:
    """Workers of this concurrency that would run what runs now, and work off what is due within the time.

    What runs now is the load that keeps coming in (Little's law); what is due needs places of its own for as
    long as it is there. A queue with any work wants one worker, an idle one none.
    """
    if due <= 0 and running <= 0:
        return 0
    places = running + due * run_seconds / within_seconds
    return max(1, math.ceil(places / concurrency))
