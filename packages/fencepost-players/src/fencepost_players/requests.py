"""The requests that a caller may send. Undeclared fields are refused, above all a seed."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import Field, StringConstraints, model_validator

from fencepost_players.catalog import Amount, Amounts, Name, Piece, Strict

PlayerId = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[\w.:@-]+$")]
Source = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[\w.:@ -]+$")]
PIECES_MAX = 1000


class PlayerRequest(Strict):
    """Every request belongs to a player."""

    player_id: PlayerId


class CreatePlayer(PlayerRequest):
    """A new player, with nothing."""


class UseItem(PlayerRequest):
    """Use some of a stackable item, or one piece."""

    item: Name
    count: Annotated[int, Field(ge=1, le=1000)] = 1
    piece_id: UUID | None = None


class ItemGrant(Piece):
    """An item to be granted; level, quality and metadata are for non-stackable items."""

    item: Name
    count: Amount = 1


class GrantItems(PlayerRequest):
    """Items and amounts from outside: a shop, a mail, an operator."""

    items: Annotated[tuple[ItemGrant, ...], Field(max_length=100)] = ()
    resources: Amounts = Field(default_factory=dict[str, int])
    source: Source = "grant"

    @model_validator(mode="after")
    def _is_something(self) -> GrantItems:
        if not self.items and not self.resources:
            raise ValueError("items and resources are both empty")
        return self


class UnlockHeroStage(PlayerRequest):
    """The next stage of a hero."""

    hero: Name
    stage: Annotated[int, Field(ge=1, le=1_000_000)]


class Draw(PlayerRequest):
    """Draw from a pool, in its open season."""

    pool: Name
    count: Annotated[int, Field(ge=1, le=100)] = 1


class ClearDungeon(PlayerRequest):
    """A dungeon was cleared."""

    dungeon: Name


class Teach(PlayerRequest):
    """A lesson was taught, for the first time."""

    lesson: Name


class Transfer(PlayerRequest):
    """From one player to another."""

    to_player_id: PlayerId
    resources: Amounts = Field(default_factory=dict[str, int])
    items: Amounts = Field(default_factory=dict[str, int])
    pieces: Annotated[tuple[UUID, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _is_something_for_somebody_else(self) -> Transfer:
        if not (self.resources or self.items or self.pieces):
            raise ValueError("resources, items and pieces are all empty")
        if self.to_player_id == self.player_id:
            raise ValueError("to_player_id is the player itself")
        return self
