"""How a server of asyncio's is closed without losing who is on the threshold.

    accept() -> a task is made -> the task makes a transport -> the protocol hears of it

asyncio accepts a whole backlog in one turn of its loop. Who closes the server in that same turn leaves the
tasks without a server: they fail silently, and nobody closes their sockets before the garbage collector does.
"""

import asyncio

SECONDS_TO_COME_IN = 0.01
"""More than the two turns that they take: a turn that is ready does not wait for a timer."""


async def close_door(server: asyncio.Server) -> None:
    """Nobody comes in any more; who was accepted has reached the protocol, and is the caller's to close."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    await asyncio.sleep(SECONDS_TO_COME_IN)
    server.close()
