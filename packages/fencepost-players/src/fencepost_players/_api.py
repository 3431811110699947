"""Players over HTTP. Every mutation has a Twirp path and a REST path, made from its declaration."""

from __future__ import annotations

import re
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from fencepost_players._answers import PACKAGE, SERVICE, players_proto
from fencepost_players._queries import Discrepancy, Event, Holding, audit_check, history, inventory
from fencepost_players.mutations._proto import Codec
from fencepost_players.mutations.http_routes import ContractRoute, Perform, Told, add_bad_routes, add_mutation
from fencepost_players.mutations.pipeline import MutationAnswer
from fencepost_players.mutations.planning import Mutation
from fencepost_players.requests import PlayerRequest
from fencepost_players.service import Players
from fencepost_server.web.errors import ErrorBody

TWIRP = f"/twirp/{PACKAGE}.{SERVICE}"
Limit = Annotated[int, Query(ge=1, le=1000)]


def make_router(players: Players) -> APIRouter:
    # Authentication runs before the error contract and answers with the app's own error body.
    told = {"model": Told | ErrorBody, "description": "Refused or failed, as Twirp tells it."}
    router = APIRouter(tags=["players"], route_class=ContractRoute, responses={"default": told})
    codec = _codec()
    for declared in players.mutations.values():
        add_mutation(
            router,
            declared,
            rest_path=f"/players/{{player_id}}/{_dashed(declared.method)}",
            twirp_path=f"{TWIRP}/{declared.method}",
            perform=_performing(players),
            codec=codec,
        )
    _add_reading(router, players)
    _add_proto(router)
    add_bad_routes(router, "/twirp")
    return router


def _codec() -> Codec | None:
    try:
        return Codec(players_proto())
    except ImportError:
        return None


def _add_proto(router: APIRouter) -> None:
    @router.get(f"{TWIRP}.proto", response_class=PlainTextResponse)
    async def proto() -> str:
        """The Twirp service as a .proto file, to generate clients from."""
        return players_proto().text


def _performing(players: Players) -> Perform:
    async def perform(
        _: Mutation[Any, Any, Any], request: BaseModel, request_id: str | None, actor: str
    ) -> MutationAnswer:
        assert isinstance(request, PlayerRequest)
        return await players.run(request, request_id=request_id, actor=actor)

    return perform


def _add_reading(router: APIRouter, players: Players) -> None:
    @router.get("/players/{player_id}")
    async def show(player_id: str) -> dict[str, Any]:
        """One player: version, resources, heroes, draws, clears, lessons."""
        player = await players.player(player_id)
        return {
            "player_id": player.player_id,
            "version": player.version,
            "created_at": player.created_at,
            "updated_at": player.updated_at,
            **player.state,
        }

    @router.get("/players/{player_id}/inventory")
    async def hold(
        player_id: str, after_item: str | None = None, after_piece: UUID | None = None, limit: Limit = 100
    ) -> list[Holding]:
        """A page of what a player holds; the next page starts after its last item and piece."""
        await players.player(player_id)
        call = inventory(player_id, after_item=after_item, after_piece=after_piece, limit=limit)
        return await players.fp.run(call)

    @router.get("/players/{player_id}/history")
    async def tell(
        player_id: str, before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None, limit: Limit = 100
    ) -> list[Event]:
        """A page of a player's changes, newest first; the next page starts before its last number."""
        await players.player(player_id)
        return await players.fp.run(history(player_id, before=before, limit=limit))

    @router.get("/players/{player_id}/audit")
    async def check(player_id: str) -> list[Discrepancy]:
        """Differences between what the player holds and what the audit says; empty when they agree."""
        await players.player(player_id)
        return await players.fp.run(audit_check(player_id))


def _dashed(method: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", method).lower()
