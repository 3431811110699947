"""A hostile broker: a real HTTP server that does to orders whatever a network and a broker may do.

    with HostileBroker(Promise.WHILE_OPEN, faults=FOUL) as broker:
        ...                                   # point an adapter at broker.url
        assert broker.doubled() == []

It runs in a thread of the test's process, so the test reads its book directly: `orders`, `doubled()`,
`client_ids()`. `POST /orders` takes the order's document, `GET /orders/{client id}` answers for one. `DELETE
/orders/{broker's id}` cancels it and `PUT` replaces it, while it is open.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from types import TracebackType
from typing import Any, Protocol, Self

from fencepost.testing.server_close import stop_listening
from fencepost_orders.broker import LookupScope, Promise
from fencepost_orders.testing._broker_book import Book, BookOrder
from fencepost_orders.testing.broker_dialect import ChangeRequest, Dialect, Said
from fencepost_orders.testing.broker_faults import FRIENDLY, BrokerFault, BrokerFaults

DEADLINE_HEADER = "x-request-deadline"
_REASONS = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 409: "Conflict"}


class Effect(Protocol):
    """What a request does to the book, and the answer to it. `at_once`: it arrives together with another."""

    def __call__(self, *, at_once: bool = False) -> Said: ...


class HostileBroker:
    """Accepts orders by its promise, and answers by its configured faults."""

    def __init__(
        self,
        promise: Promise,
        *,
        faults: BrokerFaults = FRIENDLY,
        dialect: Dialect | None = None,
        lookup: LookupScope = LookupScope.ALL,
        window_seconds: float = 60.0,
        latency_seconds: float = 0.0,
        slow_seconds: float = 0.2,
        late_seconds: float | None = 0.3,
        retry_after_seconds: int = 1,
        lazy_changes: bool = False,
        seed: int = 1,
    ) -> None:
        self.faults = faults
        self.dialect = dialect or Dialect()
        self.book = Book(promise, lookup, window_seconds, chance=random.Random(seed))  # noqa: S311
        self.broker_faults: Counter[str] = Counter()
        self._chance = random.Random(seed)  # noqa: S311 - Repeatable faults, no secrets.
        self._latency_seconds = latency_seconds
        self._slow_seconds = slow_seconds
        self._late_seconds = late_seconds
        self._late_may_come = asyncio.Event()
        self._retry_after_seconds = retry_after_seconds
        self._lazy_changes = lazy_changes
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hostile-broker", daemon=True)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._late: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The address of the started broker."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def orders(self) -> list[BookOrder]:
        """Every order that the broker has booked."""
        return self.book.orders

    def doubled(self) -> list[str]:
        """Client ids with more than one order."""
        return self.book.doubled()

    def client_ids(self) -> set[str]:
        """The client ids of every booked order."""
        return self.book.client_ids()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def restart(self, down_seconds: float = 0.0) -> None:
        """Cut every connection, stay down for a while, and come back with the same book."""
        self._run(self._restart(down_seconds))

    def quiet(self) -> None:
        """Wait until late acceptances are in the book. With `late_seconds=None` they are entered only now."""
        self._run(self._settle_late())

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self._port, backlog=1024)
        self._port = self._server.sockets[0].getsockname()[1]

    async def _restart(self, down_seconds: float) -> None:
        await self._hang_up()
        await asyncio.sleep(down_seconds)
        await self._listen()

    async def _hang_up(self) -> None:
        assert self._server is not None
        await stop_listening(self._server)
        for writer in tuple(self._writers):
            writer.transport.abort()
        await asyncio.sleep(0)

    async def _settle_late(self) -> None:
        self._late_may_come.set()
        while self._late:
            await asyncio.wait(self._late)

    async def _close(self) -> None:
        await self._hang_up()
        for task in self._late:
            task.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for writer in tuple(self._writers):
            writer.transport.abort()
        # A transport closes its socket two iterations of the event loop later.
        await asyncio.sleep(0.01)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # Registered immediately: a task that is cancelled before it begins would close nothing.
        self._writers.add(writer)
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._answer_one(reader, writer):
                    pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; answers whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if self._latency_seconds:
            await asyncio.sleep(self._latency_seconds)
        if method == "GET":
            return await _reply(writer, *self.dialect.answer(path, self.book))
        change = self.dialect.change_of(method, path)
        if change is not None:
            return await self._change(change, json.loads(body or b"{}"), writer)
        return await self._place(json.loads(body), headers, writer)

    async def _place(
        self, request: dict[str, Any], headers: dict[str, str], writer: asyncio.StreamWriter
    ) -> bool:
        broker_fault = self.faults.draw(self._chance)
        self.broker_faults[broker_fault] += 1
        self.dialect.heard(headers, request)
        effect = partial(self._accept, request, headers.get(DEADLINE_HEADER))
        return await self._do(broker_fault, effect, writer)

    async def _change(
        self, change: ChangeRequest, body: dict[str, Any], writer: asyncio.StreamWriter
    ) -> bool:
        """A cancel or a replacement: what can happen to an order can happen to it."""
        broker_fault = self.faults.draw(self._chance)
        self.broker_faults[f"{change.kind} {broker_fault.value}"] += 1

        def effect(*, at_once: bool = False) -> Said:
            return self._changed(change, body, at_once=at_once)

        return await self._do(broker_fault, effect, writer)

    async def _do(self, fault: BrokerFault, effect: Effect, writer: asyncio.StreamWriter) -> bool:
        act = getattr(self, f"_do_{fault.value}")
        lives_on: bool = await act(effect, writer)
        return lives_on

    def _changed(self, change: ChangeRequest, body: dict[str, Any], *, at_once: bool) -> Said:
        if self._lazy_changes:
            # It says yes and does it later, if the order is not filled first: a yes is no proof.
            self._later(lambda: self._apply(change, body, at_once=True))
            return 202, {"status": "pending"}
        return self._apply(change, body, at_once=at_once)

    def _apply(self, change: ChangeRequest, body: dict[str, Any], *, at_once: bool) -> Said:
        if change.kind == "cancel":
            order = self.book.cancel(change.broker_order_id, at_once=at_once)
            return self.dialect.not_open() if order is None else self.dialect.cancelled(order)
        client_id = self.dialect.client_id(body)
        made = self.book.replace(change.broker_order_id, client_id, body, self._loop.time(), at_once=at_once)
        return self.dialect.not_open() if made is None else self.dialect.replaced(made)

    def _accept(
        self, request: dict[str, Any], deadline: str | None, *, at_once: bool = False
    ) -> tuple[int, dict[str, Any]]:
        """Enter the order in the book, unless the request's validity is over."""
        if deadline is not None and datetime.fromisoformat(deadline) < datetime.now(UTC):
            self.book.refusals["stale"] += 1
            return self.dialect.refused("the request is too old")
        client_id = self.dialect.client_id(request)
        order, is_new = self.book.place(client_id, request, self._loop.time(), at_once=at_once)
        return self.dialect.placed(order) if is_new else self.dialect.duplicate(order)

    async def _do_plain(self, effect: Effect, writer: Any) -> bool:
        return await _reply(writer, *effect(), self.dialect.headers())

    async def _do_lose_reply(self, effect: Effect, writer: Any) -> bool:
        effect()
        return False

    async def _do_lose_request(self, effect: Effect, writer: Any) -> bool:
        return False

    async def _do_accept_late(self, effect: Effect, writer: Any) -> bool:
        self._later(effect)
        return await _reply(writer, 504, {"error": "timed out"})

    def _later(self, effect: Callable[[], Said]) -> None:
        async def later() -> None:
            if self._late_seconds is None:
                await self._late_may_come.wait()
            else:
                await asyncio.sleep(self._late_seconds)
            effect()

        task = asyncio.create_task(later())
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    async def _do_fail_after(self, effect: Effect, writer: Any) -> bool:
        effect()
        return await _reply(writer, 500, {"error": "out of order"})

    async def _do_fail_before(self, effect: Effect, writer: Any) -> bool:
        return await _reply(writer, 503, {"error": "not now"})

    async def _do_close_halfway(self, effect: Effect, writer: Any) -> bool:
        status, answer = effect()
        whole = _message(status, json.dumps(answer).encode())
        writer.write(whole[: len(whole) - 10])
        await writer.drain()
        return False

    async def _do_garble(self, effect: Effect, writer: Any) -> bool:
        effect()
        writer.write(_message(200, b"<html>It works!</html>"))
        await writer.drain()
        return True

    async def _do_echo_another(self, effect: Effect, writer: Any) -> bool:
        status, answer = effect()
        return await _reply(writer, status, self.dialect.echo_another(answer))

    async def _do_duplicate(self, effect: Effect, writer: Any) -> bool:
        if self.book.promise is not Promise.NOTHING:
            # Where a second request is a second order, no client can survive a network that duplicates
            # requests.
            effect()
            return await _reply(writer, *effect(at_once=True))
        return await _reply(writer, *effect())

    async def _do_slow(self, effect: Effect, writer: Any) -> bool:
        answer = effect()
        await asyncio.sleep(self._slow_seconds)
        return await _reply(writer, *answer)

    async def _do_limit(self, effect: Effect, writer: Any) -> bool:
        return await _reply(writer, 429, {"error": "slower"}, {"Retry-After": str(self._retry_after_seconds)})

    async def _do_change_mind(self, effect: Effect, writer: Any) -> bool:
        self.book.refusals["random"] += 1
        return await _reply(writer, *self.dialect.refused("not today"))


async def _reply(
    writer: asyncio.StreamWriter, status: int, answer: dict[str, Any], headers: dict[str, str] | None = None
) -> bool:
    writer.write(_message(status, b"" if status == 204 else json.dumps(answer).encode(), headers))
    await writer.drain()
    return True


def _message(status: int, body: bytes, headers: dict[str, str] | None = None) -> bytes:
    lines = [
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
