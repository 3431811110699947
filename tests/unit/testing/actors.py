"""What the children of these tests run. Only what a child needs is imported here."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

from fencepost import crashpoints
from fencepost.crashpoints import crash_point
from fencepost.signals import announce


def greet(name: str, times: int) -> None:
    for _ in range(times):
        sys.stdout.write(f"hello {name}\n")


async def greet_later(name: str) -> None:
    await asyncio.sleep(0)
    greet(name, 1)


def echo() -> None:
    for line in sys.stdin:
        sys.stdout.write(f"heard {line}")


def fail() -> None:
    raise RuntimeError("the reason")


def three_turns(log: str) -> None:
    for turn in range(3):
        with Path(log).open("a") as file:
            file.write(f"{turn}\n")
        crash_point("actor.turn")
        announce("actor.turned")


def start_another_that_announces() -> None:
    code = "from fencepost.signals import announce; announce('grandchild.spoke')"
    subprocess.run([sys.executable, "-c", code], check=True)


def parent_of_a_sleeper() -> None:
    """Starts a child that would live for ever, says who it is, and waits to be killed."""
    from fencepost.testing import Child

    with Child(wait_for_ever) as child:
        child.line("waiting")
        child.stop()
        sys.stdout.write(f"sleeper {child.pid}\n")
        sys.stdin.read()


def leave_traces() -> None:
    """Says what it finds, and leaves something of everything that a process has."""
    found = [Path.cwd().name, os.environ.get("TRACE"), crashpoints.__dict__.get("TRACE"), sys.path[0]]
    sys.stdout.write(f"found {found}\n")
    os.environ["TRACE"] = "left"
    crashpoints.__dict__["TRACE"] = "left"
    sys.path.insert(0, "left")


async def end_with_a_thread() -> None:
    """Ends while a thread still works, as a program may."""

    def work() -> None:
        sys.stdin.readline()
        crash_point("actor.turn")

    threading.Thread(target=work).start()
    sys.stdout.write("done\n")


def wait_for_ever() -> None:
    sys.stdout.write(f"waiting {os.getpid()}\n")
    sys.stdin.read()
