"""Nodes of the player service in processes of their own, and whoever keeps three of them alive.

One process has everything loaded and forks the nodes: a node that was killed is back in a moment.
"""

import asyncio
import os
import random
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from fencepost import Fencepost, crashpoints
from fencepost.testing import Child, child_main
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


def fork_server(database_url: str, redis_url: str) -> None:
    """Forks a node for each line that it reads: its number, and the order to die by. Tells of each death."""
    numbers: dict[int, str] = {}

    def reap(*_: Any) -> None:
        while True:
            try:
                pid, _status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            _say(f"died {numbers[pid]}.")

    signal.signal(signal.SIGCHLD, reap)
    parent = os.getpid()
    for line in sys.stdin:
        number, _, order = line.strip().partition(" ")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if pid == 0:
            child_main.die_with(parent)
            _serve(database_url, redis_url, number, order)
        numbers[pid] = number
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


def _serve(database_url: str, redis_url: str, number: str, order: str) -> None:
    """One node, until it is killed."""
    crashpoints._watchers.extend(  # pyright: ignore[reportPrivateUsage]
        crashpoints.ordered({crashpoints.VARIABLE: order})
    )
    fp = Fencepost(database_url, redis_url=redis_url)
    players = Players(fp, SETTINGS)
    app = make_app(
        [HttpService("players", make_router(players), players.running)],
        WebSettings(),
        opened_first=lambda: fp,
    )
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    _say(f"serving {number} {server.url}")
    threading.Event().wait()


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


class Fleet:
    """Three nodes; one that was killed is started again, to be killed at the next point of the list."""

    def __init__(self, database_url: str, redis_url: str, chance: random.Random, kills: int) -> None:
        self._chance = chance
        self.orders = [f"{point}:kill@{chance.randrange(1, 15)}" for _ in range(kills) for point in POINTS]
        self.killed = 0
        self.urls = [""] * 3
        self._started = 0
        self._tending: list[asyncio.Task[None]] = []
        self._fork_server = Child(fork_server, database_url, redis_url)

    async def __aenter__(self) -> "Fleet":
        numbers = [await self._start(place) for place in range(3)]
        self._tending = [
            asyncio.create_task(self._tend(place, number)) for place, number in enumerate(numbers)
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tending:
            task.cancel()
        await asyncio.gather(*self._tending, return_exceptions=True)
        self._fork_server.__exit__(None, None, None)

    def any_url(self) -> str:
        return self._chance.choice(self.urls)

    def check(self) -> None:
        """Whoever keeps the nodes alive must be well itself."""
        for task in self._tending:
            if task.done():
                task.result()

    async def _tend(self, place: int, number: int) -> None:
        while True:
            await self._hear(f"died {number}.", LIFE_SECONDS_MAX)
            self.killed += 1
            number = await self._start(place)

    async def _start(self, place: int) -> int:
        self._started += 1
        number = self._started
        self._fork_server.say(f"{number} {self.orders.pop() if self.orders else ''}")
        line = await self._hear(f"serving {number} ", START_SECONDS_MAX)
        self.urls[place] = line.rpartition(" ")[2]
        return number

    async def _hear(self, start: str, within: float) -> str:
        """The line of the fork server that starts like this. The waiting thread ends with the fork server."""
        return await asyncio.to_thread(self._fork_server.line, start, within=within)
