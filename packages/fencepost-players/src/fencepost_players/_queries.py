"""Reads players, and compares what they hold with what the audit says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from fencepost.kernel.call import (
    Call,
    Json,
    Row,
    column,
    document,
    each,
    nothing,
    optional_text,
    parsed,
    text,
)
from fencepost_players.catalog import DEFINITIONS, Strict


@dataclass(frozen=True, slots=True)
class Player:
    """One player, without the inventory and the history, which are paged."""

    player_id: str
    version: int
    created_at: datetime
    updated_at: datetime
    state: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Holding:
    """A stack, or one piece."""

    item: str
    count: int
    piece_id: UUID | None
    enhance_level: int | None
    quality: int | None
    metadata: Json


@dataclass(frozen=True, slots=True)
class Event:
    """One change in a player's history."""

    audit_id: int
    version: int
    at: datetime
    method: str
    request_id: str | None
    source: str
    actor: str | None
    seed: str | None
    changes: Json


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """Something that a player holds and the audit does not explain, or the other way round."""

    what: str
    name: str
    held: str | None
    audited: str | None


def state(player_id: str) -> Call[Player | None]:
    def read(rows: Sequence[Row]) -> Player | None:
        return _player(*rows[0]) if rows else None

    return Call(
        "select player_id, version, created_at, updated_at, state::text"
        " from fencepost.player_state(%s::text)",
        (text("player_id", player_id),),
        read,
    )


def inventory(
    player_id: str, *, after_item: str | None = None, after_piece: UUID | None = None, limit: int = 100
) -> Call[list[Holding]]:
    """A page of stacks, then pieces; the next page starts after the last item (and piece) of this one."""
    return Call(
        "select item, count, piece_id, enhance_level, quality, metadata::text"
        " from fencepost.player_inventory(%s::text, %s::text, %s::uuid, %s::integer)",
        (text("player_id", player_id), optional_text("after_item", after_item), after_piece, limit),
        each(_holding),
    )


def history(player_id: str, *, before: int | None = None, limit: int = 100) -> Call[list[Event]]:
    """Newest first; the next page starts before the last number of this one."""
    return Call(
        "select audit_id, version, at, method, request_id, source, actor, seed, changes::text"
        " from fencepost.player_history(%s::text, %s::bigint, %s::integer)",
        (text("player_id", player_id), before, limit),
        each(_event),
    )


def ids(*, after: str | None = None, limit: int = 1000) -> Call[list[str]]:
    return Call(
        "select player_id from fencepost.player_ids(%s::text, %s::integer)",
        (optional_text("after", after), limit),
        column,
    )


def audit_check(player_id: str) -> Call[list[Discrepancy]]:
    """Differences between what the player holds and what the audit says; empty when they agree."""
    return Call(
        "select what, name, held, audited from fencepost.player_audit_check(%s::text)",
        (text("player_id", player_id),),
        each(Discrepancy),
    )


def define(kind: str, name: str, definition: Strict) -> Call[None]:
    """Put one definition into the catalog; its kind and its type must match."""
    assert isinstance(definition, DEFINITIONS[kind]), f"{name} is not a valid definition of a {kind}"
    return Call(
        "select fencepost.player_catalog_put(%s::text, %s::text, %s::jsonb)",
        (text("kind", kind), text("name", name), document("definition", definition.model_dump(mode="json"))),
        nothing,
    )


def open_season(
    pool: str, season: str, opens_at: datetime, closes_at: datetime, entries: list[Any]
) -> Call[None]:
    return Call(
        "select fencepost.player_season_put(%s::text, %s::text, %s::timestamptz, %s::timestamptz, %s::jsonb)",
        (text("pool", pool), text("season", season), opens_at, closes_at, document("entries", entries)),
        nothing,
    )


def _player(player_id: str, version: int, created_at: datetime, updated_at: datetime, state: str) -> Player:
    return Player(player_id, version, created_at, updated_at, parsed(state))


def _holding(
    item: str, count: int, piece_id: UUID | None, level: int, quality: int, metadata: str
) -> Holding:
    return Holding(item, count, piece_id, level, quality, parsed(metadata))


def _event(
    audit_id: int,
    version: int,
    at: datetime,
    method: str,
    request_id: str | None,
    source: str,
    actor: str | None,
    seed: str | None,
    changes: str,
) -> Event:
    return Event(audit_id, version, at, method, request_id, source, actor, seed, parsed(changes))
