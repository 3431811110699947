"""Nodes that share signers: no duplicate and no hole in either mode, whichever is asked."""

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from fencepost.embedded import Database
from fencepost.errors import Backpressure, InvalidInput
from fencepost.kernel.call import Call
from fencepost.testing import Clock, Signals
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._routing import home_of
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer
from tests.integration.nonces.env import ALICE, NoncesEnv, stand_still, town_on


@pytest.fixture
async def env(database: Database) -> AsyncGenerator[NoncesEnv]:
    async with town_on(database) as env:
        yield env


async def reserve_many(nodes: list[Node], count: int, seed: int = 7) -> list[int]:
    chance = random.Random(seed)  # noqa: S311 - A choice of nodes is no secret.

    async def ask(number: int) -> int:
        (row,) = await chance.choice(nodes).reserve(ALICE, [f"r{number}"])
        return row.nonce

    return list(await asyncio.gather(*(ask(number) for number in range(count))))


async def test_any_node_may_be_asked_without_waiting_for_a_lease_to_end(env: NoncesEnv) -> None:
    """A lease of five minutes: only handing over early lets all three serve within the waiting time."""
    nodes = [await env.node(lease_seconds=300, turn_seconds=0.01) for _ in range(3)]

    nonces = await reserve_many(nodes, 45)

    assert sorted(nonces) == list(range(45))
    served = [env.calls(node, "nonce_reserve") for node in nodes]
    assert min(served) > 0


async def test_a_node_that_idles_gives_the_signer_up(env: NoncesEnv) -> None:
    first = await env.node(lease_seconds=300, idle_seconds=0.02)
    second = await env.node(lease_seconds=300)
    await first.reserve(ALICE, ["r1"])

    (row,) = await second.reserve(ALICE, ["r2"])

    assert (row.nonce, row.fencing_token) == (1, 2)


async def test_a_node_that_stops_hands_over(env: NoncesEnv) -> None:
    first = await env.node(lease_seconds=300)
    second = await env.node(lease_seconds=300)
    await first.reserve(ALICE, ["r1"])
    await first.stop()

    (row,) = await second.reserve(ALICE, ["r2"])

    assert row.nonce == 1


async def test_a_node_that_was_stopped_takes_no_signer_any_more(env: NoncesEnv) -> None:
    """It would not be renewed, and a request of another node would not be heard."""
    first = await env.node(lease_seconds=300)
    await first.stop()

    with pytest.raises(SignerElsewhere):
        await first.reserve(ALICE, ["r1"])


async def test_a_signer_that_was_got_after_no_caller_waited_is_handed_over(
    env: NoncesEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller that gave up no longer hears that it got it. The node does, and nothing waits for the lease
    to end."""
    first = await env.node(lease_seconds=300)
    second = await env.node(lease_seconds=300)
    client = env.clients[first]
    run, taken, arrives = client.run, asyncio.Event(), asyncio.Event()

    async def late(call: Call[Any]) -> Any:
        answer = await run(call)
        taken.set()
        await arrives.wait()
        return answer

    monkeypatch.setattr(client, "run", late)
    impatient = asyncio.create_task(first.reserve(ALICE, ["r1"]))
    await taken.wait()
    impatient.cancel()
    await asyncio.wait([impatient])
    arrives.set()

    (row,) = await second.reserve(ALICE, ["r2"])

    assert (row.nonce, row.fencing_token) == (0, 2)


async def test_a_node_that_was_taken_over_is_refused_and_finds_its_way_back(
    env: NoncesEnv, clock: Clock
) -> None:
    """The belief in a lease is only a belief: the refusal is counted, and the retry asks for the lease."""
    first = await env.node(lease_seconds=30, idle_seconds=300)
    second = await env.node(lease_seconds=30, idle_seconds=300)
    await first.reserve(ALICE, ["r1"])
    # It stands still, as a paused one does: its next turn would notice that the lease is lost.
    await stand_still(first)
    clock.advance(31)
    await second.reserve(ALICE, ["r2"])

    (row,) = await first.reserve(ALICE, ["r3"])

    assert row.nonce == 2
    assert row.fencing_token >= 3
    assert env.rejects(first, "reserve") == 1


async def test_marks_may_go_through_any_node(env: NoncesEnv) -> None:
    first = await env.node(lease_seconds=300)
    second = await env.node(lease_seconds=300)
    (row,) = await first.reserve(ALICE, ["r1"])

    await second.mark_recyclable(ALICE, row.nonce, row.hold)

    (again,) = await first.reserve(ALICE, ["r2"])
    assert (again.nonce, again.hold) == (0, 2)


async def test_a_signer_that_is_held_elsewhere_is_an_answer_with_the_owner(
    env: NoncesEnv, clock: Clock
) -> None:
    first = await env.node(lease_seconds=300)
    second = await env.node(lease_seconds=300, wait_seconds=5.0)
    await first.reserve(ALICE, ["r1"])
    await stand_still(first)

    with pytest.raises(SignerElsewhere) as caught:
        await second.reserve(ALICE, ["r2"])

    assert caught.value.owner == first.owner


async def test_all_waiting_callers_are_served_with_few_statements(env: NoncesEnv) -> None:
    node = await env.node(mode="queue", lease_seconds=300)

    nonces = await reserve_many([node], 500)

    assert sorted(nonces) == list(range(500))
    assert env.calls(node, "nonce_reserve") <= 5


async def test_the_queue_keeps_the_order_of_arrival(env: NoncesEnv) -> None:
    node = await env.node(mode="queue", lease_seconds=300, batch_max=7)

    assert await reserve_many([node], 50) == list(range(50))


async def test_a_request_that_is_refused_is_refused_alone(env: NoncesEnv) -> None:
    """Whatever the database would say no to is not in the statement of those who wait beside it."""
    node = await env.node(mode="queue", lease_seconds=300)
    bad = ["", "ü" * 150, "x" * 201, "a\0b", "\ud800", "tx:7", "recovered:0:1"]
    ids = ["r1", *bad, "x" * 200, "r2"]

    answers = await asyncio.gather(*(node.reserve(ALICE, [one]) for one in ids), return_exceptions=True)

    refused = [one for one, answer in zip(ids, answers, strict=True) if isinstance(answer, InvalidInput)]
    assert refused == bad
    assert [answer[0].nonce for answer in answers if not isinstance(answer, BaseException)] == [0, 1, 2]


async def test_a_full_queue_says_so_and_reserves_nothing(env: NoncesEnv) -> None:
    node = await env.node(mode="queue", queue_max=3)

    with pytest.raises(Backpressure, match="NONCES_QUEUE_MAX"):
        await node.reserve(ALICE, [f"r{number}" for number in range(4)])
    assert [row.nonce for row in await node.reserve(ALICE, ["r0"])] == [0]


async def test_a_signer_has_one_home_and_the_others_name_it(env: NoncesEnv) -> None:
    nodes = [await env.node(mode="queue", lease_seconds=300, node_address=f"http://n{i}") for i in range(3)]
    for node in nodes:
        await node._keep()  # pyright: ignore[reportPrivateUsage] - The look at the members that a turn takes.
    homes = {node.home(ALICE) or node.address for node in nodes}
    assert len(homes) == 1
    stranger = next(node for node in nodes if node.home(ALICE))

    with pytest.raises(SignerElsewhere) as caught:
        await stranger.reserve(ALICE, ["r1"])

    assert caught.value.owner == homes.pop()


async def test_the_signers_of_a_node_that_leaves_find_another_home(env: NoncesEnv) -> None:
    nodes = [await env.node(mode="queue", lease_seconds=300, node_address=f"http://n{i}") for i in range(2)]
    for node in nodes:
        await node._keep()  # pyright: ignore[reportPrivateUsage]
    home, other = sorted(nodes, key=lambda node: node.home(ALICE) is not None)
    await home.reserve(ALICE, ["r1"])
    await home.stop()
    await other._keep()  # pyright: ignore[reportPrivateUsage]

    (row,) = await other.reserve(ALICE, ["r2"])

    assert row.nonce == 1


async def test_nodes_of_both_modes_work_beside_each_other(env: NoncesEnv) -> None:
    """As while one mode is rolled out over the other."""
    # At an address that leaves the signer's home with the other one: away from home a queue only names it.
    elsewhere = next(
        address
        for address in (f"http://b{number}" for number in range(100))
        if home_of(ALICE.resource, [address, "http://n1"]) == "http://n1"
    )
    basic = await env.node(lease_seconds=300, node_address=elsewhere)
    queue = await env.node(mode="queue", lease_seconds=300, node_address="http://n1")

    nonces = await reserve_many([basic, queue], 40)

    assert sorted(nonces) == list(range(40))


async def test_a_repeat_at_another_node_gets_the_same_nonce(env: NoncesEnv) -> None:
    nodes = [await env.node(lease_seconds=300) for _ in range(2)]
    asks = [node.reserve(ALICE, ["same"]) for node in nodes for _ in range(5)]

    rows = [row for answer in await asyncio.gather(*asks) for row in answer]

    assert {(row.nonce, row.hold) for row in rows} == {(0, 1)}


async def test_many_signers_do_not_wait_for_each_other(env: NoncesEnv) -> None:
    node = await env.node(lease_seconds=300)
    signers = [Signer.of(1, f"s{number}") for number in range(20)]

    rows = await asyncio.gather(*(node.reserve(signer, ["r"]) for signer in signers))

    assert [row[0].nonce for row in rows] == [0] * 20


async def test_a_listener_that_connects_again_costs_the_node_no_signer(
    env: NoncesEnv, database: Database
) -> None:
    """What it missed is unknown, but who wants a signer says so again."""
    with Signals() as signals:
        node = await env.node(lease_seconds=300, idle_seconds=300)
        await node.reserve(ALICE, ["r1"])
        await signals.wait("listener.listening")
        with database.connect_admin() as admin:
            admin.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and query ilike 'listen %'"
            )
        await signals.wait("listener.listening", count=2)
    await node._keep()  # pyright: ignore[reportPrivateUsage] - A turn of its loop.

    (row,) = await node.reserve(ALICE, ["r2"])

    assert row.fencing_token == 1
