"""The three standard files of a program in a box, as descriptors."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class BoxFiles:
    """Descriptors that the caller owns.

    `pipes` says that stdin and stdout lead to another program. They are closed as soon as the box has them:
    while this process held an end, the other program would never see the end of file.
    """

    stdin: int
    stdout: int
    stderr: int
    pipes: bool = False

    def all(self) -> list[int]:
        return [self.stdin, self.stdout, self.stderr]

    def hand_over(self) -> None:
        """Close the pipes: the box has its own copies now. Can be repeated."""
        if self.pipes and self.stdin >= 0:
            os.close(self.stdin)
            os.close(self.stdout)
            self.stdin = self.stdout = -1


@contextmanager
def nothing_and_nowhere() -> Generator[BoxFiles]:
    """Empty input, and output that is discarded."""
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield BoxFiles(descriptor, descriptor, descriptor)
    finally:
        os.close(descriptor)
