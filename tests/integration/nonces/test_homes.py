"""Queue mode: which nodes are homes, and what a node does with a signer whose home is another."""

from collections.abc import AsyncGenerator

import pytest

from fencepost import Fencepost
from fencepost.cli._app import run
from fencepost.cli.exit_codes import ExitCode
from fencepost.embedded import Database
from fencepost_nonces import _nonce_calls as nonce_calls
from fencepost_nonces import _queries as queries
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._nonce_calls import NonceEnding
from fencepost_nonces._routing import home_of
from fencepost_nonces.node import Node
from fencepost_nonces.signer import Signer
from tests.integration.nonces.env import ALICE, NoncesEnv, town_on

QUEUE = {"mode": "queue", "lease_seconds": 300}
SIGNERS = [Signer.of(1, f"s{number}") for number in range(200)]


@pytest.fixture
async def env(database: Database) -> AsyncGenerator[NoncesEnv]:
    async with town_on(database) as env:
        yield env


async def look(*nodes: Node) -> None:
    """Each sees who the others are, as a turn of its loop does."""
    for node in nodes:
        await node._keep()  # pyright: ignore[reportPrivateUsage]


async def token_of(fp: Fencepost, signer: Signer) -> int:
    (facts,) = await fp.run(queries.signer(signer))
    return int(facts["fencing_token"])


async def at_home_and_away(env: NoncesEnv) -> tuple[Node, Node]:
    nodes = [await env.node(**QUEUE, node_address=f"http://n{number}") for number in range(2)]
    await look(*nodes)
    home, away = sorted(nodes, key=lambda node: node.home(ALICE) is not None)
    return home, away


async def test_every_write_away_from_home_is_refused_with_the_home_which_keeps_its_lease(
    env: NoncesEnv,
) -> None:
    home, away = await at_home_and_away(env)
    (row,) = await home.reserve(ALICE, ["r1"])

    for write in (
        away.reserve(ALICE, ["r2"]),
        away.mark_used(ALICE, row.nonce, row.hold),
        away.mark_recyclable(ALICE, row.nonce, row.hold),
        away.mark_many(ALICE, [NonceEnding(row.nonce, row.hold, "used")]),
        away.write(ALICE, lambda lease: nonce_calls.recycle(ALICE, lease), patient=False),
    ):
        with pytest.raises(SignerElsewhere) as caught:
            await write
        assert caught.value.owner == home.address

    assert await token_of(env.clients[home], ALICE) == 1
    await home.mark_used(ALICE, row.nonce, row.hold)


async def test_a_mark_finds_its_nonce_when_the_home_has_changed_meanwhile(env: NoncesEnv) -> None:
    """The old home still holds the lease and must not write; the new one is handed it, and the hold names the
    same reservation there."""
    old, _ = await at_home_and_away(env)
    (row,) = await old.reserve(ALICE, ["r1"])
    address = next(
        address
        for address in (f"http://new{number}" for number in range(1000))
        if home_of(ALICE.resource, ["http://n0", "http://n1", address]) == address
    )
    new = await env.node(**QUEUE, node_address=address)
    await look(new)
    old._nodes = new._nodes  # pyright: ignore[reportPrivateUsage] - It has seen it, and not tidied yet.

    with pytest.raises(SignerElsewhere) as caught:
        await old.mark_used(ALICE, row.nonce, row.hold)
    assert caught.value.owner == address
    await new.mark_used(ALICE, row.nonce, row.hold)

    (again,) = await new.reserve(ALICE, ["r1"])
    assert (again.nonce, again.hold, again.status) == (row.nonce, row.hold, "CONSUMED")
    assert again.fencing_token == 2


async def test_a_caller_that_does_not_get_it_is_told_where_the_holder_can_be_asked(env: NoncesEnv) -> None:
    """A node of basic mode has it: its address, and not its name."""
    holder = await env.node(lease_seconds=300, idle_seconds=300, node_address="http://basic")
    await holder.reserve(ALICE, ["r1"])
    other = await env.node(lease_seconds=300)

    with pytest.raises(SignerElsewhere) as caught:
        await other.write(ALICE, lambda lease: nonce_calls.recycle(ALICE, lease), patient=False)

    assert caught.value.owner == "http://basic"


async def test_a_node_that_cannot_be_asked_is_no_home(env: NoncesEnv) -> None:
    nodes = [await env.node(**QUEUE, node_address=f"http://n{number}") for number in range(2)]
    silent = await env.node(**QUEUE)
    await look(*nodes)

    homes = {node.home(signer) or node.address for node in (*nodes, silent) for signer in SIGNERS}

    assert homes == {"http://n0", "http://n1"}
    with pytest.raises(SignerElsewhere):
        await silent.reserve(ALICE, ["r1"])


async def test_nodes_without_addresses_serve_what_they_get_while_there_are_no_others(env: NoncesEnv) -> None:
    first, second = [await env.node(**QUEUE) for _ in range(2)]
    await look(first, second)

    rows = [await node.reserve(ALICE, [f"r{number}"]) for number, node in enumerate((first, second, first))]

    assert [row.nonce for (row,) in rows] == [0, 1, 2]


def test_a_command_does_not_become_the_home_of_signers(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("LOG_LEVEL", "error")

    assert run(["nonces", "reserve", "1", ALICE.name, "pay-7"]) == ExitCode.OK

    with database.connect_admin() as admin:
        kept = admin.execute("select resource from fencepost.lease where resource like 'nonces:node:%'")
        assert kept.fetchall() == []
