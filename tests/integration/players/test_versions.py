"""The version of a player: raised under the row's lock, one by one, however many come at once."""

import asyncio
import json
from contextlib import closing, suppress
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.testing import at_crash_point
from fencepost_players import _queries as queries
from fencepost_players.distributor import bump
from fencepost_players.mutations.errors import Aborted, FailedPrecondition
from fencepost_players.requests import (
    CreatePlayer,
    GrantItems,
    PlayerRequest,
    Transfer,
    UseItem,
)
from fencepost_players.service import Players
from tests.integration.kernel.caller import Caller
from tests.integration.players.conftest import balances, enrol

BOX = UseItem(player_id="ann", item="box", count=20)


def gold(player_id: str) -> GrantItems:
    return GrantItems(player_id=player_id, resources={"gold": 1})


def bumping(database: Database, player_id: str = "ann") -> Any:
    """What another session does to the player at this very moment."""

    def act() -> None:
        with database.connect() as connection:
            connection.execute("select fencepost.player_bump(%s)", (player_id,))

    return act


async def test_a_plan_is_carried_out_on_whatever_version_the_locked_row_has(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann", items={"box": 100})
    with at_crash_point("mutations.before_execute", bumping(database)):
        answer = await players.run(BOX, request_id="r1")
    assert answer.response["version"] == (await players.player("ann")).version == 4
    conflicts = players.metrics.conflicts.labels("players", "UseItem")
    assert conflicts._value.get() == 0  # pyright: ignore[reportPrivateUsage]
    again = await players.run(BOX, request_id="r1")
    assert (again.layer, again.body) == ("repeat", answer.body), "the key has the version that was made"


async def test_the_version_before_is_told_of_a_conflict_as_ever(players: Players, database: Database) -> None:
    """It has written the version into its answer, so that one and no other must be found."""
    await enrol(players, "ann")
    plan = json.dumps({"parties": [{"player": "ann", "change": {"resources": {"gold": 1}}}]})
    call = "select * from fencepost.player_execute('player:ann', 'k1', 'd', %s::jsonb, 'Grant', null, %s, %s)"
    with closing(Caller(database.url)) as caller:
        for version in (None, 7):
            caller.failed("ZF110", call, '{"version": 8}', version, plan)
        assert caller.rows(call, '{"version": 2}', 1, plan) == [
            {"outcome": "claimed", "response": {"version": 2}}
        ]


async def test_what_was_enough_when_it_was_planned_is_judged_again_on_the_locked_row(
    players: Players,
) -> None:
    await enrol(players, "ann", items={"box": 30})
    answers = await asyncio.gather(
        *(players.run(BOX, request_id=f"r{n}") for n in range(4)), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == [
        *["FailedPrecondition"] * 3,
        "MutationAnswer",
    ]
    assert (await balances(players, "ann"))["box"] == 10


async def test_concurrent_mutations_of_one_player_all_take_effect(players: Players) -> None:
    await enrol(players, "ann")

    async def grant(n: int) -> None:
        request = gold("ann")
        while True:
            try:
                await players.run(request, request_id=f"grant-{n}")
            except Aborted:
                continue
            return

    await asyncio.gather(*(grant(n) for n in range(40)))
    assert await balances(players, "ann") == {"gold": 40}
    assert (await players.player("ann")).version == 41


async def test_transfers_in_opposite_directions_do_not_deadlock(players: Players, database: Database) -> None:
    await enrol(players, "ann", gold=1000)
    await enrol(players, "bob", gold=1000)

    async def transfer(n: int) -> None:
        giver, taker = ("ann", "bob") if n % 2 else ("bob", "ann")
        request = Transfer(player_id=giver, to_player_id=taker, resources={"gold": 1})
        while True:
            try:
                await players.run(request, request_id=f"t-{n}")
            except Aborted:
                continue
            return

    await asyncio.gather(*(transfer(n) for n in range(60)))
    assert await balances(players, "ann") == await balances(players, "bob") == {"gold": 1000}
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    with database.connect_admin() as admin:
        assert admin.execute(deadlocks).fetchone() == (0,)


async def test_joined_to_a_transaction_it_commits_with_it_or_not_at_all(players: Players) -> None:
    await enrol(players, "ann", items={"box": 100})
    with suppress(RuntimeError):
        async with players.fp.transaction() as tx:
            await players.join(tx, BOX, request_id="r1")
            raise RuntimeError
    assert await balances(players, "ann") == {"box": 100}
    async with players.fp.transaction() as tx:
        first = await players.join(tx, BOX, request_id="r1")
        await players.join(tx, gold("ann"), request_id="r2")
    assert (await players.run(BOX, request_id="r1")).response == first.response
    assert (await balances(players, "ann"))["box"] == 80


async def test_joined_a_conflict_is_undone_alone(players: Players, database: Database) -> None:
    await enrol(players, "ann", items={"box": 100})
    async with players.fp.transaction() as tx:
        await tx.execute("create temp table note (text text) on commit drop")
        await tx.execute("insert into note values ('kept')")
        with at_crash_point("mutations.before_execute", bumping(database)):
            await players.join(tx, BOX, request_id="r1")
        rows = await (await tx.execute("select text from note")).fetchall()
    assert rows == [("kept",)]
    assert (await balances(players, "ann"))["box"] == 80


async def test_a_refusal_inside_a_transaction_can_be_answered_for(players: Players) -> None:
    await enrol(players, "ann")
    async with players.fp.transaction() as tx:
        with pytest.raises(FailedPrecondition):
            await players.join(tx, BOX, request_id="r1")
        await players.join(tx, gold("ann"), request_id="r2")
    assert await balances(players, "ann") == {"gold": 1}


async def test_a_version_that_was_raised_for_nothing_is_in_the_audit_too(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann", gold=5)
    bumping(database)()
    async with players.fp.transaction() as tx:
        await tx.run(bump("ann"))
        await tx.run(bump("ann"))
    assert await players.fp.run(queries.audit_check("ann")) == []
    told = await players.fp.run(queries.history("ann", limit=2))
    assert [(line.method, line.version, line.actor, line.changes) for line in told] == [
        ("Bump", 4, "fencepost_service", {}),
        ("Bump", 3, "fencepost_service", {}),
    ]


BUMP = "select fencepost.player_bump('ann')"


async def test_a_frozen_transaction_is_ended_by_the_database_when_its_bound_is_over(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann")
    with closing(Caller(database.url)) as holder, closing(Caller(database.url)) as waiter:
        holder.execute("begin")
        holder.execute(BUMP)
        assert holder.value("show idle_in_transaction_session_timeout") == "10s"
        # Ten seconds are long for a test: the same with less.
        holder.execute("set local idle_in_transaction_session_timeout = '300ms'")
        waiter.execute(BUMP)
        holder.failed("25P03", "select 1")


@pytest.mark.parametrize("request_", [BOX, CreatePlayer(player_id="bob")])
async def test_the_bound_holds_for_a_joined_mutation_too(players: Players, request_: PlayerRequest) -> None:
    await enrol(players, "ann", items={"box": 100})
    async with players.fp.transaction() as tx:
        await players.join(tx, request_, request_id="r1")
        row = await (await tx.execute("show idle_in_transaction_session_timeout")).fetchone()
        assert row == ("10s",)


async def test_a_joined_mutation_that_is_given_up_is_undone_before_its_caller_goes_on(
    players: Players, database: Database
) -> None:
    for name in ("ann", "bob"):
        await enrol(players, name)
    with closing(Caller(database.url)) as holder, holder.transaction():
        holder.execute(BUMP)
        async with players.fp.transaction() as tx:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await players.join(tx, gold("ann"), request_id="r1")
            await players.join(tx, gold("bob"), request_id="r1")
    assert await balances(players, "ann") == {}
    assert await balances(players, "bob") == {"gold": 1}


def test_the_call_that_bumps_names_its_function() -> None:
    assert bump("ann").function == "player_bump"


async def test_two_transactions_that_meet_crosswise_end_and_one_is_told_to_begin_again(
    players: Players,
) -> None:
    for name in ("ann", "bob"):
        await enrol(players, name)
    both_hold = asyncio.Barrier(2)

    async def both(first: str, second: str, key: str) -> str:
        try:
            async with players.fp.transaction() as tx:
                await players.join(tx, gold(first), request_id=key)
                await both_hold.wait()
                await players.join(tx, gold(second), request_id=key)
        except Aborted as error:
            return str(error.meta["reason"])
        return "done"

    ended = await asyncio.gather(both("ann", "bob", "k1"), both("bob", "ann", "k2"))

    assert sorted(ended) == ["deadlock", "done"]
    assert await balances(players, "ann") == await balances(players, "bob") == {"gold": 1}
