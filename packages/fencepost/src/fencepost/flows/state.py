"""Keyed state: a mapping that tracks what changed since the last commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import msgspec

from fencepost.flows.record import IdempotentRecord


def as_key(value: Any) -> Any:
    """Convert a stored key. Lists were tuples: no key is a list, and older checkpoints have no tag for
    tuples."""
    return tuple(as_key(part) for part in value) if isinstance(value, list) else value  # pyright: ignore[reportUnknownVariableType]


def keep(value: Any) -> Any:
    return value


class KeyedState:
    """The state of one step. `values` is the step's own dict; code that changes a key adds it to `dirty`.

    A change is written as pairs and removals, so the cost of a commit depends on what changed, not on the
    size of the state.
    """

    def __init__(self, revive: Callable[[Any], Any] = keep, *, declared: bool = False) -> None:
        """With `declared`, the type of the values is known: they are stored as plain data and converted
        back by it."""
        self.declared = declared
        self.values: dict[Any, Any] = {}
        self.dirty: set[Any] = set()
        self._revive = revive

    def put(self, key: Any, value: Any) -> None:
        self.values[key] = value
        self.dirty.add(key)

    def remove(self, key: Any) -> None:
        if key in self.values:
            del self.values[key]
            self.dirty.add(key)

    def delta(self) -> list[Any]:
        """The changes as pairs; a pair without a value is a removal."""
        values = self.values
        return [[key, values[key]] if key in values else [key] for key in self.dirty]

    def whole(self) -> Collection[Any]:
        return self.values.items()

    def clean(self) -> None:
        self.dirty.clear()

    def load(self, pairs: Iterable[list[Any]]) -> None:
        """Apply what `whole` or `delta` returned."""
        for pair in pairs:
            key = as_key(pair[0])
            if len(pair) == 1:
                self.values.pop(key, None)
            else:
                self.values[key] = self._revive(pair[1])


def as_it_was(stored: Any) -> Any:
    """Return plain data unchanged, except an IdempotentRecord, which has its own tag and is restored."""
    if isinstance(stored, dict) and stored.get("fencepost") == "record":  # pyright: ignore[reportUnknownMemberType]
        return IdempotentRecord[Any].of(stored) or stored  # pyright: ignore[reportUnknownVariableType]
    return stored  # pyright: ignore[reportUnknownVariableType]


def reviver(kind: type[Any] | None) -> Callable[[Any], Any]:
    """Return a function that converts stored plain data to the declared type."""
    if kind is None:
        return as_it_was
    return lambda stored: msgspec.convert(stored, kind)


def state_of(kind: type[Any] | None) -> KeyedState:
    """State for values of a declared type, or of any type."""
    return KeyedState(reviver(kind), declared=kind is not None)
