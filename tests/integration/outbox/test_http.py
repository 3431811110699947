"""The client knows whether a request can have left, and gives no request another one's answer."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from fencepost.http_client import HttpClient, MaybeSent, NotSent, Request
from fencepost.testing.server_close import stop_listening

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[tuple[str, list[int]]]:
    """The server's address, and one entry for each connection that was made to it."""
    connections: list[int] = []
    tasks: set[asyncio.Task[None]] = set()
    writers: set[asyncio.StreamWriter] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task that is cancelled before it begins closes nothing.
        writers.add(writer)
        task = asyncio.create_task(connected(reader, writer))
        tasks.add(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", connections
    finally:
        await stop_listening(server)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.transport.abort()
        # A transport that is aborted closes its socket in the next turn.
        await asyncio.sleep(0)


async def request_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readuntil(b"\r\n\r\n")


async def echo_path(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        path = (await request_of(reader)).split(b" ")[1]
        writer.write(ANSWER + path[-2:])


async def test_a_connection_is_used_again_and_each_request_has_its_own_answer() -> None:
    async with serving(echo_path) as (url, connections), HttpClient() as client:
        for number in range(10, 20):
            assert (await client.exchange(Request("GET", f"{url}/{number}"))).body == str(number).encode()
        many = await asyncio.gather(*(client.exchange(Request("GET", f"{url}/{n}")) for n in range(20, 60)))
        assert [reply.body for reply in many] == [str(n).encode() for n in range(20, 60)]
    assert len(connections) <= 40


async def test_no_more_connections_are_opened_than_allowed() -> None:
    async with serving(echo_path) as (url, connections), HttpClient(connections_max=2) as client:
        await asyncio.gather(*(client.exchange(Request("GET", f"{url}/{n}")) for n in range(10, 30)))
    assert len(connections) <= 2


async def test_a_server_that_is_not_there_was_sent_nothing() -> None:
    async with HttpClient() as client:
        with pytest.raises(NotSent):
            await client.exchange(Request("GET", "http://127.0.0.1:1/"))
        with pytest.raises(NotSent):
            await client.exchange(Request("GET", "gopher://127.0.0.1/"))


async def test_a_server_that_speaks_no_tls_was_sent_nothing() -> None:
    async with serving(echo_path) as (url, _), HttpClient() as client:
        with pytest.raises(NotSent):
            await client.exchange(Request("POST", url.replace("http:", "https:"), body=b"secret"))


async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_of(reader)
    writer.write(ANSWER + b"x")
    await writer.drain()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_of(reader)


async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("serve", [cut_off, hang_up, never])
async def test_a_request_without_a_whole_answer_may_have_been_carried_out(serve: Serve) -> None:
    async with serving(serve) as (url, _), HttpClient(reply_seconds=0.3) as client:
        with pytest.raises(MaybeSent) as raised:
            await client.exchange(Request("POST", url, body=b""))
    assert ("no whole reply after 0.3 s" in str(raised.value)) == (serve is never)


async def test_a_caller_that_gives_up_leaves_no_answer_behind_for_the_next_one() -> None:
    """A cancelled request's connection is not used again, although its answer would still come."""
    answers = asyncio.Event()
    asked = asyncio.Event()

    async def slow_at_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            path = (await request_of(reader)).split(b" ")[1]
            if path == b"/11":
                asked.set()
                await answers.wait()
            writer.write(ANSWER + path[-2:])

    async with serving(slow_at_first) as (url, connections), HttpClient() as client:
        first = asyncio.create_task(client.exchange(Request("GET", f"{url}/11")))
        await asked.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        answers.set()
        assert (await client.exchange(Request("GET", f"{url}/22"))).body == b"22"
    assert len(connections) == 2


async def test_a_server_that_speaks_unasked_is_hung_up_on() -> None:
    """What came before a request is not its answer. (What comes behind it cannot be told apart: therefore
    an order's answer must name the order.)"""
    hung_up = asyncio.Event()

    async def talkative(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await request_of(reader)).split(b" ")[1]
        writer.write(ANSWER + path[-2:])
        if path == b"/11":
            await writer.drain()
            await answered.wait()
            writer.write(ANSWER + b"no")
            with suppress(ConnectionError):
                await reader.read()
            hung_up.set()
        await reader.read()

    answered = asyncio.Event()
    async with serving(talkative) as (url, connections), HttpClient() as client:
        await client.exchange(Request("GET", f"{url}/11"))
        answered.set()
        await hung_up.wait()
        assert (await client.exchange(Request("GET", f"{url}/22"))).body == b"22"
    assert len(connections) == 2


async def test_a_reply_larger_than_the_bound_is_not_read() -> None:
    async with serving(echo_path) as (url, _):
        async with HttpClient(body_bytes_max=2) as client:
            assert (await client.exchange(Request("GET", f"{url}/11"))).body == b"11"
        async with HttpClient(body_bytes_max=1) as client:
            with pytest.raises(MaybeSent, match="larger than 1 bytes"):
                await client.exchange(Request("GET", f"{url}/11"))


async def test_a_redirect_is_a_reply_and_not_a_second_request() -> None:
    asked: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append((await request_of(reader)).split(b" ")[1])
            writer.write(b"HTTP/1.1 307 Temporary Redirect\r\nLocation: /22\r\nContent-Length: 0\r\n\r\n")

    async with serving(elsewhere) as (url, _), HttpClient() as client:
        reply = await client.exchange(Request.post_json(f"{url}/11", {"order": 1}))
    assert (reply.status, reply.headers["location"], asked) == (307, "/22", [b"/11"])
