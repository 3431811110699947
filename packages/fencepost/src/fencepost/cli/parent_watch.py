"""A worker process ends with the one that started it, also when that was killed.

The starter keeps one end of a pipe open and says nothing. When the other end reads its end, the starter is
gone, and the worker drains as if it had been asked to.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Mapping

VARIABLE = "FENCEPOST_LIFELINE"


def hold(environment: Mapping[str, str]) -> None:
    """Hold the lifeline that the starter has left in the environment, if any."""
    descriptor = environment.get(VARIABLE, "")
    if descriptor.isdecimal():
        threading.Thread(
            target=_wait, args=(int(descriptor),), name="fencepost-lifeline", daemon=True
        ).start()


def _wait(descriptor: int) -> None:
    os.read(descriptor, 1)
    os.kill(os.getpid(), signal.SIGTERM)
