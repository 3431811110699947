"""A bucket that lies: the judge takes nothing from it but a digest's content, and says what is wrong."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import socket
from collections.abc import Iterator

import pytest

from fencepost.backoff import Backoff
from fencepost_judge import _bucket as bucket
from fencepost_judge._store import CorruptData, Keys, Store, StoreUnavailable
from tests.security.hostile_server import REDIRECTS, HostileServer, dripping, hostile_server, reply

CONTENT = b"1 2\n"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
ACCESS, SECRET = "AKIDOFTHISJUDGE0", "the-secret-of-this-judge"


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with hostile_server(reply("200 OK", CONTENT)) as server:
        yield server


def store_at(server: HostileServer, seconds: float = 30) -> Store:
    keys = Keys(
        endpoint=server.url, region="us-east-1", access_key=ACCESS, secret_key=SECRET, timeout_seconds=seconds
    )
    return Store("s3://tests/problems", keys)


def test_a_good_one_is_believed(server: HostileServer) -> None:
    assert store_at(server).get(DIGEST) == CONTENT


@pytest.mark.parametrize("content", [b"", b"1 3\n", CONTENT + CONTENT, b"\0" * 1_000_000])
def test_other_bytes_under_a_digest_are_refused(server: HostileServer, content: bytes) -> None:
    server.answer = reply("200 OK", content)
    with pytest.raises(CorruptData, match="not what was stored"):
        store_at(server).get(DIGEST)


def test_a_bomb_is_not_unpacked(server: HostileServer) -> None:
    """What decompresses to the right content is not the content."""
    server.answer = reply("200 OK", gzip.compress(CONTENT), content_encoding="gzip")
    with pytest.raises(CorruptData):
        store_at(server).get(DIGEST)


def test_a_cut_body_is_asked_for_again_and_then_refused(
    server: HostileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "_DELAYS", Backoff(0, 0))
    server.answer = reply("200 OK", CONTENT[:2], content_length="4")
    with pytest.raises(StoreUnavailable, match="it ended after 2 of 4 bytes"):
        store_at(server).get(DIGEST)
    assert len(server.asked) == bucket.TRIES


@pytest.mark.parametrize("length", [bucket.OBJECT_BYTES_MAX + 1, 1 << 62])
def test_an_absurd_length_is_refused_before_a_byte_is_read(server: HostileServer, length: int) -> None:
    server.answer = dripping(f"HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n".encode(), b"x" * 65_536)
    with pytest.raises(StoreUnavailable, match=f"it announces {length} bytes; an object has at most"):
        store_at(server).get(DIGEST)


def test_a_body_without_an_end_is_not_read(server: HostileServer) -> None:
    server.answer = dripping(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"5\r\nxxxxx\r\n")
    with pytest.raises(StoreUnavailable, match="does not say how long"):
        store_at(server).get(DIGEST)


@pytest.mark.parametrize(
    ("head", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"x-a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nx-long: ", b"x"),
        (b"", b"H"),
    ],
)
def test_one_that_drips_is_left_when_the_time_is_over(
    server: HostileServer, head: bytes, drop: bytes
) -> None:
    """A timeout that begins again with every byte would never end."""
    server.answer = dripping(head, drop)
    with pytest.raises(StoreUnavailable):
        store_at(server, seconds=1).get(DIGEST)


@pytest.mark.parametrize("status", REDIRECTS)
def test_a_redirect_is_followed_nowhere(server: HostileServer, status: str) -> None:
    """Neither to this machine nor to the address where clouds keep credentials."""
    with hostile_server(reply("200 OK", CONTENT)) as canary:
        server.answer = reply(status, location=f"{canary.url}/latest/meta-data/")
        for ask in (lambda: store_at(server).get(DIGEST), lambda: store_at(server).put(CONTENT)):
            with pytest.raises(StoreUnavailable, match="a redirect, which is not followed"):
                ask()
    assert canary.asked == []


def test_a_refusal_that_repeats_keys_is_told_briefly_and_without_them(server: HostileServer) -> None:
    said = f"<Error><Code>AccessDenied</Code>{SECRET} {ACCESS} {'x' * 100_000}</Error>".encode()
    server.answer = reply("403 Forbidden", said)
    with pytest.raises(StoreUnavailable, match="it answers 403") as refused:
        store_at(server).get(DIGEST)
    assert SECRET not in str(refused.value)
    assert ACCESS not in str(refused.value)
    assert len(str(refused.value)) < 500


def test_a_judges_secret_is_sent_nowhere(server: HostileServer) -> None:
    """Requests are signed with it; the other side sees the signature."""
    store_at(server).get(DIGEST)
    assert SECRET.encode() not in b"".join(server.asked)


def test_a_port_that_never_speaks_is_left_when_the_time_is_over() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.listen()
        port = silent.getsockname()[1]
        keys = Keys(
            endpoint=f"http://127.0.0.1:{port}",
            region="us-east-1",
            access_key=ACCESS,
            secret_key=SECRET,
            timeout_seconds=0.5,
        )
        with pytest.raises(StoreUnavailable):
            Store("s3://tests/problems", keys).get(DIGEST)


async def test_the_content_is_checked_when_it_is_written_too(server: HostileServer) -> None:
    """A bucket that claims to have the content already is not believed: the content is sent."""
    server.answer = reply("200 OK", b"something else")
    assert await asyncio.to_thread(store_at(server).put, CONTENT) == DIGEST
    assert [asked.split(b" ")[0] for asked in server.asked] == [b"GET", b"PUT"]
