"""A proxy for the JSON-RPC of one chain node, which answers as a load balancer over uneven backends does.

Each call may reach another backend. A share of the calls is answered from a snapshot that is some blocks old,
as a lagging backend would; replies are lost after the node has executed the call; receipts, transactions and
blocks are null although they exist; and some calls are refused with HTTP 429. A seed determines the fault of
each call.

    with RpcProxy(anvil.url, seed=7, unevenness=Unevenness(stale=0.4)) as proxy:
        chain = Chain(31337, [proxy.url])
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import aiohttp
from aiohttp import web

T = TypeVar("T")
Reply = dict[str, Any]
CONTROL_SECONDS_MAX = 60.0
BODY_BYTES_MAX = 2**24
TOO_MANY_REQUESTS = 429
# geth's error for a block that it does not have.
UNKNOWN_BLOCK = {"code": -32000, "message": "header not found"}
# The position of the block among the parameters of the methods that read the state of one.
_STATE_OF = {
    "eth_getTransactionCount": 1,
    "eth_getBalance": 1,
    "eth_getCode": 1,
    "eth_call": 1,
    "eth_estimateGas": 1,
    "eth_getStorageAt": 2,
}
# Null is a valid answer to these.
_NULLABLE = frozenset(
    {
        "eth_getTransactionReceipt",
        "eth_getTransactionByHash",
        "eth_getBlockByNumber",
        "eth_getBlockByHash",
    }
)
# Its own number, or that of the block that contains it.
_NUMBER = ("blockNumber", "number")
_NEWEST = frozenset({"latest", "pending", "safe", "finalized"})


@dataclass(frozen=True)
class Unevenness:
    """The shares of the calls, each from 0 to 1, and how far the lagging backend is behind."""

    stale: float = 0.0
    """Answered from a snapshot."""
    blocks_behind: tuple[int, int] = (16, 20)
    """The snapshot's age in blocks, minimum and maximum."""
    lost: float = 0.0
    """Executed, and the connection is closed without a reply."""
    null: float = 0.0
    """Answered with null, as a share of the calls that may be."""
    limited: float = 0.0
    """Refused with 429, and not executed."""


class RpcProxy:
    """Runs in its own thread, on a free port; `url` leads through it to the node.

    `always_stale` and `always_null` name methods that always get that fault: for tests of one interleaving.
    `met` counts the faults by kind: `stale`, `lost`, `null`, `limited`; and the calls by method.
    """

    def __init__(self, target: str, *, seed: int = 0, unevenness: Unevenness | None = None) -> None:
        self.url = ""
        self.unevenness = unevenness or Unevenness()
        self.always_stale: set[str] = set()
        self.always_null: set[str] = set()
        self.met: Counter[str] = Counter()
        self._target = target
        self._chance = random.Random(seed)  # noqa: S311 - Faults are no secret.
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.AppRunner | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rpc-proxy", daemon=True)

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
        application = web.Application(client_max_size=BODY_BYTES_MAX)
        application.router.add_post("/", self.answer)
        self._runner = web.AppRunner(application)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _close(self) -> None:
        assert self._session is not None
        assert self._runner is not None
        await self._runner.cleanup()
        await self._session.close()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """The answer to one call. A proxy with other faults overrides this."""
        asked = cast("dict[str, Any]", json.loads(await request.read()))
        method = str(asked["method"])
        self.met[method] += 1
        uneven = self.unevenness
        if self._meets("limited", uneven.limited):
            return web.Response(status=TOO_MANY_REQUESTS)
        if method in self.always_stale or self._meets("stale", uneven.stale):
            reply = await self._ask_snapshot(asked, self._chance.randint(*uneven.blocks_behind))
        else:
            reply = await self.ask_node(asked)
        if method in self.always_null or (method in _NULLABLE and self._meets("null", uneven.null)):
            reply = _answer(asked, None)
        if self._meets("lost", uneven.lost) and request.transport is not None:
            request.transport.abort()
        return web.json_response(reply)

    def _meets(self, what: str, share: float) -> bool:
        met = self._chance.random() < share
        self.met[what] += met
        return met

    async def _ask_snapshot(self, asked: Reply, behind: int) -> Reply:
        """Answers as a backend that has not seen the last `behind` blocks."""
        newest = max(0, int((await self.ask_node(_question("eth_blockNumber")))["result"], 16) - behind)
        method, params = str(asked["method"]), list(asked.get("params") or ())
        if method == "eth_blockNumber":
            return _answer(asked, hex(newest))
        place = 0 if method == "eth_getBlockByNumber" else _STATE_OF.get(method)
        if place is not None:
            named = _number_of(params, place, newest)
            if named is None:
                return await self.ask_node(asked)
            if named > newest:
                return _unknown(asked)
            asked = {**asked, "params": [*params[:place], hex(named), *params[place + 1 :]]}
        reply = await self.ask_node(asked)
        return _answer(asked, None) if _is_beyond(reply.get("result"), newest) else reply

    async def ask_node(self, asked: Reply) -> Reply:
        """The node's own answer."""
        assert self._session is not None
        async with self._session.post(self._target, json=asked) as answer:
            return cast("Reply", await answer.json(content_type=None))


def _number_of(params: Sequence[Any], place: int, newest: int) -> int | None:
    """The number of the requested block; None when it is named by its hash."""
    named = params[place] if place < len(params) else "latest"
    if named in _NEWEST:
        return newest
    if named == "earliest":
        return 0
    return int(named, 16) if isinstance(named, str) else None


def _is_beyond(result: object, newest: int) -> bool:
    """Whether it is, or is in, a block that the snapshot lacks. What is in no block is in the snapshot's pool
    too."""
    if not isinstance(result, Mapping):
        return False
    fields = cast("Mapping[str, Any]", result)
    numbers = [fields[name] for name in _NUMBER if fields.get(name) is not None]
    return any(int(number, 16) > newest for number in numbers)


def _question(method: str) -> Reply:
    return {"jsonrpc": "2.0", "id": 0, "method": method, "params": []}


def _answer(asked: Reply, result: Any) -> Reply:
    return {"jsonrpc": "2.0", "id": asked.get("id"), "result": result}


def _unknown(asked: Reply) -> Reply:
    if asked["method"] == "eth_getBlockByNumber":
        return _answer(asked, None)
    return {"jsonrpc": "2.0", "id": asked.get("id"), "error": UNKNOWN_BLOCK}
