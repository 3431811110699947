"""A plan: the changes to one player or two, and the response. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fencepost_players.catalog import Cost, Reward
from fencepost_players.mutations._recorded_seeds import written
from fencepost_players.mutations.planning import Rng


@dataclass(frozen=True, slots=True)
class Needs:
    """Which part of the present state a plan is made from."""

    catalog: tuple[tuple[str, str], ...] = ()
    heroes: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    dungeons: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()
    pieces: tuple[str, ...] = ()
    partners: tuple[str, ...] = ()
    """Other players that the plan changes."""

    @property
    def is_of_definitions_only(self) -> bool:
        """A plan made from nothing else cannot become stale."""
        return self == Needs(catalog=self.catalog, partners=self.partners)

    def as_json(self) -> dict[str, Any]:
        parts = {name: list(getattr(self, name)) for name in self.__slots__ if name != "partners"}
        return {name: part for name, part in parts.items() if part or name == "catalog"}


@dataclass(frozen=True, slots=True)
class Change:
    """The change to one player. `functions/player_change.sql` has the same parts."""

    resources: Counter[str] = field(default_factory=Counter[str])
    stacks: Counter[str] = field(default_factory=Counter[str])
    paid: dict[str, Counter[str]] = field(
        default_factory=lambda: {"resources": Counter[str](), "stacks": Counter[str]()}
    )
    """What was taken before anything was given. The player must hold it, whatever comes back: otherwise a
    player with nothing could retry until a draw pays for itself."""
    pieces_removed: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    pieces_added: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    heroes: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    draws: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    clears: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    lessons: list[str] = field(default_factory=list[str])

    def take(self, cost: Cost, times: int = 1) -> None:
        for name, amount in cost.resources.items():
            self.resources[name] -= amount * times
            self.paid["resources"][name] += amount * times
        for name, count in cost.items.items():
            self.take_item(name, count * times)

    def take_item(self, name: str, count: int) -> None:
        self.stacks[name] -= count
        self.paid["stacks"][name] += count

    def give(self, rewards: Iterable[Reward], rng: Rng) -> list[dict[str, Any]]:
        """Add the rewards, and return what was given, in their order."""
        return [self._give(reward, rng) for reward in rewards]

    def _give(self, reward: Reward, rng: Rng) -> dict[str, Any]:
        if reward.resource is not None:
            self.resources[reward.resource] += reward.count
            return {"resource": reward.resource, "count": reward.count}
        if reward.item is not None:
            self.stacks[reward.item] += reward.count
            return {"item": reward.item, "count": reward.count}
        assert reward.piece is not None
        made = [
            {
                "piece_id": str(rng.identity()),
                "item": reward.piece,
                "enhance_level": reward.enhance_level,
                "quality": reward.quality,
                "metadata": reward.metadata,
            }
            for _ in range(reward.count)
        ]
        self.pieces_added.extend(made)
        return {
            "item": reward.piece,
            "count": reward.count,
            "piece_ids": [piece["piece_id"] for piece in made],
        }

    def as_json(self) -> dict[str, Any]:
        """The change without its empty parts."""
        parts: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__}
        for counted in ("resources", "stacks"):
            parts[counted] = {name: delta for name, delta in sorted(parts[counted].items()) if delta}
        parts["paid"] = {kind: paid for kind in ("resources", "stacks") if (paid := self._paid(kind))}
        return {name: part for name, part in parts.items() if part}

    def _paid(self, kind: str) -> dict[str, int]:
        """Omits names of which nothing comes back: for those the change itself says what must be held."""
        net: Counter[str] = getattr(self, kind)
        return {name: amount for name, amount in sorted(self.paid[kind].items()) if net[name] != -amount}


@dataclass(frozen=True, slots=True)
class Party:
    """One player and its change."""

    player_id: str
    change: Change


@dataclass(frozen=True, slots=True)
class PlayerPlan:
    """The acting player first. `answer` is the response without the version."""

    parties: tuple[Party, ...]
    answer: Mapping[str, Any]
    source: str | None = None
    creates: bool = False

    @property
    def players(self) -> list[str]:
        return [party.player_id for party in self.parties]

    def as_json(self, seed: int, *, is_by_chance: bool = True) -> dict[str, Any]:
        return {
            "parties": [
                {"player": party.player_id, "change": party.change.as_json()} for party in self.parties
            ],
            "source": self.source,
            "create": self.creates,
            "seed": written(seed),
            "chance": is_by_chance,
        }

    def response(self, version: int | None) -> dict[str, Any]:
        """The response, with the version that the execution made.

        Without a version it is the template that the database puts the version into and stores with the
        idempotency key: the player's id comes first and contains no quotation mark, so the first
        "version":null is the right one.
        """
        return {"player_id": self.parties[0].player_id, "version": version, **self.answer}
