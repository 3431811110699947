"""A request that is sent again: one effect, the first answer, whatever has become of Redis."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
import redis

from fencepost import Fencepost
from fencepost.embedded import Database, ValkeyServer
from fencepost.redis_streams.response_cache import Announced, CacheKey, InProgress
from fencepost.testing import PlannedCrash, Proxy, at_crash_point, crash_at
from fencepost_players import _queries as queries
from fencepost_players import catalog
from fencepost_players.mutations.errors import Aborted, AlreadyExists, KeyReused
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import ClearDungeon, GrantItems, ItemGrant, UseItem
from fencepost_players.service import Players
from tests.integration.players import env
from tests.integration.players.conftest import Node, balances, enrol
from tests.tmp_dirs import server_directory

BOX = UseItem(player_id="ann", item="box", count=20)
SWORDS = catalog.Reward(piece="sword", count=30)
HASTY = MutationSettings(cache_wait_seconds=0.05)


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A Valkey that a test may kill."""
    with ValkeyServer(server_directory(), ephemeral=True) as server:
        yield server


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    """A hand in the Redis of the nodes."""
    with cast("Any", redis.Redis).from_url(redis_url) as client:
        yield client


async def with_boxes(players: Players) -> None:
    await env.load(players.fp)
    await enrol(players, "ann", items={"box": 100})


async def test_a_repeat_is_answered_by_the_key_where_there_is_no_redis(players: Players) -> None:
    await enrol(players, "ann", items={"box": 100})
    first = await players.run(BOX, request_id="r1")
    again = await players.run(BOX, request_id="r1")
    assert (first.layer, again.layer) == ("executed", "repeat")
    assert again.response == first.response
    assert (await balances(players, "ann"))["box"] == 80


async def test_a_repeat_is_answered_by_redis_without_a_question_to_postgresql(
    cached: Players, monkeypatch: pytest.MonkeyPatch
) -> None:
    await enrol(cached, "ann", items={"box": 100})
    first = await cached.run(BOX, request_id="r1")
    monkeypatch.setattr(cached.fp, "run", None)
    again = await cached.run(BOX, request_id="r1")
    assert (again.layer, again.response) == ("cache", first.response)


@pytest.mark.parametrize("trouble", ["killed", "wiped", "frozen"])
async def test_completed_then_redis_is_lost_and_the_same_request_comes_again(
    trouble: str, node: Node, own_valkey: ValkeyServer
) -> None:
    players = await node(own_valkey.url, HASTY)
    await with_boxes(players)
    first = await players.run(BOX, request_id="r1")
    held = await balances(players, "ann")
    {"killed": own_valkey.kill, "wiped": own_valkey.wipe, "frozen": own_valkey.pause}[trouble]()
    again = await players.run(BOX, request_id="r1")
    assert (again.layer, again.response) == ("repeat", first.response)
    assert await balances(players, "ann") == held
    if trouble == "frozen":
        own_valkey.resume()


async def test_with_redis_dead_from_the_start_requests_take_effect_once_and_quickly(
    node: Node, own_valkey: ValkeyServer
) -> None:
    players = await node(own_valkey.url, HASTY)
    own_valkey.kill()
    await with_boxes(players)
    begun = time.monotonic()
    answers = [await players.run(BOX, request_id="r1") for _ in range(20)]
    # A dead Redis is asked about once a second, not for every request.
    assert time.monotonic() - begun < 5
    assert all(answer.response == answers[0].response for answer in answers)
    assert (await balances(players, "ann"))["box"] == 80


async def test_a_redis_that_answers_late_neither_repeats_nor_hides_the_answer(
    node: Node, own_valkey: ValkeyServer
) -> None:
    with Proxy.for_redis(own_valkey.url) as proxy:
        late, other = await node(proxy.url, HASTY), await node(own_valkey.url)
        await with_boxes(other)
        proxy.delay(0.5)
        first = await late.run(BOX, request_id="r1")
        # Redis still has the late node's announcement, which is not withdrawn: the key answers.
        again = await other.run(BOX, request_id="r1")
        assert (first.layer, again.layer) == ("executed", "repeat")
        assert again.response == first.response
        assert (await balances(other, "ann"))["box"] == 80


LIES = (
    "nonsense",
    "pending",
    "pending token soon",
    "pending token 1",
    "pending token 99999999999999",
    "pending token " + "9" * 5000,
    "done {",
    "done []",
    "done " + json.dumps({"scope": "player:bob", "key": "r1", "digest": "d", "response": {"version": 9}}),
    "done " + json.dumps({"scope": "player:ann", "key": "r1", "digest": "d", "response": {"version": 9}}),
)


async def test_whatever_stands_in_redis_the_answer_is_right(cached: Players, client: Any) -> None:
    await enrol(cached, "ann", items={"box": 200})
    for number, lie in enumerate(LIES):
        request_id = f"r{number}"
        place, said = f"fencepost:mutation:{{player:ann/{request_id}}}", lie.replace("r1", request_id)
        client.set(place, said)
        first = await cached.run(BOX, request_id=request_id)
        client.set(place, said)
        again = await cached.run(BOX, request_id=request_id)
        assert (first.layer, again.layer) == ("executed", "repeat"), lie
        assert again.response == first.response


async def test_what_is_under_way_elsewhere_is_aborted_with_a_time_to_come_back(
    cached: Players, client: Any
) -> None:
    await enrol(cached, "ann", items={"box": 100})
    ends_ms = time.time_ns() // 1_000_000 + 3000
    client.set("fencepost:mutation:{player:ann/r1}", f"pending other {ends_ms}")
    with pytest.raises(Aborted) as refused:
        await cached.run(BOX, request_id="r1")
    assert refused.value.meta["reason"] == "pending"
    assert 0 < (refused.value.retry_seconds or 0) <= 3


async def test_what_did_not_come_to_an_answer_is_withdrawn_so_that_a_retry_need_not_wait(
    cached: Players,
) -> None:
    await enrol(cached, "ann", items={"box": 100})
    with pytest.raises(PlannedCrash), crash_at("mutations.before_execute"):
        await cached.run(BOX, request_id="r1")
    assert (await cached.run(BOX, request_id="r1")).layer == "executed"


async def test_a_late_withdrawal_leaves_another_nodes_announcement_alone(
    cached: Players, client: Any
) -> None:
    name = CacheKey("player:ann", "r1", "d")
    assert cached.cache is not None
    mine = await cached.cache.begin(name)
    assert isinstance(mine, Announced)
    client.flushall()
    theirs = await cached.cache.begin(name)
    assert isinstance(theirs, Announced)
    await cached.cache.abandon(name, mine.token)
    assert isinstance(await cached.cache.begin(name), InProgress)


@pytest.mark.parametrize(
    "other",
    [
        UseItem(player_id="ann", item="box", count=19),
        ClearDungeon(player_id="ann", dungeon="cave"),
    ],
)
@pytest.mark.parametrize("with_redis", [True, False])
async def test_the_same_id_with_another_method_or_body_is_a_mismatch(
    node: Node, redis_url: str, other: Any, with_redis: bool
) -> None:
    players = await node(redis_url if with_redis else None)
    await with_boxes(players)
    await players.run(BOX, request_id="r1")
    with pytest.raises(KeyReused) as refused:
        await players.run(other, request_id="r1")
    assert (refused.value.code, refused.value.meta["reason"]) == ("invalid_argument", "mismatch")
    assert (await balances(players, "ann"))["box"] == 80


async def test_an_id_is_a_players_own(players: Players) -> None:
    await enrol(players, "ann", items={"box": 1})
    await enrol(players, "bob", items={"box": 1})
    for player in ("ann", "bob"):
        answer = await players.run(UseItem(player_id=player, item="box"), request_id="same")
        assert answer.layer == "executed"


async def test_an_answer_of_a_thousand_pieces_is_kept_and_repeated(players: Players) -> None:
    await enrol(players, "ann")
    many = GrantItems(player_id="ann", items=(ItemGrant(item="sword", count=1000),))
    first = await players.run(many, request_id="r1")
    assert len(first.body) > 32_768
    again = await players.run(many, request_id="r1")
    assert (again.layer, again.body) == ("repeat", first.body)
    assert (await players.player("ann")).version == 2


async def test_an_answer_too_large_to_be_kept_makes_the_repeat_already_exists(players: Players) -> None:
    """The longest names that there are, and the most pieces."""
    long = "s" * 128
    await players.fp.run(queries.define("item", long, catalog.Item(stackable=True, rewards=(SWORDS,) * 60)))
    await enrol(players, "ann", items={long: 1})
    use = UseItem(player_id="ann", item=long)
    first = await players.run(use, request_id="r1")
    assert len(first.body) > 65_536
    with pytest.raises(AlreadyExists):
        await players.run(use, request_id="r1")
    assert (await players.player("ann")).version == 3


async def test_a_refused_plan_does_not_hide_the_answer_of_its_first_sending(players: Players) -> None:
    """The first sending commits after the second one has looked, and takes what the second one plans with."""
    await enrol(players, "ann", items={"sword": 1})
    (piece,) = await players.fp.run(queries.inventory("ann"))
    request = UseItem(player_id="ann", item="sword", piece_id=piece.piece_id)
    answers = await asyncio.gather(
        *(players.run(request, request_id="r1") for _ in range(8)), return_exceptions=True
    )
    assert {type(answer).__name__ for answer in answers} <= {"Aborted", "MutationAnswer"}, answers
    assert await balances(players, "ann") == {"dust": 7}


async def test_many_senders_of_one_request_to_three_nodes_make_one_effect(node: Node, redis_url: str) -> None:
    nodes = [await node(redis_url), await node(redis_url), await node()]
    await with_boxes(nodes[0])

    async def send(players: Players) -> Any:
        """Again and again, as a client does: every try is a conversation of its own, so others go on."""
        async with asyncio.timeout(60):
            while True:
                with suppress(Aborted):
                    return (await players.run(BOX, request_id="r1")).response

    answers = await asyncio.gather(*(send(nodes[n % 3]) for n in range(30)))
    assert all(answer == answers[0] for answer in answers)
    assert (await balances(nodes[0], "ann"))["box"] == 80


async def test_a_lost_commit_reply_is_settled_by_the_key(database: Database, node: Node) -> None:
    players = await node()
    await with_boxes(players)
    with Proxy.for_postgres(database.url) as proxy:
        async with Fencepost(proxy.url) as fp:
            behind = Players(fp)
            await behind.player("ann")
            # The look is answered, then the execution happens and its reply is lost.
            with at_crash_point("mutations.before_execute", proxy.lose_reply):
                answer = await behind.run(BOX, request_id="r1")
    assert answer.layer == "repeat"
    assert (await balances(players, "ann"))["box"] == 80
