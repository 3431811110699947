"""The three standard files of a program in a box, as descriptors."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BoxFiles:
    """Descriptors that the caller owns."""

    stdin: int
    stdout: int
    stderr: int

    def all(self) -> list[int]:
        return [self.stdin, self.stdout, self.stderr]


@contextmanager
def nothing_and_nowhere() -> Generator[BoxFiles]:
    """No input, and output that nobody reads."""
    descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        yield BoxFiles(descriptor, descriptor, descriptor)
    finally:
        os.close(descriptor)
