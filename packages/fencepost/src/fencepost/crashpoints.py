"""Named points at which a test may kill, stop or fail this process.

    crash_point("jobs.after_claim")

Outside tests the call has no effect: it iterates over an empty list. A test acts on the points of its own
process through `fencepost.testing`, and requests a crash in a process that it starts by the environment:

    FENCEPOST_CRASH=jobs.after_claim:kill      SIGKILL at the first hit
    FENCEPOST_CRASH=jobs.after_claim:stop@3    SIGSTOP at the third
        FENCEPOST_CRASH=a.b:raise,c.d:exit         several; exit leaves without any clean-up

A name is a literal of the form `noun.when` and occurs at one place only; a test checks that.
"""

import itertools
import os
import re
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NoReturn

VARIABLE = "FENCEPOST_CRASH"
EXIT_CODE = 70

Watcher = Callable[[str], None]

_ORDER = re.compile(r"(?P<name>[\w.]+):(?P<action>kill|stop|raise|exit)(?:@(?P<nth>[1-9]\d*))?")


class PlannedCrash(BaseException):
    """A test asked for a crash here. No `except Exception` survives it, as none survives a real crash."""


def crash_point(name: str) -> None:
    """A point where a test may request a crash. Free outside tests."""
    for watcher in _watchers:
        watcher(name)


@contextmanager
def watching(watcher: Watcher) -> Generator[None, None, None]:
    """Call `watcher` with the name of every point that any thread of this process reaches."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)


def ordered(environment: Mapping[str, str]) -> list[Watcher]:
    """The watchers that FENCEPOST_CRASH requests."""
    orders = environment.get(VARIABLE, "")
    return [_read(order.strip()) for order in orders.split(",") if order.strip()]


def _read(order: str) -> Watcher:
    match = _ORDER.fullmatch(order)
    if match is None:
        raise ValueError(
            f"{VARIABLE} has {order!r}; an order is name:kill, name:stop, name:raise or name:exit, "
            "with @3 behind it for the third time."
        )
    return at(match["name"], _ACTIONS[match["action"]], nth=int(match["nth"] or 1))


def at(name: str, action: Callable[[], object], *, nth: int = 1) -> Watcher:
    """A watcher that acts at the nth hit of one point, and at no other."""
    # next() of a count is atomic across threads.
    hits = itertools.count(1)

    def watcher(reached: str) -> None:
        if reached == name and next(hits) == nth:
            action()

    return watcher


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def crash() -> NoReturn:
    """Raises `PlannedCrash`, which no handler of `Exception` catches."""
    raise PlannedCrash


def _exit() -> NoReturn:
    os._exit(EXIT_CODE)


_ACTIONS: Mapping[str, Callable[[], object]] = {"kill": _kill, "stop": _stop, "raise": crash, "exit": _exit}

# One list per process, not a ContextVar: threads that the product starts must be watched too, and a new
# thread does not inherit a ContextVar.
_watchers: list[Watcher] = ordered(os.environ)
