"""Smooth weighted round robin."""

from __future__ import annotations

from collections.abc import Sequence


class WeightedShare:
    """Shares places by weight, and remembers between calls which share was short.

    A busy worker asks for one place at a time. Shares that were computed anew each time would always give
    that place to the heaviest, and starve the others. This is smooth weighted round robin: every place adds
    to each its weight, and goes to the one with the highest sum, which then pays the total weight.

    >>> turns = WeightedShare([2, 1])
    >>> [turns.share(1) for _ in range(3)]
    [[1, 0], [0, 1], [1, 0]]
    >>> turns.share(30)
    [20, 10]
    """

    def __init__(self, weights: Sequence[int]) -> None:
        assert all(weight > 0 for weight in weights), "a weight of nothing would starve"
        self._weights = list(weights)
        self._gathered = [0] * len(weights)

    def share(self, places: int) -> list[int]:
        """How many of the places each one gets now."""
        total = sum(self._weights)
        rounds, rest = divmod(places, total) if total else (0, 0)
        given = [weight * rounds for weight in self._weights]
        for _ in range(rest):
            for index, weight in enumerate(self._weights):
                self._gathered[index] += weight
            winner = self._gathered.index(max(self._gathered))
            self._gathered[winner] -= total
            given[winner] += 1
        return given
