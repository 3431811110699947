"""Python's collector of cycles, in a process that only works."""

from __future__ import annotations

import gc

ALLOCATIONS_BETWEEN_LOOKS = 20_000


def freeze_collected_objects() -> None:
    """What is loaded by now stays: a collector that walks it for every few hundred jobs takes a fifth of
    their time. For processes of ours; a library does not decide that for its users."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(ALLOCATIONS_BETWEEN_LOOKS, 10, 10)
