"""Declares a mutation (its name, its request, the state it needs, its plan), and makes the plan: without I/O,
with the server's own random seed.

The seed is drawn once for a request. A plan that is made again uses the same seed, and so does the request
when it fails and is sent again: the seed is recorded with it (`mutations/_recorded_seeds.py`). Otherwise a
caller that provokes conflicts could choose among the results.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, Generic, TypeVar, cast, final, get_type_hints
from uuid import UUID

from pydantic import BaseModel

P = TypeVar("P")
R = TypeVar("R", bound=BaseModel)
S = TypeVar("S")
T = TypeVar("T")
_KEY = object()


@final
class Rng:
    """A random generator, reproducible from its seed. The server draws the seed; no request carries one."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    @classmethod
    def throw(cls) -> Rng:
        """A generator with a new seed."""
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
        raise AssertionError("the draw lies below the sum of the weights")

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
                "A plan must come from make_plan, before the tries begin; do not construct it directly."
            )


def make_plan(plan: Callable[[Rng], P], rng: Rng | None = None) -> Planned[P]:
    """Plan with this Rng from its beginning, or with a new one."""
    rng = Rng.throw() if rng is None else Rng(rng.seed)
    made = plan(rng)
    return Planned(made, rng.seed, rng.is_thrown, _KEY)


@dataclass(frozen=True, slots=True)
class Mutation(Generic[R, S, P]):
    """One mutation. It cannot be called as a function: it runs only through a pipeline."""

    method: str
    request: type[R]
    needs: Callable[[R], Any]
    """Which part of the present state the plan is made from."""
    plan: Callable[[S, R, Rng], P]
    """Pure: makes a plan from the snapshot, the request and the Rng. Raises a MutationError to refuse."""

    @property
    def summary(self) -> str:
        """The first line of the plan's docstring."""
        return (self.plan.__doc__ or self.method).strip().splitlines()[0]


def mutation(
    method: str, *, needs: Callable[[R], Any]
) -> Callable[[Callable[[S, R, Rng], P]], Mutation[R, S, P]]:
    """Declare the plan function below it. The type of its second argument is the request."""

    def declare(plan: Callable[[S, R, Rng], P]) -> Mutation[R, S, P]:
        hints = get_type_hints(plan)
        names = [name for name in hints if name != "return"]
        kind: Any = hints[names[1]] if len(names) == 3 else None
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            raise TypeError(
                f"{method}: a plan takes a snapshot, a request (a pydantic model) and an Rng, all annotated"
            )
        if kind.model_config.get("extra") != "forbid":
            raise TypeError(f"{method}: {kind.__name__} must forbid unknown fields: one could be a seed")
        return Mutation(method, cast("type[R]", kind), needs, plan)

    return declare


def mutations_of(module: ModuleType) -> dict[str, Mutation[Any, Any, Any]]:
    """Every mutation that the module declares, by method. There is no separate list to keep up to date."""
    found: dict[str, Mutation[Any, Any, Any]] = {}
    for declared in _declared(module):
        if declared.method in found:
            raise TypeError(f"{module.__name__} declares {declared.method} twice")
        found[declared.method] = declared
    return found


def _declared(module: ModuleType) -> Iterator[Mutation[Any, Any, Any]]:
    for value in vars(module).values():
        if isinstance(value, Mutation):
            yield value
