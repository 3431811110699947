"""A server that is closed loses nobody whom it has accepted."""

import asyncio
import socket
from contextlib import ExitStack

from fencepost.testing.doors import close_door


async def test_who_was_accepted_in_the_turn_of_the_closing_reaches_the_server() -> None:
    accepted: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: accepted.append(writer), "127.0.0.1", 0)
    with ExitStack() as clients:
        for _ in range(3):
            clients.enter_context(socket.create_connection(server.sockets[0].getsockname()))
        # The first turn sees that somebody is there, the second accepts; nobody has been told yet.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert accepted == []

        await close_door(server)

        assert len(accepted) == 3
        for writer in accepted:
            writer.close()
            await writer.wait_closed()


async def test_nobody_comes_in_afterwards() -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()

    await close_door(server)

    with socket.socket() as late:
        assert late.connect_ex(address) != 0
