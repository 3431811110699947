"""Ends a worker process with its parent, also when the parent was killed.

The parent keeps the write end of a pipe open and writes nothing. When the worker reads end-of-file, the
parent is gone, and the worker sends itself SIGTERM, which drains it.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

VARIABLE = "FENCEPOST_PARENT_PIPE"


def hold(environment: Mapping[str, str]) -> None:
    """Watch the pipe whose descriptor the parent has set in the environment, if any."""
    descriptor = environment.get(VARIABLE, "")
    if descriptor.isdecimal():
        threading.Thread(
            target=_wait, args=(int(descriptor),), name="fencepost-parent-watch", daemon=True
        ).start()


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
