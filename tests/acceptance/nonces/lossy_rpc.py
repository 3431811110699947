"""A proxy before a chain's RPC: the node executes the call, and its reply is lost.

Whoever sent it cannot know whether it arrived. Every so many replies the connection is closed without one.

Or it answers in the node's place, with an error that a test cannot bring a real node to: there it is a mock.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
from aiohttp import web

T = TypeVar("T")
CONTROL_SECONDS_MAX = 60.0


class LossyRpc:
    """Runs in a thread of its own, on a free port; `url` leads through it to the chain.

    `lose_every[method] = n`: of the replies to this method every nth is lost. `lost` counts them.
    `refuse[method] = text`: the call does not reach the node, and the answer is this error.
    `is_dead`: no call reaches the node, and none is answered.
    `says`: no call reaches the node; each is answered with this status and this code of an error.
    """

    def __init__(self, target: str, lose_every: dict[str, int] | None = None) -> None:
        self.lost: Counter[str] = Counter()
        self.is_dead = False
        self.says: tuple[int, int] | None = None
        self.refuse: dict[str, str] = {}
        self.refused: Counter[str] = Counter()
        self.url = ""
        self._target = target
        self._lose_every = {} if lose_every is None else lose_every
        self._calls: Counter[str] = Counter()
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lossy-rpc", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_SECONDS_MAX)

    async def _open(self) -> None:
        self._session = aiohttp.ClientSession()
        application = web.Application(client_max_size=2**24)
        application.router.add_post("/", self._pass_on)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _close(self) -> None:
        assert self._session is not None
        assert self._runner is not None
        await self._runner.cleanup()
        await self._session.close()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        method = str(json.loads(body)["method"])
        if self.is_dead and request.transport is not None:
            request.transport.abort()
            return web.Response()
        if self.says is not None:
            status, code = self.says
            return web.json_response({"id": 1, "error": {"code": code, "message": "slowly"}}, status=status)
        if method in self.refuse:
            self.refused[method] += 1
            return web.json_response({"id": 1, "error": {"code": -32000, "message": self.refuse[method]}})
        assert self._session is not None
        async with self._session.post(
            self._target, data=body, headers={"content-type": "application/json"}
        ) as answer:
            reply = await answer.read()
        if self._loses(method) and request.transport is not None:
            request.transport.abort()
        return web.Response(body=reply, content_type="application/json")

    def _loses(self, method: str) -> bool:
        every = self._lose_every.get(method)
        if every is None:
            return False
        self._calls[method] += 1
        if self._calls[method] % every:
            return False
        self.lost[method] += 1
        return True
