"""The plan of a mutation: made without I/O, with the server's own random seed.

The seed is drawn once for a request. A plan that is made again uses the same seed, and so does the request
when it fails and is sent again: the seed is recorded with it (`mutations/dice.py`). Otherwise a caller that
provokes conflicts could choose among the results.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar, final
from uuid import UUID

P = TypeVar("P")
T = TypeVar("T")
_KEY = object()


@final
class Rng:
    """A random generator, reproducible from its seed. The server draws the seed; no request carries one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @classmethod
    def throw(cls) -> Rng:
        return cls(secrets.randbits(128))

    @property
    def is_thrown(self) -> bool:
        """Whether anything was drawn."""
        return "_random" in self.__dict__

    @cached_property
    def _random(self) -> random.Random:
        """Made by the first draw: most plans draw nothing."""
        return random.Random(self.seed)  # noqa: S311 - The seed is from the system's secret source.

    def below(self, bound: int) -> int:
        """A number from 0 to below the bound."""
        return self._random.randrange(bound)

    def pick(self, choices: list[tuple[T, int]]) -> T:
        """One of the choices, by weight."""
        place = self.below(sum(weight for _, weight in choices))
        for choice, weight in choices:
            place -= weight
            if place < 0:
                return choice
        raise AssertionError("the place lies below the sum of the weights")

    def identity(self) -> UUID:
        """A new id, the same for the same seed and position."""
        return UUID(int=self._random.getrandbits(128), version=4)


@final
@dataclass(frozen=True, slots=True)
class Planned(Generic[P]):
    """A plan that was made. Only `make_plan` makes one, so nothing is executed that was not planned."""

    plan: P
    seed: int
    is_by_chance: bool
    key: object

    def __post_init__(self) -> None:
        if self.key is not _KEY:
            raise TypeError(
                "A plan comes from make_plan, before the tries begin; it is not put together by hand."
            )


def make_plan(plan: Callable[[Rng], P], dice: Rng | None = None) -> Planned[P]:
    """Plan with this Rng from its beginning, or with a new one."""
    dice = Rng.throw() if dice is None else Rng(dice.seed)
    made = plan(dice)
    return Planned(made, dice.seed, dice.is_thrown, _KEY)
