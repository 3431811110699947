"""Clients that send each request one to five times, in order or at once, until each copy has its answer.

What they were answered makes the model: a player holds what the answers said, each request counted once.
"""

import asyncio
import json
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fencepost.signals import announce
from tests.acceptance.players.nodes import Fleet

Held = dict[str, Counter[str]]
AGAIN = {409, 503}


@dataclass(frozen=True)
class Wish:
    """One request, and what it does to which player, as far as it is known before."""

    player_id: str
    request_id: str
    path: str
    body: dict[str, Any]
    takes: dict[str, int] = field(default_factory=dict[str, int])
    gives_to: str | None = None


@dataclass
class Crowd:
    fleet: Fleet
    chance: random.Random
    model: Held = field(default_factory=dict[str, Counter[str]])
    settled: int = 0
    copies: int = 0
    """How many times all wishes together were sent on purpose."""
    sendings: int = 0
    """The same with those that were sent again because a node died, or said so."""
    differing: list[str] = field(default_factory=list[str])

    def wish(self, player_id: str, number: int) -> Wish:
        """Anything that can always be done."""
        name = f"wish-{number}"
        others = [other for other in self.model if other != player_id]
        match self.chance.randrange(4):
            case 0:
                count = self.chance.randrange(1, 5)
                body: dict[str, Any] = {"item": "box", "count": count}
                return Wish(player_id, name, "use-item", body, takes={"box": count})
            case 1:
                return Wish(player_id, name, "clear-dungeon", {"dungeon": "cave"})
            case 2:
                sword = {"items": [{"item": "sword", "metadata": {"wish": name}}], "resources": {"gem": 2}}
                return Wish(player_id, name, "grant-items", sword)
            case _:
                taker = self.chance.choice(others)
                body = {"to_player_id": taker, "resources": {"gold": 3}}
                return Wish(player_id, name, "transfer", body, takes={"gold": 3}, gives_to=taker)

    async def settle(self, wish: Wish) -> None:
        copies = self.chance.randrange(1, 6)
        if self.chance.random() < 0.5:
            answers = await asyncio.gather(*(self._send(wish) for _ in range(copies)))
        else:
            answers = [await self._send(wish) for _ in range(copies)]
        self.copies += copies
        if len({json.dumps(answer, sort_keys=True) for answer in answers}) != 1:
            self.differing.append(f"{wish.player_id}/{wish.request_id}")
        self._believe(wish, answers[0])
        self.settled += 1
        announce("crowd.settled")

    async def _send(self, wish: Wish) -> Any:
        """One copy, to any node, again and again until one of them answers."""
        while True:
            path = f"/players/{wish.player_id}/{wish.path}"
            self.sendings += 1
            try:
                status, answer = await _post(
                    self.fleet.any_url(), path, {**wish.body, "request_id": wish.request_id}
                )
            except (OSError, EOFError, TimeoutError, ValueError):
                await self._pause(0.1)
                continue
            if status == 200:
                return answer
            assert status in AGAIN, (wish, answer)
            assert answer["code"] in {"aborted", "unavailable"}, (wish, answer)
            await self._pause(self.chance.uniform(0.05, 0.3))

    async def _pause(self, seconds: float) -> None:
        # A client's own patience: nothing is asserted about what happens meanwhile.
        await asyncio.sleep(seconds)

    def _believe(self, wish: Wish, answer: Any) -> None:
        held = self.model[wish.player_id]
        held.subtract(wish.takes)
        if wish.gives_to:
            self.model[wish.gives_to].update(wish.takes)
        for granted in answer.get("granted", ()):
            held[granted.get("resource") or granted["item"]] += granted["count"]


async def _post(url: str, path: str, body: Any) -> tuple[int, Any]:
    """No more of HTTP than this needs: thousands of requests on a busy machine."""
    host, _, port = url.removeprefix("http://").partition(":")
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            content = json.dumps(body).encode()
            head = [f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close"]
            head.append(f"Content-Length: {len(content)}")
            writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + content)
            answer = await reader.read()
        finally:
            writer.close()
    if not answer.startswith(b"HTTP/1.1 "):
        raise EOFError("the node died before it answered")
    status, _, rest = answer.partition(b"\r\n")
    return int(status.split()[1]), json.loads(rest.partition(b"\r\n\r\n")[2])
