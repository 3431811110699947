"""Caches versions of players and definitions of the game in a node, so that it need not look each time.

Correctness does not depend on it: the claim recognises a repeat, and the version and the amounts are checked
on the locked row. A version that is out of date costs one more attempt. A definition may be used for as long
as it is cached.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from fencepost_players._plan import Needs
from fencepost_players._snapshot import PlayerSnapshot

K = TypeVar("K")
V = TypeVar("V")
REMEMBER_SECONDS = 1.0
PLAYERS_MAX = 10_000
DEFINITIONS_MAX = 10_000


class CachedSnapshot(Generic[K, V]):
    """A cache of the newest values, each for a short time."""

    def __init__(self, size_max: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._size_max = size_max
        self._seconds = seconds
        self._clock = clock
        self._known: OrderedDict[K, tuple[V, float]] = OrderedDict()

    def get(self, key: K) -> V | None:
        value, until = self._known.get(key, (None, 0.0))
        return value if until > self._clock() else None

    def put(self, key: K, value: V) -> None:
        self._known[key] = value, self._clock() + self._seconds
        self._known.move_to_end(key)
        if len(self._known) > self._size_max:
            self._known.popitem(last=False)


class SnapshotCache:
    """Versions of players, and definitions."""

    def __init__(self, seconds: float = REMEMBER_SECONDS) -> None:
        self._versions: CachedSnapshot[str, int] = CachedSnapshot(PLAYERS_MAX, seconds)
        self._definitions: CachedSnapshot[tuple[str, str], Mapping[str, Any]] = CachedSnapshot(
            DEFINITIONS_MAX, seconds
        )

    def snapshot(self, player_id: str, needs: Needs) -> PlayerSnapshot | None:
        """A snapshot for a plan that needs no more than the player's version and definitions; or None."""
        version = self._versions.get(player_id)
        if version is None or not needs.is_of_definitions_only:
            return None
        known = {name: self._definitions.get(name) for name in needs.catalog}
        catalog = {name: facts for name, facts in known.items() if facts is not None}
        return PlayerSnapshot(player_id, version, catalog) if len(catalog) == len(known) else None

    def version(self, player_id: str) -> int | None:
        """The version that this node made last."""
        return self._versions.get(player_id)

    def saw(self, snapshot: PlayerSnapshot) -> None:
        for name, facts in snapshot.catalog.items():
            self._definitions.put(name, facts)

    def raised(self, player_id: str, version: int) -> None:
        """This node has raised the player's version to this one."""
        self._versions.put(player_id, version)
