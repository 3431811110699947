"""Processes of a run with a bug in them: the product itself has no such switch."""

import atexit
from contextlib import ExitStack

from fencepost_torture import _process_main
from tests.gallery.mutants import planted


def prepare_planted(mutant: str, *systems: str) -> None:
    """The bug stays until the process ends, and all forks of it have the bug."""
    stack = ExitStack()
    atexit.register(stack.close)
    stack.enter_context(planted(mutant))
    _process_main.prepare(*systems)
