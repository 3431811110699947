"""Named moments that a test may wait for instead of sleeping.

    announce("worker.idle")

Outside tests nobody listens: the call walks an empty list. A test hears the moments of its own process, and
of every process below it, through `fencepost.testing.Signals`. To those processes FENCEPOST_SIGNALS names a
unix socket; an announcement is one datagram with the name, so any descendant may send it, from any thread.
"""

import os
import socket
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress

VARIABLE = "FENCEPOST_SIGNALS"

Listener = Callable[[str], None]


def announce(name: str) -> None:
    """Something happened that a test may be waiting for. Free outside tests."""
    for listener in _listeners:
        listener(name)


@contextmanager
def listening(listener: Listener) -> Generator[None, None, None]:
    """Call `listener` with the name of whatever any thread of this process announces."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def ordered(environment: Mapping[str, str]) -> list[Listener]:
    """What FENCEPOST_SIGNALS asks for."""
    path = environment.get(VARIABLE, "")
    return [_post_to(path)] if path else []


def _post_to(path: str) -> Listener:
    def post(name: str) -> None:
        # A socket for each: a kept one would be shared with children that were forked. The test may be over.
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post_office, suppress(OSError):
            post_office.sendto(name.encode(), path)

    return post


# One list a process, for the reason given in crashpoints.
_listeners: list[Listener] = ordered(os.environ)
