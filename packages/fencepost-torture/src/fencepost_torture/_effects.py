"""Rules that every history of effects must keep, in any system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fencepost.testing import Breach

LOST = "lost"
DOUBLED = "doubled"
UNDECIDED = "undecided"
"""Neither a breach nor a proof that there is none: a run with one of these is void."""


def exactly_once(asked: Iterable[str], done: Iterable[str]) -> list[Breach]:
    """Everything that was asked for took effect exactly once, and nothing else did."""
    wanted = set(asked)
    times = Counter(done)
    return [
        *(Breach(LOST, key, "was requested and never took effect") for key in sorted(wanted - times.keys())),
        *(
            Breach(DOUBLED, key, f"took effect {count} times")
            for key, count in sorted(times.items())
            if count > 1
        ),
        *(
            Breach("unrequested", key, "took effect, and was never requested")
            for key in sorted(times.keys() - wanted)
        ),
    ]


def in_order(rule: str, sequence: Iterable[tuple[str, int]]) -> list[Breach]:
    """For each key the numbers only grow, in the order in which the effects were made."""
    highest: dict[str, int] = {}
    found: list[Breach] = []
    for key, number in sequence:
        before = highest.get(key, number)
        if number < before:
            found.append(Breach(rule, key, f"{number} came after {before}"))
        highest[key] = max(before, number)
    return found
