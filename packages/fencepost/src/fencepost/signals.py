"""Named events that a test may wait for instead of sleeping.

    announce("worker.idle")

Outside tests the call has no effect: it iterates over an empty list. A test receives the events of its own
process, and of every process below it, through `fencepost.testing.Signals`. For those processes,
FENCEPOST_SIGNALS names a unix socket; each event is one datagram with its name, so any descendant may send
it, from any thread.
"""

import os
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress

VARIABLE = "FENCEPOST_SIGNALS"

Listener = Callable[[str], None]


def announce(name: str) -> None:
    """Announce an event that a test may be waiting for. Free outside tests."""
    for listener in _listeners:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Generator[None, None, None]:
    """Call `listener` with the name of every event that any thread of this process announces."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def ordered(environment: Mapping[str, str]) -> list[Listener]:
    """The listeners that FENCEPOST_SIGNALS requests."""
    path = environment.get(VARIABLE, "")
    return [_post_to(path)] if path else []


def _post_to(path: str) -> Listener:
    def post(name: str) -> None:
        # A new socket each time: a kept one would be shared with forked children. The test may have ended.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post_office, suppress(OSError):
            post_office.sendto(name.encode(), path)

    return post


# One list per process, for the reason given in crashpoints.
_listeners: list[Listener] = ordered(os.environ)
