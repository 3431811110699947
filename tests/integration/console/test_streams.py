"""Figures that move: one look for all, and a reader who does not read is dropped."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from fencepost.embedded import Database
from fencepost.embedded._deadline import Deadline
from fencepost_server.console._live_snapshot import MISSED_MAX, SnapshotStream
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from tests.integration.console.env import ConsoleEnv, console
from tests.integration.console.watchers import Watchers


def test_a_stream_tells_what_changed(env: ConsoleEnv) -> None:
    crowd = Watchers(env.database)
    with env.program(Role.OPERATOR) as client, client.stream("GET", "/api/events") as stream:
        lines = stream.iter_lines()
        assert stream.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert next_look(lines)["dead"] == 3
        with env.program(Role.OPERATOR) as other:
            other.post(f"/api/jobs/{crowd.dead[0]}/replay")
        while next_look(lines)["dead"] != 2:
            pass


def next_look(lines: Iterator[str]) -> dict[str, int]:
    for line in lines:
        if line.startswith("data: "):
            found: dict[str, int] = json.loads(line.removeprefix("data: "))
            return found
    raise AssertionError("the stream has ended")


def test_a_stream_needs_a_login(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        assert client.get("/api/events").status_code == 401


def test_no_more_streams_than_allowed(database: Database) -> None:
    with (
        console(database, ConsoleSettings(streams_max=1, look_seconds=0.2)) as env,
        env.program(Role.VIEWER) as client,
        client.stream("GET", "/api/events"),
    ):
        assert client.get("/api/events").status_code == 503


async def test_a_reader_keeps_only_the_newest_and_is_dropped_when_it_never_takes_it() -> None:
    stream = SnapshotStream()
    assert all(stream.offer(b"%d" % number) for number in range(MISSED_MAX))
    assert await stream.take() == b"%d" % (MISSED_MAX - 1), "the newest, and only that"
    assert all(stream.offer(b"x") for _ in range(MISSED_MAX))
    assert not stream.offer(b"one too many")


def test_a_reader_that_reads_nothing_is_dropped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # However long a look takes here, the next one is made: it is their number that counts.
    monkeypatch.setattr("fencepost_server.console._live_snapshot.SHARE_MAX", 1000.0)
    with console(database, ConsoleSettings(look_seconds=0.2)) as env:
        # Large enough to fill the sockets' buffers after a few looks.
        with database.connect() as connection:
            connection.execute(
                "select fencepost.queue_pause(repeat('q', 100) || n, 'test') from generate_series(1, 3000) n"
            )
        token = env.token(Role.VIEWER)
        context = urlsplit(env.url)
        with socket.create_connection((context.hostname, context.port)) as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            request = (
                f"GET /api/events HTTP/1.1\r\nHost: {context.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
            )
            reader.sendall(request.encode())
            Deadline(60, "the reader is dropped").wait(lambda: env.context.live_snapshot.dropped == 1)
            assert env.context.live_snapshot.open_streams == 0


@pytest.mark.full
async def test_a_thousand_streams_on_one_process(database: Database) -> None:
    with console(database, ConsoleSettings(look_seconds=0.5)) as env:
        limits = httpx.Limits(max_connections=None)
        headers = {"authorization": f"Bearer {env.token(Role.VIEWER)}"}
        async with httpx.AsyncClient(base_url=env.url, limits=limits, headers=headers, timeout=60) as client:

            async def looks(count: int) -> int:
                seen = 0
                async with client.stream("GET", "/api/events") as stream:
                    async for line in stream.aiter_lines():
                        seen += line.startswith("data: ")
                        if seen == count:
                            return seen
                return seen

            assert set(await asyncio.gather(*(looks(3) for _ in range(1000)))) == {3}
