"""Every access to a player's tables is by an index, whatever the statistics say."""

from typing import Any

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost.kernel.call import Call
from fencepost_players import _queries as queries
from fencepost_players.requests import ClearDungeon, Draw, Transfer, UseItem
from fencepost_players.service import Players
from tests.integration.players.conftest import enrol

SCANS = """
    select relname::text from pg_stat_user_tables
    where schemaname = 'fencepost' and (relname like 'player%' or relname = 'idempotency_key')
      and seq_scan > 0
"""
READ = "select count(*) > 3 from pg_stat_user_tables where relname like 'player%' and idx_scan > 0"


async def test_no_table_of_the_players_is_scanned(players: Players, database: Database) -> None:
    with database.connect_admin() as admin:
        admin.execute("select pg_stat_reset()")
    await enrol(players, "ann", items={"box": 50, "sword": 1}, gold=100, gem=50)
    await enrol(players, "bob")
    for number in range(3):
        await players.run(UseItem(player_id="ann", item="box"), request_id=f"u{number}")
        await players.run(ClearDungeon(player_id="ann", dungeon="cave"), request_id=f"c{number}")
        await players.run(Draw(player_id="ann", pool="spring"), request_id=f"d{number}")
    gift = Transfer(player_id="ann", to_player_id="bob", resources={"gold": 1})
    await players.run(gift, request_id="t")
    await players.player("ann")
    reads: list[Call[Any]] = [
        queries.inventory("ann"),
        queries.history("ann"),
        queries.ids(),
        queries.audit_check("ann"),
    ]
    for call in reads:
        await players.fp.run(call)
    # Sessions tell their counts when they end, or idle for a while.
    await players.fp.close()
    with database.connect_admin() as admin:
        admin.autocommit = True
        Deadline(60, "the counts are told").wait(lambda: admin.execute(READ).fetchone() == (True,))
        assert admin.execute(SCANS).fetchall() == []
        with database.connect_admin() as careless:
            careless.execute("select from fencepost.player_stack")
        Deadline(60, "a scan is seen").wait(lambda: admin.execute(SCANS).fetchall() == [("player_stack",)])
