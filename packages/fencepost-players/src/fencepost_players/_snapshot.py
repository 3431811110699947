"""What a plan is made from: a snapshot of a player, as far as the request needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fencepost_players.catalog import Strict, Weighted, missing
from fencepost_players.mutations.errors import NoSuchThing

D = TypeVar("D", bound=Strict)


@dataclass(frozen=True, slots=True)
class Season:
    """The open season of a pool, and the player's draws in it."""

    season: str
    entries: tuple[Weighted, ...]
    draws: int = 0
    dry: int = 0


@dataclass(frozen=True, slots=True)
class PlayerSnapshot:
    """`version` is None when there is no such player."""

    player_id: str
    version: int | None
    catalog: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict[tuple[str, str], Any])
    heroes: Mapping[str, int] = field(default_factory=dict[str, int])
    pools: Mapping[str, Season] = field(default_factory=dict[str, Season])
    clears: Mapping[str, int] = field(default_factory=dict[str, int])
    lessons: frozenset[str] = frozenset()
    pieces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    @classmethod
    def read(cls, player_id: str, version: int | None, state: Mapping[str, Any]) -> PlayerSnapshot:
        """From the result of `player_look`."""
        return cls(
            player_id,
            version,
            {(kind, name): definition for kind, name, definition in state.get("catalog", ())},
            state.get("heroes", {}),
            {pool: _season(facts) for pool, facts in state.get("pools", {}).items()},
            state.get("clears", {}),
            frozenset(state.get("lessons", ())),
            {piece["piece_id"]: piece for piece in state.get("pieces", ())},
        )

    def require_player(self, player_id: str) -> None:
        if self.version is None:
            raise missing("player", player_id)

    def defined(self, kind: str, name: str, definition: type[D]) -> D:
        """The definition; checks first that the player exists."""
        self.require_player(self.player_id)
        facts = self.catalog.get((kind, name))
        if facts is None:
            raise missing(kind, name)
        return definition.model_validate(facts)

    def piece(self, piece_id: str, item: str | None = None) -> Mapping[str, Any]:
        piece = self.pieces.get(piece_id)
        if piece is None or item not in {None, piece["item"]}:
            raise NoSuchThing(f"The player has no such piece {piece_id}.", noun="piece", name=piece_id)
        return piece


def _season(facts: Mapping[str, Any]) -> Season:
    entries = tuple(Weighted.model_validate(entry) for entry in facts["entries"])
    return Season(facts["season"], entries, facts["draws"], facts["dry"])
