"""What contestants see of the time and memory that secret tests took. Pure."""

from __future__ import annotations

from enum import StrEnum

TIME_STEP_MS = 100
MEMORY_STEP_KB = 16_384


class Figures(StrEnum):
    """A program controls its time and memory use, so each figure of a secret test can reveal its input."""

    SHOWN = "shown"
    ROUNDED = "rounded"  # Up, to steps of 100 ms and 16 MiB.
    WITHHELD = "withheld"
    OPEN = "open"  # As measured, and what the program wrote to its stderr.

    def time_ms(self, measured: int | None) -> int | None:
        return self._told(measured, TIME_STEP_MS)

    def mem_kb(self, measured: int | None) -> int | None:
        return self._told(measured, MEMORY_STEP_KB)

    def _told(self, measured: int | None, step: int) -> int | None:
        if self is Figures.WITHHELD or measured is None:
            return None
        return measured if self in (Figures.SHOWN, Figures.OPEN) else -(-measured // step) * step
