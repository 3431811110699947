# mypy: ignore-errors
# pyright: basic, reportMissingImports=false
# ruff: noqa: ANN001, ANN201
# The packages it imports are those of an environment of its own, which the checkers here do not see.
"""Handlers of Restate with durable steps. Its server calls the workers over HTTP/2. A step's own write is a
commit of its own: Restate's journal is not in PostgreSQL."""

from __future__ import annotations

import asyncio
import ctypes
import http.client
import json
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

import restate
from handlers import AsyncHandlers
from hypercorn.asyncio import serve
from hypercorn.config import Config
from runner import STEPS, PeerTask, play

SERVICE = "bench"
SUBMITTERS = 8
REGISTER_SECONDS = 30
REPLY_SECONDS = 30
SO_ATTACH_REUSEPORT_CBPF = 51
RETURN_A_NUMBER = 0x06
LIVE = "select count(*) as live from sys_invocation where status <> 'completed'"


def _service(order: PeerTask) -> restate.Service:
    service = restate.Service(SERVICE)
    handlers = AsyncHandlers(order)

    async def write(step: int) -> None:
        await handlers.effect(f"step {step}")

    async def nothing(step: int) -> int:
        return step

    @service.handler()
    async def rows(ctx: restate.Context) -> None:
        for step in range(STEPS):
            await ctx.run_typed(f"step {step}", write, step=step)
        handlers.results.count()

    @service.handler()
    async def trivial(ctx: restate.Context) -> None:
        for step in range(STEPS):
            await ctx.run_typed(f"step {step}", nothing, step=step)
        handlers.results.count()

    @service.handler()
    async def zombie(ctx: restate.Context) -> str:
        return await ctx.run_typed("write", handlers.zombie)

    return service


class RestatePeer:
    def prepare(self, order: PeerTask) -> None:
        """Nothing to create: its server has its own store."""

    def work(self, order: PeerTask) -> None:
        asyncio.run(self._work(order))

    async def _work(self, order: PeerTask) -> None:
        first = not (order.results.directory / "note-port").exists()
        listener = _listen(0 if first else int(order.results.noted("port")))
        port = listener.getsockname()[1]
        if first:
            order.results.note("port", str(port))
            threading.Thread(target=_register, args=(order.server_admin_url, port), daemon=True).start()
        else:
            _take_what_comes(listener, 1)
        config = Config()
        config.bind = [f"fd://{listener.fileno()}"]
        config.loglevel = "ERROR"
        told = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
        await serve(restate.app([_service(order)]), config, shutdown_trigger=told.wait)

    @asynccontextmanager
    async def client(self, order: PeerTask):
        deadline = time.monotonic() + REGISTER_SECONDS
        while _call(order.server_admin_url, "GET", f"/services/{SERVICE}")[0] != 200:
            if time.monotonic() > deadline:
                raise TimeoutError("the service was not registered")
            await asyncio.sleep(0.05)
        with ThreadPoolExecutor(SUBMITTERS) as threads:
            yield RestateClient(order, threads)


def _listen(port: int) -> socket.socket:
    """All workers of one service listen on one port, as behind a balancer."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(1024)
    return listener


def _take_what_comes(listener: socket.socket, place: int) -> None:
    """New connections go to the listener in this place. The system would send some to a worker that stands
    still, where they would be answered when it goes on: a balancer sends it none."""
    program = ctypes.create_string_buffer(struct.pack("HBBI", RETURN_A_NUMBER, 0, 0, place))
    listener.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, struct.pack("HP", 1, ctypes.addressof(program))
    )


def _register(address: str, port: int) -> None:
    status, answer = _call(address, "POST", "/deployments", {"uri": f"http://127.0.0.1:{port}"})
    assert status in (200, 201), answer


def _call(address: str, method: str, path: str, body=None, connection=None) -> tuple[int, Any]:
    """One request; the status, and the document that was answered."""
    wire = connection or http.client.HTTPConnection(address, timeout=REPLY_SECONDS)
    headers = {"accept": "application/json"}
    content = None
    if body is not None:
        content, headers["content-type"] = json.dumps(body), "application/json"
    wire.request(method, path, content, headers)
    reply = wire.getresponse()
    text = reply.read()
    if connection is None:
        wire.close()
    return reply.status, json.loads(text) if text.startswith((b"{", b'"')) else None


class RestateClient:
    # A question to its server reads all invocations.
    poll_seconds = 0.05

    def __init__(self, order: PeerTask, threads: ThreadPoolExecutor) -> None:
        self._order = order
        self._threads = threads
        self._own = threading.local()

    def _send(self, kind: str) -> None:
        # There is no batch call: some threads, each with a connection.
        wire = getattr(self._own, "wire", None)
        if wire is None:
            wire = self._own.wire = http.client.HTTPConnection(self._order.server_url, timeout=REPLY_SECONDS)
        status, answer = _call("", "POST", f"/{SERVICE}/{kind}/send", connection=wire)
        assert status == 202, (status, answer)
        if kind == "zombie":
            self._order.results.note("invocation", answer["invocationId"])

    async def submit_many(self, kind: str, count: int) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, self._send, kind) for _ in range(count)))

    async def submit(self, kind: str, at: float) -> None:
        await asyncio.get_running_loop().run_in_executor(self._threads, self._send, kind)

    async def unfinished(self) -> int:
        _, answer = _call(self._order.server_admin_url, "POST", "/query", {"query": LIVE})
        return int(answer["rows"][0]["live"])

    async def outcome(self):
        invocation = self._order.results.noted("invocation")
        status, output = _call(self._order.server_url, "GET", f"/restate/invocation/{invocation}/output")
        finished = status == 200
        state = "completed" if finished else f"not finished, {status}"
        return {
            "finished": finished,
            "by": output if finished else None,
            "note": f"{state}, output {output}" if finished else state,
        }


if __name__ == "__main__":
    play(RestatePeer())
