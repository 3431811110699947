"""Nodes of the player service in processes of their own, and the supervisor that keeps three of them alive.

They are forks of a process that has everything loaded: a node that was killed is back in a moment.
"""

import asyncio
import contextlib
import random
import threading
from pathlib import Path

from fencepost import Fencepost
from fencepost.testing import Child
from fencepost.testing._points import points_in
from fencepost_players import mutations, service
from fencepost_players._api import make_router
from fencepost_players.mutations.settings import MutationSettings
from fencepost_players.service import Players
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

# Read from the source: a point that is added is died at.
POINTS = tuple(
    sorted(
        str(point.name)
        for part in (mutations, service)
        for point in points_in(Path(str(part.__file__)).parent)
        if point.hook == "crash_point"
    )
)
# Short, because the clients wait for a dead node's announcement to end.
SETTINGS = MutationSettings(pending_seconds=0.5, cache_wait_seconds=0.2)
START_SECONDS_MAX = 60.0
LIFE_SECONDS_MAX = 3600.0


def serve(database_url: str, redis_url: str) -> None:
    """One node, until it is killed."""
    fp = Fencepost(database_url, redis_url=redis_url)
    players = Players(fp, SETTINGS)
    app = make_app(
        [HttpService("players", make_router(players), players.running)],
        WebSettings(),
        opened_first=lambda: fp,
    )
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    print(f"serving {server.url}")  # noqa: T201 - The test reads it.
    threading.Event().wait()


class Fleet:
    """Three nodes; one that was killed is started again, to be killed at the next point of the list."""

    def __init__(self, database_url: str, redis_url: str, chance: random.Random, kills: int) -> None:
        self._chance = chance
        self.orders = [f"{point}:kill@{chance.randrange(1, 15)}" for _ in range(kills) for point in POINTS]
        self.killed = 0
        self.urls = [""] * 3
        self._addresses = database_url, redis_url
        self._nodes = contextlib.ExitStack()
        self._tending: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Fleet":
        nodes = [await self._start(place) for place in range(3)]
        self._tending = [asyncio.create_task(self._tend(place, node)) for place, node in enumerate(nodes)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tending:
            task.cancel()
        # The threads that wait for a node's death or first words end with the node.
        self._nodes.close()
        await asyncio.gather(*self._tending, return_exceptions=True)

    def any_url(self) -> str:
        return self._chance.choice(self.urls)

    def check(self) -> None:
        """The supervisor of the nodes must be well itself."""
        for task in self._tending:
            if task.done():
                task.result()

    async def _tend(self, place: int, node: Child) -> None:
        while True:
            await asyncio.to_thread(node.be_killed, within=LIFE_SECONDS_MAX)
            self.killed += 1
            node = await self._start(place)

    async def _start(self, place: int) -> Child:
        order = self.orders.pop() if self.orders else ""
        node = self._nodes.enter_context(Child(serve, *self._addresses, crash=order))
        line = await asyncio.to_thread(node.line, "serving ", within=START_SECONDS_MAX)
        self.urls[place] = line.rpartition(" ")[2]
        return node
