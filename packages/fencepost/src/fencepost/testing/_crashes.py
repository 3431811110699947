"""Actions at a crash point of the test's own process. For a crash of another process, use `Child`."""

from collections.abc import Callable, Generator
from contextlib import contextmanager

from fencepost import crashpoints
from fencepost.testing._errors import PointMissed


@contextmanager
def at_crash_point(name: str, action: Callable[[], object], *, nth: int = 1) -> Generator[None, None, None]:
    """Call `action` inside the code under test when it reaches the point for the nth time.

    That makes an interleaving exact: expire the lease there, take the job over there, raise there. A block
    that ends without reaching the point raises PointMissed: the test would have shown nothing.
    """
    acted: list[bool] = []

    def act() -> None:
        acted.append(True)
        action()

    with crashpoints.watching(crashpoints.at(name, act, nth=nth)):
        yield
    if not acted:
        raise PointMissed(f"{name} was not reached {nth} times.")


@contextmanager
def crash_at(name: str, *, nth: int = 1) -> Generator[None, None, None]:
    """Raise PlannedCrash when the point is reached for the nth time."""
    with at_crash_point(name, crashpoints.crash, nth=nth):
        yield
