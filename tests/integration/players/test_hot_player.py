"""Many requests for one player at once: none is refused because others came too."""

import asyncio
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from fencepost import Fencepost
from fencepost.embedded import Database
from fencepost.settings import Settings
from fencepost.testing import Proxy, at_crash_point
from fencepost_players import _queries as queries
from fencepost_players._player_store import PlayerStore
from fencepost_players.mutations.errors import Aborted, MutationError
from fencepost_players.mutations.pipeline import MutationAnswer
from fencepost_players.requests import ClearDungeon, Draw, GrantItems, PlayerRequest, Teach, Transfer, UseItem
from fencepost_players.service import Players
from tests.integration.kernel.caller import Caller
from tests.integration.players.conftest import Node, balances, enrol

AT_ONCE = 100


def gold(player_id: str = "ann", amount: int = 1) -> GrantItems:
    return GrantItems(player_id=player_id, resources={"gold": amount})


DRAW = Draw(player_id="ann", pool="spring")
CAVE = ClearDungeon(player_id="ann", dungeon="cave")


async def all_at_once(nodes: list[Players], *requests: PlayerRequest) -> list[MutationAnswer | BaseException]:
    """Every request once, by turns on the nodes: nothing is sent again."""
    return await asyncio.gather(
        *(nodes[n % len(nodes)].run(one, request_id=f"r{n}") for n, one in enumerate(requests)),
        return_exceptions=True,
    )


def refused(answers: list[MutationAnswer | BaseException]) -> Counter[str]:
    told = (one for one in answers if isinstance(one, BaseException))
    return Counter(one.meta["reason"] if isinstance(one, MutationError) else repr(one) for one in told)


def versions(answers: list[MutationAnswer | BaseException]) -> list[int]:
    return sorted(one.response["version"] for one in answers if isinstance(one, MutationAnswer))


async def test_no_grant_to_a_hot_player_is_refused(node: Node, players: Players) -> None:
    await enrol(players, "ann")

    answers = await all_at_once([players, await node()], *[gold()] * AT_ONCE)

    assert refused(answers) == {}
    assert versions(answers) == list(range(2, 2 + AT_ONCE)), "each has a version of its own"
    assert await balances(players, "ann") == {"gold": AT_ONCE}
    assert (await players.player("ann")).version == 1 + AT_ONCE


async def test_no_draw_of_a_hot_player_is_refused(node: Node, players: Players) -> None:
    await enrol(players, "ann", gem=5 * AT_ONCE)

    answers = await all_at_once([players, await node()], *[DRAW] * AT_ONCE)

    assert refused(answers) == {}
    assert versions(answers) == list(range(3, 3 + AT_ONCE))
    player = await players.player("ann")
    assert player.state["draws"] == [{"pool": "spring", "season": "s1", "draws": AT_ONCE}]
    assert "gem" not in await balances(players, "ann")


async def test_the_guarantee_holds_whatever_the_order_in_which_draws_meet(
    node: Node, players: Players
) -> None:
    """At most nine dry draws lie between two rare ones: each was planned on what the one before left."""
    await enrol(players, "ann", gem=5 * AT_ONCE)

    answers = await all_at_once([players, await node()], *[DRAW] * AT_ONCE)

    drawn = sorted(
        (one.response for one in answers if isinstance(one, MutationAnswer)), key=lambda each: each["version"]
    )
    rarities = "".join(str(each["rarities"][0]) for each in drawn)
    assert len(rarities) == AT_ONCE
    assert max(len(dry) for dry in rarities.split("5")) <= 9


async def test_what_takes_and_what_gives_at_once_adds_up(node: Node, players: Players) -> None:
    await enrol(players, "ann", items={"potion": 30}, gold=10)
    await enrol(players, "bob")
    use = UseItem(player_id="ann", item="potion")
    gift = Transfer(player_id="ann", to_player_id="bob", resources={"gold": 1})

    answers = await all_at_once([players, await node()], *[use, gold(), gift] * 10, *[CAVE] * 10)

    assert refused(answers) == {}
    cleared = [
        one.response for one in answers if isinstance(one, MutationAnswer) and "clears" in one.response
    ]
    assert sorted(each["clears"] for each in cleared) == list(range(1, 11))
    assert sum({"resource": "gem", "count": 3} in each["granted"] for each in cleared) == 1
    assert (await balances(players, "bob")) == {"gold": 10}
    assert (await balances(players, "ann"))["potion"] >= 20


async def test_no_caller_pays_with_what_another_has_spent_in_the_same_moment(
    node: Node, players: Players
) -> None:
    await enrol(players, "ann", items={"potion": 7})
    use = UseItem(player_id="ann", item="potion")

    answers = await all_at_once([players, await node()], *[use] * 20)

    assert refused(answers) == {"not_enough": 13}
    assert await balances(players, "ann") == {"gold": 70}


async def test_a_plan_whose_ground_has_moved_is_made_again_inside_the_server(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann")

    def overtake() -> None:
        with database.connect_admin() as admin:
            admin.execute("insert into fencepost.player_clear values ('ann', 'cave', 1)")

    with at_crash_point("mutations.before_execute", overtake):
        answer = await players.run(CAVE, request_id="r1")

    assert answer.response["clears"] == 2
    assert {"resource": "gem", "count": 3} not in answer.response["granted"], "the first clear was another's"


async def test_what_the_new_plan_refuses_is_refused_with_its_own_reason(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann")

    def overtake() -> None:
        with database.connect_admin() as admin:
            admin.execute("insert into fencepost.player_lesson values ('ann', 'fencing', now())")

    with at_crash_point("mutations.before_execute", overtake), pytest.raises(MutationError) as told:
        await players.run(Teach(player_id="ann", lesson="fencing"), request_id="r1")

    assert told.value.meta["reason"] == "taught_already"


async def test_joined_to_a_transaction_it_is_planned_again_too(players: Players, database: Database) -> None:
    await enrol(players, "ann")

    def overtake() -> None:
        with database.connect_admin() as admin:
            admin.execute("insert into fencepost.player_clear values ('ann', 'cave', 1)")

    async with players.fp.transaction() as tx:
        with at_crash_point("mutations.before_execute", overtake):
            answer = await players.join(tx, CAVE, request_id="r1")

    assert answer.response["clears"] == 2
    assert (await players.player("ann")).state["clears"] == {"cave": 2}


def fail() -> None:
    raise Aborted("Another request was in the way.", reason="test")


async def seeds(players: Players) -> dict[str, str | None]:
    told = await players.fp.run(queries.history("ann", limit=1000))
    return {str(line.request_id): line.seed for line in told}


async def test_a_retry_of_the_request_throws_the_same_dice_on_any_node(node: Node, players: Players) -> None:
    """What fails without an effect is sent again: failing on purpose does not choose a result."""
    other = await node()
    await enrol(players, "ann", items={"box": 100}, gem=50)
    many = UseItem(player_id="ann", item="box", count=50)

    planned: list[Any] = []
    declared = players.mutations["UseItem"]
    right = declared.plan

    def watched(*arguments: Any) -> Any:
        planned.append(right(*arguments))
        return planned[-1]

    object.__setattr__(declared, "plan", watched)
    try:
        with at_crash_point("mutations.before_execute", fail), pytest.raises(Aborted):
            await players.run(many, request_id="r1")
        with at_crash_point("mutations.before_execute", fail), pytest.raises(Aborted):
            await other.run(many, request_id="r1")
    finally:
        object.__setattr__(declared, "plan", right)
    first = planned[0].answer
    assert (await other.run(many, request_id="r1")).response["granted"] == first["granted"]
    again = (await other.run(many, request_id="r2")).response["granted"]
    assert again != first["granted"], "another request has a seed of its own"
    known = await seeds(players)
    assert known["r1"] != known["r2"]


async def test_an_id_that_is_used_again_after_the_retention_has_new_dice(
    players: Players, database: Database
) -> None:
    """Otherwise a caller that has found a lucky id would use it once an hour."""
    await enrol(players, "ann", items={"box": 100})
    many = UseItem(player_id="ann", item="box", count=50)
    with at_crash_point("mutations.before_execute", fail), pytest.raises(Aborted):
        await players.run(many, request_id="r1")
    first = await players.run(many, request_id="r1")
    with closing(Caller(database.admin_url)) as admin:
        assert admin.value("select count(*) from fencepost.mutation_seed") == 1
        admin.execute("update fencepost.mutation_seed set expires_at = now()")
        admin.execute("delete from fencepost.idempotency_key where key = 'r1'")
        second = await players.run(many, request_id="r1")
        assert second.response["granted"] != first.response["granted"]
        assert admin.value("select fencepost.mutation_seed_clean(10)") == 1


async def test_nothing_is_recorded_for_what_leaves_nothing_to_chance(
    players: Players, database: Database
) -> None:
    await enrol(players, "ann")
    with at_crash_point("mutations.before_execute", fail), pytest.raises(Aborted):
        await players.run(gold(), request_id="r1")
    with closing(Caller(database.admin_url)) as admin:
        assert admin.value("select count(*) from fencepost.mutation_seed") == 0


async def test_a_held_hot_player_holds_up_no_other_caller(players: Players, database: Database) -> None:
    for name in ("ann", "bob", "cat"):
        await enrol(players, name)
    with closing(Caller(database.admin_url)) as admin:
        with admin.transaction():
            admin.execute("select from fencepost.player where player_id = 'ann' for update")
            held = [asyncio.create_task(players.run(gold(), request_id=f"a{n}")) for n in range(6)]
            others = [
                players.run(gold(name), request_id=f"r{n}") for name in ("bob", "cat") for n in range(20)
            ]
            answers = await asyncio.gather(*others)
            assert len(answers) == 40
            assert not any(one.done() for one in held)
        await asyncio.gather(*held)
    assert await balances(players, "ann") == {"gold": 6}


async def test_a_lost_reply_of_a_plan_under_the_lock_is_settled_by_its_key(
    players: Players, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enrol(players, "ann")

    def overtake() -> None:
        with database.connect_admin() as admin:
            admin.execute("insert into fencepost.player_clear values ('ann', 'cave', 1)")

    with Proxy.for_postgres(database.url) as proxy:
        async with Fencepost(proxy.url, settings=Settings(pool_min=1, pool_max=2)) as fp:
            behind = Players(fp)
            executed: list[int] = []
            right = PlayerStore.execute

            def execute(*arguments: Any, **options: Any) -> Any:
                """The reply of the COMMIT that follows the second execution is lost."""
                call = right(*arguments, **options)

                def read(rows: Any) -> Any:
                    executed.append(1)
                    if len(executed) == 1:
                        proxy.lose_reply()
                    return call.read(rows)

                return replace(call, read=read)

            monkeypatch.setattr(PlayerStore, "execute", execute)
            with at_crash_point("mutations.before_execute", overtake):
                answer = await behind.run(CAVE, request_id="r1")
            assert executed == [1], "its key told that it had committed"
    assert answer.layer == "repeat"
    assert answer.response["clears"] == 2
    assert (await players.player("ann")).state["clears"] == {"cave": 2}


async def test_a_node_that_stands_still_on_locked_rows_is_ended_in_time(
    players: Players, database: Database
) -> None:
    for name in ("ann", "bob"):
        await enrol(players, name)
    hold = (
        "select outcome, version from fencepost.player_hold"
        "('player:ann', 'k1', 'd', 'ann', array['bob', 'ann', 'nobody'], '{\"catalog\": []}')"
    )
    nowait = "select from fencepost.player where player_id = 'bob' for update nowait"
    with closing(Caller(database.url)) as holder, closing(Caller(database.admin_url)) as other:
        with holder.transaction():
            assert holder.rows(hold) == [{"outcome": "open", "version": 1}]
            assert holder.value("show idle_in_transaction_session_timeout") == "10s"
            other.failed("55P03", nowait)
        other.execute(nowait)
