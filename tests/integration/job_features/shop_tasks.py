"""An application as a user writes it, for `fencepost worker`."""

import os
from pathlib import Path

from fencepost import Fencepost, Job, PermanentError
from fencepost.embedded._deadline import Deadline

fp = Fencepost.from_env()


@fp.every(3600)
@fp.job("mail")
async def send(job: Job, to: str = "all") -> str:
    return f"sent to {to}"


@fp.job("reports", tries=2)
def report(job: Job, n: int) -> int:
    if n == 3:
        raise PermanentError("three is not possible")
    return n * n


@fp.job("reports")
def slow(job: Job, begun: str, may_end: str) -> str:
    """Runs until it may end, as a handler does that cannot be stopped in its middle."""
    Path(begun).write_text(str(os.getpid()))
    Deadline(60, "it may end").wait(Path(may_end).exists)
    return "ended"
