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
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from fencepost import http_client
from fencepost.http_client import HttpClient
from fencepost.testing.server_close import stop_listening

T = TypeVar("T")
Reply = dict[str, Any]
CONTROL_SECONDS_MAX = 60.0
BODY_BYTES_MAX = 2**24
OK = 200
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
        self._client = HttpClient(body_bytes_max=BODY_BYTES_MAX)
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rpc-proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._listen())
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

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=BODY_BYTES_MAX)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _close(self) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        serving = dict(self._open)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        for writer in serving.values():
            writer.transport.abort()
        await self._client.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Registered immediately: a task that is cancelled before it begins would close nothing.
        task = asyncio.create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request after the other, until the connection ends or its reply is to be lost."""
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                while (reply := await self.answer(json.loads(await _read_body(reader)))) is not None:
                    writer.write(_message(*reply))
                    await writer.drain()
        finally:
            writer.transport.abort()

    async def answer(self, asked: Reply) -> tuple[int, Reply] | None:
        """The status and body of the reply; None for one that is lost. A proxy with other faults overrides
        this."""
        method = str(asked["method"])
        self.met[method] += 1
        uneven = self.unevenness
        if self._meets("limited", uneven.limited):
            return TOO_MANY_REQUESTS, {}
        if method in self.always_stale or self._meets("stale", uneven.stale):
            reply = await self._ask_snapshot(asked, self._chance.randint(*uneven.blocks_behind))
        else:
            reply = await self.ask_node(asked)
        if method in self.always_null or (method in _NULLABLE and self._meets("null", uneven.null)):
            reply = _answer(asked, None)
        if self._meets("lost", uneven.lost):
            return None
        return OK, reply

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
        answer = await self._client.exchange(http_client.Request.post_json(self._target, asked))
        return cast("Reply", json.loads(answer.body))


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    """The body of the next request, which must name its length."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    lengths = [line.partition(":")[2] for line in head.split("\r\n") if line.startswith("content-length:")]
    return await reader.readexactly(int(lengths[0]))


def _message(status: int, reply: Reply) -> bytes:
    body = json.dumps(reply).encode()
    head = f"HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


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
