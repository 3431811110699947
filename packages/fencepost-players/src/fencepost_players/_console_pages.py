"""Players: inventory, history, and whether the two agree."""

from __future__ import annotations

import pathlib
from typing import Annotated

from fastapi import Path, Query, Request
from pydantic import BaseModel

from fencepost.errors import NotFound
from fencepost_server.console.context import ConsoleContext, Limit, Name, Paged, following
from fencepost_server.console.page_data import PageData
from fencepost_server.console.plugin_pages import ConsolePages

PlayerId = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
INVENTORY_MAX = 500


class PlayerQuery(BaseModel):
    after: Name | None = None
    limit: Limit = 50


class HistoryQuery(Paged):
    pass


def _add(context: ConsoleContext) -> None:
    @context.router.page("/players", "players.html", "Players")
    async def players(request: Request, query: Annotated[PlayerQuery, Query()]) -> PageData:
        """Players in order of their ids."""
        rows = await context.reading.rows(
            "select player_id from fencepost.player_ids(%s::text, %s::integer)", query.after, query.limit
        )
        after = following(rows, "player_id", query.limit)
        return PageData({"players": rows, "next_after": after, "filters": {}}, rows="players")

    @context.router.page("/players/{player_id:path}", "player.html", "Player")
    async def player(
        request: Request, player_id: PlayerId, query: Annotated[HistoryQuery, Query()]
    ) -> PageData:
        """One player: what it holds, every change, and whether the changes add up to what it holds."""
        row = await context.reading.row(
            "select player_id, version, created_at, updated_at, state from fencepost.player_state(%s)",
            player_id,
        )
        if row is None:
            raise NotFound(f"There is no player {player_id}.")
        inventory = await context.reading.rows(
            "select * from fencepost.player_inventory(%s::text, null::text, null::uuid, %s::integer)",
            player_id,
            INVENTORY_MAX,
        )
        history = await context.reading.rows(
            "select * from fencepost.player_history(%s::text, %s::bigint, %s::integer)",
            player_id,
            query.before,
            query.limit,
        )
        disagreements = await context.reading.rows(
            "select * from fencepost.player_audit_check(%s)", player_id
        )
        return PageData(
            {
                "title": player_id,
                "player": row,
                "inventory": inventory,
                "inventory_most": INVENTORY_MAX,
                "history": history,
                "disagreements": disagreements,
                "next_before": following(history, "audit_id", query.limit),
            },
            "history",
            ("inventory", "disagreements"),
        )


PAGES = ConsolePages(
    address="/console/players",
    title="Players",
    templates=pathlib.Path(__file__).parent / "console_templates",
    add=_add,
)
