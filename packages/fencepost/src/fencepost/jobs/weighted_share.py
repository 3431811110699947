"""Whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence


class WeightedShare:
    """Shares places by weight, and remembers between calls who was short.

    A busy worker asks for one place at a time. Shares that were computed anew each time would give that place
    to the heaviest for ever, and starve the others. This is smooth weighted round robin: every place gives
    each of them its weight, and goes to whoever has gathered most, who pays the sum.

    >>> turns = Turns([2, 1])
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
        """How many of the places each of them gets now."""
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
