"""Many clients, nodes killed at every point, a Redis that is restarted: nothing is doubled, nothing lost."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from fencepost.embedded import Database, ValkeyServer
from fencepost.kernel.drivers import run
from fencepost.testing import Signals
from fencepost_players import _queries as queries
from tests.acceptance.players.crowd import Crowd
from tests.acceptance.players.nodes import POINTS, Fleet
from tests.integration.players import env
from tests.tmp_dirs import server_directory

STORM_SECONDS_MAX = 1800.0


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(server_directory(), ephemeral=True) as server:
        yield server


@pytest.mark.timeout(300)
async def test_clients_nodes_and_redis_in_trouble_make_every_effect_once(
    database: Database, own_valkey: ValkeyServer
) -> None:
    await _rage(database, own_valkey, clients=200, wishes=1, kills=1)


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_the_same_for_minutes(database: Database, own_valkey: ValkeyServer) -> None:
    await _rage(database, own_valkey, clients=200, wishes=40, kills=12)


async def _rage(database: Database, valkey: ValkeyServer, *, clients: int, wishes: int, kills: int) -> None:
    seed = random.getrandbits(32)
    print(f"seed {seed}")  # noqa: T201
    with database.connect() as connection:
        for call in env.calls():
            run(connection, call)
    chance = random.Random(seed)  # noqa: S311 - No secrets.
    with Signals() as signals:
        await _suffer(database, valkey, signals, chance, clients=clients, wishes=wishes, kills=kills)


async def _suffer(
    database: Database,
    valkey: ValkeyServer,
    signals: Signals,
    chance: random.Random,
    *,
    clients: int,
    wishes: int,
    kills: int,
) -> None:
    async with Fleet(database.url, valkey.url, chance, kills) as fleet:
        crowd = Crowd(fleet, chance, model=_enrol(database, clients))
        troubling = asyncio.create_task(_trouble(valkey, signals, clients * wishes))
        await asyncio.gather(*(_live(crowd, player, wishes) for player in list(crowd.model)))
        await troubling
        # A process that is still ordered to die does: more wishes, until all have.
        while fleet.killed < kills * len(POINTS):
            fleet.check()
            await _live(crowd, next(iter(crowd.model)), 1, first=crowd.settled)
    print(  # noqa: T201 - The figures of a storm are read by people.
        f"{crowd.settled} requests in {crowd.copies} copies, {crowd.sendings} sendings, "
        f"{fleet.killed} nodes killed, {len(crowd.differing)} answers that differ"
    )
    assert crowd.differing == []
    assert crowd.copies > crowd.settled
    _compare(database, crowd, expected=clients + crowd.settled)


def _enrol(database: Database, clients: int) -> dict[str, Counter[str]]:
    """Players with much to lose."""
    create = """
        select fencepost.player_execute('player:p' || n, 'create', 'd', null, 'CreatePlayer', null, null,
          jsonb_build_object('create', true, 'parties', jsonb_build_array(jsonb_build_object(
            'player', 'p' || n, 'change', '{"resources": {"gold": 1000}, "stacks": {"box": 500}}'::jsonb))))
        from generate_series(1, %s) n"""
    with database.connect() as connection:
        connection.execute(create, (clients,))
    return {f"p{n}": Counter(gold=1000, box=500) for n in range(1, clients + 1)}


async def _live(crowd: Crowd, player: str, wishes: int, *, first: int = 0) -> None:
    for number in range(first, first + wishes):
        await crowd.settle(crowd.wish(player, number))


async def _trouble(valkey: ValkeyServer, signals: Signals, expected: int) -> None:
    """Redis is wiped after a third of the work, and restarted after two thirds."""
    for part, trouble in enumerate((valkey.wipe, valkey.restart), 1):
        await signals.wait("crowd.settled", count=expected * part // 3, within=STORM_SECONDS_MAX)
        await asyncio.to_thread(trouble)


def _compare(database: Database, crowd: Crowd, expected: int) -> None:
    """Inventory and resources against the model; the audit against both; one record for each request."""
    with database.connect() as connection:
        for player, model in crowd.model.items():
            state = run(connection, queries.state(player))
            assert state is not None
            held = Counter[str](state.state["resources"])
            for holding in run(connection, queries.inventory(player, limit=10_000)):
                held[holding.item] += holding.count
            assert held == +model, player
            assert run(connection, queries.audit_check(player)) == []
    # A transfer has a record on both sides; the giver's is the one that loses.
    records = """
        select count(*), count(distinct (player_id, request_id)) from fencepost.player_audit
        where method <> 'Transfer' or (changes #>> '{resources,gold}')::int < 0"""
    with database.connect_admin() as admin:
        assert admin.execute(records).fetchone() == (expected, expected)
