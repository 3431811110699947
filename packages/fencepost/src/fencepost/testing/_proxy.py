"""A proxy that simulates network faults: late, cut and half-open connections, and a lost reply to a
COMMIT."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from fencepost.testing import _addresses as addresses
from fencepost.testing import _postgres_protocol as postgres_protocol
from fencepost.testing._addresses import Target
from fencepost.testing._fault_state import DropRule, FaultState
from fencepost.testing._postgres_protocol import Splitter
from fencepost.testing._proxied_connection import ProxiedConnection, Stream
from fencepost.testing.server_close import stop_listening

CONTROL_SECONDS_MAX = 10.0

T = TypeVar("T")


class Proxy:
    """Forwards between clients and one server; `url` leads through it.

        with Proxy.for_postgres(database.url) as proxy:
            proxy.lose_commit_reply()
            with psycopg.connect(proxy.url) as connection: ...

    It runs in its own thread, on a unix socket in its own directory. All faults apply to connections that are
    already open. `heal` ends all faults.
    """

    def __init__(
        self, target: Target, url: Callable[[Path], str], splitters: Callable[[], tuple[Splitter, Splitter]]
    ) -> None:
        self._target = target
        self._splitters = splitters
        self._directory = Path(tempfile.mkdtemp(prefix="fencepost-proxy-"))
        self.url = url(self._socket)
        self._fault_state = FaultState()
        self._turns = count(1)
        self._arriving: set[asyncio.Task[Any]] = set()
        """Clients whose connection to the server is not established yet."""
        self._links: set[ProxiedConnection] = set()
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fencepost-proxy", daemon=True)

    @classmethod
    def for_postgres(cls, url: str) -> Self:
        """A proxy in front of a PostgreSQL, which knows its messages."""
        return cls(
            addresses.postgres_target(url),
            lambda socket: addresses.postgres_through(url, socket.parent),
            lambda: (
                postgres_protocol.Messages(first_has_type=False),
                postgres_protocol.Messages(first_has_type=True),
            ),
        )

    @classmethod
    def for_redis(cls, url: str) -> Self:
        """A proxy in front of a Redis or a Valkey."""
        return cls(
            addresses.redis_target(url),
            lambda socket: addresses.redis_through(url, socket),
            lambda: (postgres_protocol.Chunks(), postgres_protocol.Chunks()),
        )

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._links)

    def delay(self, seconds: float) -> None:
        """Delay every reply by this time."""
        self._fault_state.delay_seconds = seconds

    def reorder(self, seconds: float) -> None:
        """Let requests of different connections overtake each other: each request waits up to this time, and
        none as long as the one before it. The order within one connection does not change."""
        self._fault_state.reorder_seconds = seconds

    def cut(self) -> None:
        """Close every connection now, on both sides. New ones are accepted."""
        self._do(self._cut())

    def swallow(self) -> None:
        """Half-open: connections stay open, new ones too, and everything sent is discarded."""
        self._fault_state.swallows = True

    def refuse(self) -> None:
        """Accept no new connection. Open ones stay."""
        self._do(self._close_listener())

    def lose_commit_reply(self, *, nth: int = 1, half_open: bool = False) -> DropRule:
        """The nth COMMIT from now happens, and its reply is lost: the connection ends, or falls silent."""
        return self._lay(
            self._fault_state.on_replies, DropRule(postgres_protocol.says_committed, nth, half_open)
        )

    def lose_commit(self, *, nth: int = 1, half_open: bool = False) -> DropRule:
        """The nth COMMIT from now never reaches the server: the connection ends, or falls silent."""
        return self._lay(
            self._fault_state.on_requests, DropRule(postgres_protocol.asks_to_commit, nth, half_open)
        )

    def lose_reply(self, *, nth: int = 1, half_open: bool = False) -> DropRule:
        """The nth reply from now is lost, whatever it contains: with Redis, the answer to a command."""
        return self._lay(self._fault_state.on_replies, DropRule(lambda _: True, nth, half_open))

    def heal(self) -> None:
        """Ends all faults. Open connections are closed: some have lost bytes."""
        self._fault_state.clear()
        self.cut()
        self._do(self._open_listener())

    def start(self) -> Self:
        """Listen; `url` then leads through the proxy."""
        self._thread.start()
        self._do(self._open_listener())
        return self

    def stop(self) -> None:
        """Close all connections, and stop listening."""
        self._do(self._close_listener())
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _socket(self) -> Path:
        return self._directory / addresses.socket_name()

    def _lay(self, drop_rules: list[DropRule], drop_rule: DropRule) -> DropRule:
        drop_rules.append(drop_rule)
        return drop_rule

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CONTROL_SECONDS_MAX)

    async def _open_listener(self) -> None:
        if self._server is None:
            self._socket.unlink(missing_ok=True)
            self._server = await asyncio.start_unix_server(self._serve, str(self._socket))

    async def _close_listener(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await stop_listening(server)

    async def _end(self) -> None:
        """Ends all connections, also those that were accepted just before the listener was closed."""
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await self._cut()
            for task in others:
                task.cancel()
            await asyncio.wait(others)

    async def _cut(self) -> None:
        for task in self._arriving:
            task.cancel()
        links = list(self._links)
        for link in links:
            link.cut()
        # The connections have ended when cut() returns.
        await asyncio.gather(*(link.ended.wait() for link in links))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._arriving.add(task)
        try:
            server = await _connect(self._target)
        except (OSError, asyncio.CancelledError):
            writer.transport.abort()
            return
        finally:
            self._arriving.discard(task)
        link = ProxiedConnection((reader, writer), server, self._splitters(), self._fault_state, self._turns)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)
            link.ended.set()


async def _connect(target: Target) -> Stream:
    if target.path is not None:
        return await asyncio.open_unix_connection(str(target.path))
    return await asyncio.open_connection(target.host, target.port)
