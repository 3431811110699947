"""The nodes of the benchmark: processes with a share of the clients each, as a service is deployed.

One process would measure one core's Python, not the service.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from threading import Barrier

from fencepost.client import Fencepost
from fencepost.settings import Settings
from fencepost_players.mutations.errors import MutationError
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.requests import Draw, GrantItems
from fencepost_players.service import Players

# As an operator would deploy it: a node for each core. There are always as many clients.
NODES = max(1, min(4, os.cpu_count() or 1))
CONNECTIONS = 4
WARM_UP_CALLS = 10
CLIENTS_MAX = 16
"""The most connections of a node."""
START_SECONDS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class NodeTask:
    """What one node does: mutations of its own players, each new or one repeated."""

    database_url: str
    redis_url: str | None
    first_player: int
    clients: int
    calls: int
    repeats: bool
    start: Barrier
    """When all nodes have warmed up, they begin together."""
    hot: str | None = None
    """`grants` or `draws`: all clients of all nodes send them to one player, under ids of their own."""
    first_client: int = 0


@dataclass(frozen=True, slots=True)
class NodeDone:
    """When it began, by the clock that all processes share; when each call ended, and how long it took."""

    begun: float
    ended: float
    calls: list[tuple[float, float]]
    processor_seconds: float
    refused: int = 0
    """Requests that were answered with a conflict, and would have to be sent again."""


@dataclass(frozen=True, slots=True)
class NodeProcesses:
    """Processes that live for the whole benchmark, and the barrier that they start from."""

    pool: ProcessPoolExecutor
    start: Barrier


@contextmanager
def workers() -> Generator[NodeProcesses]:
    context = get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(NODES, mp_context=context) as pool:
        yield NodeProcesses(pool, manager.Barrier(NODES))


def work(task: NodeTask) -> NodeDone:
    return asyncio.run(_work(task))


async def _work(task: NodeTask) -> NodeDone:
    # Concurrent clients share a statement, so a few connections serve them all.
    settings = Settings(pool_min=CONNECTIONS, pool_max=min(task.clients, CLIENTS_MAX))
    refused: list[str] = []
    async with Fencepost(task.database_url, redis_url=task.redis_url, settings=settings) as fp:
        players = Players(fp, MutationSettings(cache_wait_seconds=2))
        await _all_clients(players, task, 0, 1 if task.hot else WARM_UP_CALLS, [])
        await asyncio.to_thread(task.start.wait, START_SECONDS_MAX)
        begun, used = time.time(), time.process_time()
        calls = await _all_clients(players, task, WARM_UP_CALLS, WARM_UP_CALLS + task.calls, refused)
        ended, used = time.time(), time.process_time() - used
        await players.close()
    return NodeDone(begun, ended, calls, used, len(refused))


Calls = list[tuple[float, float]]


async def _all_clients(players: Players, task: NodeTask, first: int, last: int, refused: list[str]) -> Calls:
    one = _client if task.hot is None else _hot_client
    clients = (one(players, task, client, first, last, refused) for client in range(task.clients))
    return [call for taken in await asyncio.gather(*clients) for call in taken]


async def _hot_client(
    players: Players, task: NodeTask, client: int, first: int, last: int, refused: list[str]
) -> Calls:
    """Each request is sent once: a refused one is counted, not repeated."""
    player_id, taken = f"p{task.first_player}", Calls()
    request = (
        Draw(player_id=player_id, pool="bench")
        if task.hot == "draws"
        else GrantItems(player_id=player_id, resources={"gold": 1})
    )
    for number in range(first, last):
        begun = time.perf_counter()
        try:
            await players.run(request, request_id=f"c{task.first_client + client}-{number}")
        except MutationError as error:
            refused.append(error.code)
        taken.append((time.time(), time.perf_counter() - begun))
    return taken


async def _client(
    players: Players, task: NodeTask, client: int, first: int, last: int, refused: list[str]
) -> Calls:
    request = GrantItems(player_id=f"p{task.first_player + client}", resources={"gold": 1})
    taken: Calls = []
    for number in range(first, last):
        begun = time.perf_counter()
        await players.run(request, request_id="same" if task.repeats else f"r{number}")
        taken.append((time.time(), time.perf_counter() - begun))
    return taken
