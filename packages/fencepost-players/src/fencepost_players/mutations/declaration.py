"""Declares a mutation: its name, its request, the state it needs, and its plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Generic, TypeVar, cast, get_type_hints

from pydantic import BaseModel

from fencepost_players.mutations.planning import Rng

R = TypeVar("R", bound=BaseModel)
S = TypeVar("S")
P = TypeVar("P")


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
                f"{method}: a plan takes a snapshot, a request (a pydantic model) and dice, annotated"
            )
        if kind.model_config.get("extra") != "forbid":
            raise TypeError(
                f"{method}: {kind.__name__} must forbid what it does not know: it could be a seed"
            )
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
