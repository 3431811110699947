"""Closes an asyncio server without losing connections that are being accepted.

    accept() -> a task is made -> the task makes a transport -> the protocol is called

asyncio accepts a whole backlog in one turn of its loop. Closing the server in that same turn leaves the tasks
without a server: they fail silently, and their sockets stay open until the garbage collector closes them.
"""

import asyncio

SECONDS_TO_COME_IN = 0.01
"""More than the two turns that they take: a loop with ready callbacks does not wait for a timer."""


async def stop_listening(server: asyncio.Server) -> None:
    """Stops accepting; every accepted connection has reached the protocol, and the caller closes it."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    await asyncio.sleep(SECONDS_TO_COME_IN)
    server.close()
