"""A server that answers what a test tells it to, in a thread of its own, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

Answer = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Writes whatever it likes to a request, of which it gets the head."""


def reply(status: str, body: bytes = b"", **headers: str) -> Answer:
    """One whole reply, with a length unless a header says otherwise."""
    lines = {
        "content-length": str(len(body)),
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())

    async def answer(asked: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(f"HTTP/1.1 {status}\r\n{head}connection: close\r\n\r\n".encode() + body)

    return answer


def dripping(head: bytes, drop: bytes) -> Answer:
    """A beginning, and then without end a little more: no wait of a socket is ever long."""

    async def answer(asked: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.05)

    return answer


REDIRECTS = (
    "301 Moved Permanently",
    "302 Found",
    "303 See Other",
    "307 Temporary Redirect",
    "308 Permanent Redirect",
)


@dataclass
class HostileServer:
    answer: Answer = field(default_factory=lambda: reply("200 OK"))
    asked: list[bytes] = field(default_factory=list[bytes])
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head)
            await self.answer(head, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The client has left, or the test is over.
            pass
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@contextmanager
def hostile_server(answer: Answer | None = None) -> Generator[HostileServer]:
    server = HostileServer() if answer is None else HostileServer(answer)
    listening = threading.Event()
    over: list[Callable[[], object]] = []

    async def run() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        over.append(lambda: loop.call_soon_threadsafe(ended.set))
        opened = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        server.port = opened.sockets[0].getsockname()[1]
        listening.set()
        await ended.wait()
        opened.close()
        while handlers := asyncio.all_tasks() - {asyncio.current_task()}:
            # One that has not begun must begin: cancelled before, it would never close its connection.
            await asyncio.sleep(0)
            for handler in handlers:
                handler.cancel()
            await asyncio.gather(*handlers, return_exceptions=True)

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    assert listening.wait(60)
    try:
        yield server
    finally:
        over[0]()
        thread.join()
