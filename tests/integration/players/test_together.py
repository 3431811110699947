"""Mutations that come together are executed together, and each of them is as if it were alone."""

import asyncio
from contextlib import closing

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.settings import Settings
from fencepost.testing import Proxy, at_crash_point
from fencepost_players.mutations.errors import FailedPrecondition, MutationError, NoSuchThing
from fencepost_players.mutations.pipeline import MutationAnswer
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import GrantItems, PlayerRequest, Transfer, UseItem
from fencepost_players.service import Players
from tests.integration.kernel.caller import Caller
from tests.integration.players.conftest import Node, balances, enrol

COMMITS = "select count(distinct claimed_by::text) from fencepost.idempotency_key where key = 'r1'"


def gold(player_id: str, amount: int = 1) -> GrantItems:
    return GrantItems(player_id=player_id, resources={"gold": amount})


async def persist(players: Players, request: PlayerRequest, request_id: str) -> MutationAnswer:
    """As a client does: again, while it is told that this helps."""
    while True:
        try:
            return await players.run(request, request_id=request_id)
        except MutationError as error:
            if not error.is_retryable:
                raise


async def test_many_at_once_share_their_commits_and_each_counts_once(
    players: Players, database: Database
) -> None:
    names = [f"p{number}" for number in range(40)]
    for name in names:
        await enrol(players, name)

    answers = await asyncio.gather(*(players.run(gold(name), request_id="r1") for name in names))

    assert [answer.layer for answer in answers] == ["executed"] * 40
    assert [(await balances(players, name))["gold"] for name in names] == [1] * 40
    with closing(Caller(database.admin_url)) as admin:
        assert admin.value(COMMITS) < 40


async def test_one_that_is_refused_takes_no_other_along(players: Players) -> None:
    for name in ("ann", "bob", "cat"):
        await enrol(players, name)

    answers = await asyncio.gather(
        players.run(gold("ann"), request_id="r1"),
        players.run(UseItem(player_id="bob", item="potion", count=1), request_id="r1"),
        players.run(gold("cat"), request_id="r1"),
        return_exceptions=True,
    )

    assert isinstance(answers[1], FailedPrecondition)
    assert answers[1].meta["reason"] == "not_enough"
    assert await balances(players, "ann") == await balances(players, "cat") == {"gold": 1}
    assert await balances(players, "bob") == {}


async def test_a_refusal_counts_once_although_it_was_tried_together_first(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann", gold=5)
    with pytest.raises(NoSuchThing):
        await players.run(
            Transfer(player_id="ann", to_player_id="nobody", resources={"gold": 1}), request_id="r1"
        )

    with closing(Caller(database.admin_url)) as admin:
        count = "select refused from fencepost.refusal_counts() where reason = 'not_found'"
        assert admin.value(count) == 1


async def test_a_row_that_is_held_holds_up_its_own_request_only(players: Players, database: Database) -> None:
    for name in ("ann", "bob", "cat"):
        await enrol(players, name)
    with closing(Caller(database.admin_url)) as admin:
        with admin.transaction():
            admin.execute("select from fencepost.player where player_id = 'ann' for update")
            held = asyncio.create_task(players.run(gold("ann"), request_id="r1"))
            others = [persist(players, gold(name), f"r{n}") for name in ("bob", "cat") for n in range(5)]
            answers = await asyncio.gather(*others)
            assert {answer.response["player_id"] for answer in answers} == {"bob", "cat"}
            assert not held.done()
        await held
    assert await balances(players, "ann") == {"gold": 1}


async def test_copies_of_one_request_in_one_crossing_make_one_effect(players: Players) -> None:
    await enrol(players, "ann")

    answers = await asyncio.gather(*(persist(players, gold("ann"), "same") for _ in range(20)))

    assert {answer.response["version"] for answer in answers} == {answers[0].response["version"]}
    assert sum(not answer.is_replay for answer in answers) == 1
    assert await balances(players, "ann") == {"gold": 1}


async def test_transfers_in_both_directions_on_two_nodes_all_end(node: Node, players: Players) -> None:
    other = await node()
    for name in ("ann", "bob"):
        await enrol(players, name, gold=1000)

    def give(giver: str, taker: str) -> Transfer:
        return Transfer(player_id=giver, to_player_id=taker, resources={"gold": 1})

    nodes = [players, other]
    await asyncio.gather(
        *(persist(nodes[n % 2], give("ann", "bob"), f"a{n}") for n in range(20)),
        *(persist(nodes[n % 2], give("bob", "ann"), f"b{n}") for n in range(20)),
    )

    assert await balances(players, "ann") == await balances(players, "bob") == {"gold": 1000}


async def test_a_lost_reply_of_a_crossing_is_settled_by_each_key(
    players: Players, database: Database
) -> None:
    for name in ("ann", "bob", "cat", "dan"):
        await enrol(players, name)
    with Proxy.for_postgres(database.url) as proxy:
        async with Fencepost(proxy.url, settings=Settings(pool_min=1, pool_max=2)) as fp:
            behind = Players(fp)
            with at_crash_point("mutations.before_execute", proxy.lose_reply):
                answers = await asyncio.gather(
                    *(persist(behind, gold(name), "r1") for name in ("ann", "bob", "cat", "dan"))
                )
    assert len(answers) == 4
    for name in ("ann", "bob", "cat", "dan"):
        assert await balances(players, name) == {"gold": 1}


@pytest.mark.parametrize("places", [1, 32])
async def test_it_can_be_switched_off(players: Players, places: int) -> None:
    alone = Players(players.fp, MutationSettings(batch_max=places), players.metrics)
    await enrol(alone, "ann", gold=places)

    assert await balances(alone, "ann") == {"gold": places}
