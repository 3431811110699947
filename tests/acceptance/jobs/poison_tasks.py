"""An application whose jobs are harmless, but for those that end their process."""

import asyncio
import ctypes
import os
import signal
import time

from fencepost import Fencepost, Job

LEASE_SECONDS = float(os.environ.get("POISON_LEASE_SEC", "6"))
fp = Fencepost.from_env()


def end_process(how: str) -> None:
    match how:
        case "exit":
            os._exit(1)
        case "segfault":
            ctypes.string_at(0)
        case "kill":  # As the system does when memory runs out.
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


@fp.job("storm", kind="on the loop", lease=LEASE_SECONDS)
async def on_the_loop(job: Job, linger: float, poison: str = "") -> None:
    await asyncio.sleep(linger)
    end_process(poison)


@fp.job("storm", kind="in a thread", lease=LEASE_SECONDS)
def in_a_thread(job: Job, linger: float, poison: str = "") -> None:
    time.sleep(linger)
    end_process(poison)
