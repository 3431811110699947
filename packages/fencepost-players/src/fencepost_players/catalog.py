"""The game's definitions, as operators write them and as plans read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    field_validator,
    model_validator,
)
from pydantic_core import to_json

from fencepost.errors import InvalidInput
from fencepost.kernel.call import document
from fencepost_players.mutations.errors import NoSuchThing

INT64_MAX = 2**63 - 1
METADATA_BYTES_MAX = 4096
Name = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[\w.:@-]+$")]
Amount = Annotated[int, Field(ge=1, le=INT64_MAX)]
Amounts = Mapping[Name, Amount]
Level = Annotated[int, Field(ge=0, le=1_000_000)]
Kind = Literal["resource", "item", "hero", "pool", "dungeon", "lesson"]


class Strict(BaseModel):
    """A frozen model that rejects undeclared fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Piece(Strict):
    """The attributes of one non-stackable item. They are stored as the caller gives them."""

    enhance_level: Level = 0
    quality: Level = 0
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @field_validator("metadata")
    @classmethod
    def _can_be_kept(cls, metadata: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            document("metadata", metadata)
        except InvalidInput as error:
            raise ValueError(str(error).removesuffix(".")) from None
        size = len(to_json(metadata))
        if size > METADATA_BYTES_MAX:
            raise ValueError(f"{size} bytes as JSON; at most {METADATA_BYTES_MAX} are allowed")
        return metadata


class Reward(Piece):
    """One of: an amount of a resource, a count of a stackable item, or one piece of a non-stackable one."""

    resource: Name | None = None
    item: Name | None = None
    piece: Name | None = None
    count: Amount = 1

    @model_validator(mode="after")
    def _is_one_thing(self) -> Reward:
        if sum(name is not None for name in (self.resource, self.item, self.piece)) != 1:
            raise ValueError("a reward names a resource, an item or a piece, and only one of them")
        return self


class Weighted(Strict):
    """A reward that is drawn by its weight among the others."""

    weight: Annotated[int, Field(ge=1, le=1_000_000_000)]
    reward: Reward
    rarity: Level = 0


class Cost(Strict):
    """What is taken."""

    resources: Amounts = Field(default_factory=dict[str, int])
    items: Amounts = Field(default_factory=dict[str, int])


class Resource(Strict):
    """A currency, or anything else that is only counted."""

    title: str = ""


class Item(Strict):
    """Every use gives all `rewards` and one random entry of `box`."""

    stackable: bool
    title: str = ""
    rewards: tuple[Reward, ...] = ()
    box: tuple[Weighted, ...] = ()

    @property
    def is_usable(self) -> bool:
        """Whether using the item gives anything."""
        return bool(self.rewards or self.box)


class Stage(Strict):
    """One step of a hero."""

    cost: Cost = Cost()
    rewards: tuple[Reward, ...] = ()


class Hero(Strict):
    """Stages from 1 on, in order."""

    title: str = ""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]


class Pool(Strict):
    """Draws pick from the entries of its season. After `guarantee_after` dry draws, the rarity is certain."""

    title: str = ""
    cost: Cost = Cost()
    guarantee_after: Annotated[int, Field(ge=1)] | None = None
    guarantee_rarity: Level = 0


class Dungeon(Strict):
    """Rewards for every clear, more for the first, and one random entry of `box`."""

    title: str = ""
    cost: Cost = Cost()
    rewards: tuple[Reward, ...] = ()
    first_rewards: tuple[Reward, ...] = ()
    box: tuple[Weighted, ...] = ()


class Lesson(Strict):
    """The rewards for teaching it for the first time."""

    title: str = ""
    rewards: Annotated[tuple[Reward, ...], Field(min_length=1)]


DEFINITIONS: Mapping[str, type[Strict]] = {
    "resource": Resource,
    "item": Item,
    "hero": Hero,
    "pool": Pool,
    "dungeon": Dungeon,
    "lesson": Lesson,
}


def missing(kind: str, name: str) -> NoSuchThing:
    """The error for a thing that the catalogue or the database does not have."""
    return NoSuchThing(f"There is no {kind} {name}.", noun=kind, name=name)
