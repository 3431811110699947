"""What must hold of one request, as checks: the right service passes them, and each planted bug fails one."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.testing import PlannedCrash, at_crash_point, crash_at
from fencepost_players import _queries as queries
from fencepost_players.mutations.errors import Aborted, AlreadyExists, KeyReused
from fencepost_players.requests import Transfer, UseItem
from fencepost_players.service import Players
from tests.integration.kernel.caller import Caller

BOX = UseItem(player_id="ann", item="box", count=20)
GIFT = Transfer(player_id="bob", to_player_id="ann", resources={"gold": 1})
BOXES = 100
# Longer than those wait who go together, and let go at once.
WAITS = """
    select exists (select from pg_locks where not granted and locktype = 'transactionid'
                   and waitstart < clock_timestamp() - interval '100 ms')
"""


async def boxes(players: Players) -> int:
    held = {holding.item: holding.count for holding in await players.fp.run(queries.inventory("ann"))}
    return held.get("box", 0)


def elsewhere(url: str, work: Callable[[Players], Any]) -> None:
    """Something that another node does at this very moment, from beginning to end."""

    async def act() -> None:
        async with Fencepost(url) as fp:
            await work(Players(fp))

    thread = threading.Thread(target=lambda: asyncio.run(act()))
    thread.start()
    thread.join()


async def overtaken_by_its_own_copy(players: Players) -> None:
    """A copy is executed after this one has looked and planned: this one must find its key."""
    url = players.fp.database_url
    copies: list[Any] = []

    async def send(other: Players) -> None:
        copies.append(await other.run(BOX, request_id="r1"))

    with at_crash_point("mutations.before_execute", lambda: elsewhere(url, send)):
        answer = await players.run(BOX, request_id="r1")
    assert await boxes(players) == BOXES - 20, "the effect was doubled"
    assert answer.response == copies[0].response
    assert await players.fp.run(queries.audit_check("ann")) == []


async def crashed_before_it_was_executed(players: Players) -> None:
    """Nothing was written, the key neither: the repeat must do it."""
    with pytest.raises(PlannedCrash), crash_at("mutations.before_execute"):
        await players.run(BOX, request_id="r1")
    with suppress(AlreadyExists):
        await players.run(BOX, request_id="r1")
    assert await boxes(players) == BOXES - 20, "the effect was lost"


async def sent_again(players: Players, plans: list[Any]) -> None:
    """A request that failed without an effect is sent again: the seed must stay."""

    def fail() -> None:
        raise Aborted("Another request was in the way.", reason="test")

    with pytest.raises(Aborted), at_crash_point("mutations.before_execute", fail):
        await players.run(BOX, request_id="r1")
    answer = await players.run(BOX, request_id="r1")
    assert answer.response["granted"] == plans[0].plan.answer["granted"], "other numbers were drawn"


async def reused_its_id(players: Players) -> None:
    """The same id for another request."""
    await players.run(BOX, request_id="r1")
    with pytest.raises(KeyReused):
        await players.run(UseItem(player_id="ann", item="box", count=1), request_id="r1")


async def gave_to_somebody_who_is_held(players: Players, database: Database) -> None:
    """Against the order of their ids: while the taker, who comes first, is held, the giver must be free."""
    free = "select from fencepost.player where player_id = 'bob' for update nowait"
    with closing(Caller(database.admin_url)) as holder, closing(Caller(database.admin_url)) as other:
        holder.execute("begin")
        holder.execute("select from fencepost.player where player_id = 'ann' for update")
        giving = asyncio.create_task(players.run(GIFT, request_id="r1"))
        try:
            await asyncio.to_thread(Deadline(60, "the gift waits").wait, lambda: bool(other.value(WAITS)))
            other.execute(free)
        finally:
            holder.execute("rollback")
            assert (await giving).layer == "executed"
