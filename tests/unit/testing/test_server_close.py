"""A server that is closed loses no connection that it has accepted."""

import asyncio
import gc
import socket
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress

from fencepost.testing import Proxy
from fencepost.testing.server_close import stop_listening
from fencepost_orders.broker import Promise
from fencepost_orders.testing.broker import HostileBroker

CLOSINGS = 50
"""Each of them lost about ten of those who knock, when the server was simply closed."""


async def test_a_caller_that_was_accepted_in_the_turn_of_the_closing_reaches_the_server() -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    with ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(socket.create_connection(server.sockets[0].getsockname()))
        # The first turn sees that a client is there, the second accepts; no client has been told yet.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert accepted == []

        await stop_listening(server)

        assert len(accepted) == 3
        for writer in accepted:
            writer.close()
            await writer.wait_closed()


async def test_no_caller_comes_in_afterwards() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    await stop_listening(server)

    with socket.socket() as late:
        assert late.connect_ex(address) != 0


def test_a_broker_that_restarts_loses_no_socket() -> None:
    with losing_no_socket(), HostileBroker(Promise.NOTHING) as broker:
        address = "127.0.0.1", int(broker.url.rpartition(":")[2])
        with knocking(lambda: socket.create_connection(address)):
            for _ in range(CLOSINGS):
                broker.restart()


def test_a_proxy_that_refuses_loses_no_socket() -> None:
    with losing_no_socket(), Proxy.for_redis("unix:///nowhere/redis.sock") as proxy:
        path = proxy.url.removeprefix("unix://").partition("?")[0]
        with knocking(lambda: connect_unix(path)):
            for _ in range(CLOSINGS):
                proxy.refuse()
                proxy.heal()


@contextmanager
def losing_no_socket() -> Generator[None]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield
        gc.collect()
    assert [str(each.message) for each in told] == []


@contextmanager
def knocking(connect: Callable[[], socket.socket]) -> Generator[None]:
    """Clients that come and go while the block runs."""
    over = threading.Event()

    def knock() -> None:
        while not over.is_set():
            with suppress(OSError), connect():
                pass

    threads = [threading.Thread(target=knock) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def connect_unix(path: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    try:
        client.connect(path)
    except OSError:
        client.close()
        raise
    return client
