"""The responses of mutations, as a model: the messages of the `.proto` are made from it."""

from __future__ import annotations

from fencepost_players import _rules as rules
from fencepost_players.catalog import Strict
from fencepost_players.mutations._proto import ProtoService, service_of
from fencepost_players.mutations.planning import mutations_of

PACKAGE = "fencepost_players.v1"
SERVICE = "Players"


class Granted(Strict):
    """One thing that was given: an amount of a resource, or an item; pieces have ids."""

    resource: str | None = None
    item: str | None = None
    count: int
    piece_ids: tuple[str, ...] = ()


class PlayerAnswer(Strict):
    """The response of all methods; each fills its own fields. New fields come last: position is number."""

    player_id: str
    version: int
    granted: tuple[Granted, ...] = ()
    hero: str | None = None
    stage: int | None = None
    pool: str | None = None
    season: str | None = None
    rarities: tuple[int, ...] = ()
    dungeon: str | None = None
    clears: int | None = None
    lesson: str | None = None
    to_player_id: str | None = None


def players_proto() -> ProtoService:
    """The players as a Twirp service."""
    requests = {method: declared.request for method, declared in mutations_of(rules).items()}
    return service_of(PACKAGE, SERVICE, requests, PlayerAnswer)
