"""Players: inventory, history, and whether the two agree."""

from __future__ import annotations

import pathlib
from typing import Annotated

from fastapi import Path, Query, Request

from fencepost.errors import NotFound
from fencepost_server.console.context import ConsoleContext, Limit, Name, Paged
from fencepost_server.console.listing import Listing, ListQuery
from fencepost_server.console.page_data import PageData
from fencepost_server.console.plugin_pages import ConsolePages
from fencepost_server.web.words import say

PlayerId = Annotated[str, Path(min_length=1, max_length=256, pattern=r"^[^\x00]+$")]
INVENTORY_MAX = 500
COMPARED_MAX = 1000
"""The changes that a page compares with the inventory without being asked: it reads each of them."""
_PLAYERS = Listing(
    table="players",
    sql="select player_id from fencepost.player_ids(%(after)s::text, %(limit)s::integer)",
    key=("player_id",),
    positions=("after",),
    is_descending=False,
    columns={"player_id": "text"},
    searched=("player_id",),
)
_HISTORY = Listing(
    table="history",
    sql="select * from fencepost.player_history(%(player_id)s::text, %(before)s::bigint, %(limit)s::integer)",
    key=("audit_id",),
    positions=("before",),
    is_descending=True,
    columns={
        "audit_id": "bigint",
        "at": "timestamptz",
        "version": "bigint",
        "method": "text",
        "request_id": "text",
        "actor": "text",
    },
    searched=("method", "request_id", "actor", "changes"),
)


class PlayerQuery(ListQuery):
    after: Name | None = None
    limit: Limit = 50


class HistoryQuery(Paged):
    compare: bool = False
    """Compare the whole history with the inventory, however long it is."""


def _add(context: ConsoleContext) -> None:
    @context.router.page("/players", "players.html", "Players")
    async def players(request: Request, query: Annotated[PlayerQuery, Query()]) -> PageData:
        """Players in order of their ids."""
        page = await context.lists.read(_PLAYERS, query, query.limit)
        facts = {"players": page.rows, **page.next, "filters": {"part": query.part or None}}
        return PageData(facts, "players", lists={"players": page.state})

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
            raise NotFound(say("There is no player {player_id}.", player_id=player_id))
        inventory = await context.reading.rows(
            "select * from fencepost.player_inventory(%s::text, null::text, null::uuid, %s::integer)",
            player_id,
            INVENTORY_MAX,
        )
        history = await context.lists.read(_HISTORY, query, query.limit, {"player_id": player_id})
        # Each change raises the version by one.
        is_compared = query.compare or row["version"] <= COMPARED_MAX
        disagreements = (
            await context.reading.rows("select * from fencepost.player_audit_check(%s)", player_id)
            if is_compared
            else ()
        )
        return PageData(
            {
                "title": player_id,
                "player": row,
                "inventory": inventory,
                "inventory_most": INVENTORY_MAX,
                "history": history.rows,
                "is_compared": is_compared,
                "disagreements": disagreements,
                **history.next,
            },
            "history",
            ("inventory", "disagreements"),
            {"history": history.state},
        )


PAGES = ConsolePages(
    address="/console/players",
    title="Players",
    templates=pathlib.Path(__file__).parent / "console_templates",
    add=_add,
)
