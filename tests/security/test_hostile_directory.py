"""An etcd that lies: judges that do not exist are not listed, and nothing of a lie decides anything."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import Any

import pytest

from fencepost.errors import FencepostError, ServerUnavailable
from fencepost_judge._discovery import Load, Registration, RegistrationLost, WorkerInfo
from fencepost_judge._discovery_etcd import (
    LISTED_MAX,
    PREFIX,
    REPLY_SECONDS,
    VALUE_BYTES_MAX,
    EtcdAddress,
    EtcdDirectory,
)
from tests.security.hostile_server import HostileServer, dripping, hostile_server, reply

WHEN = "2026-10-03T09:00:00+00:00"
INFO = WorkerInfo(
    owner="judge-1",
    host="h",
    version="1",
    languages={"c": "12"},
    slots=2,
    processors=2,
    sandbox="box",
    degraded=[],
)
GOOD: dict[str, Any] = {
    **asdict(INFO),
    **asdict(Load()),
    "entered_at": WHEN,
    "seen_at": WHEN,
    "expires_at": WHEN,
}


def coded(value: str) -> str:
    return base64.b64encode(value.encode("utf-8", "surrogatepass")).decode()


def listing(*pairs: tuple[str, str]) -> bytes:
    return json.dumps({"kvs": [{"key": coded(key), "value": coded(value)} for key, value in pairs]}).encode()


@pytest.fixture
def server() -> Iterator[HostileServer]:
    with hostile_server() as server:
        yield server


@pytest.fixture
async def directory(server: HostileServer) -> AsyncIterator[EtcdDirectory]:
    address = EtcdAddress.read(f"etcd://127.0.0.1:{server.port}")
    async with EtcdDirectory(address, lease_seconds=5) as directory:
        yield directory


async def test_a_good_one_is_believed(server: HostileServer, directory: EtcdDirectory) -> None:
    server.answer = reply("200 OK", listing((f"{PREFIX}judge-1", json.dumps(GOOD))))
    assert [one.owner for one in await directory.workers()] == ["judge-1"]


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("judge-2", {}),
        ("../judge-1", {}),
        ("judge-1", {"owner": "judge-2"}),
        ("judge-1", {"slots": -1}),
        ("judge-1", {"slots": 10**30}),
        ("judge-1", {"load_average": float("nan")}),
        ("judge-1", {"load_average": float("inf")}),
        ("judge-1", {"load_average": 1e300}),
        ("judge-1", {"host": "x" * VALUE_BYTES_MAX}),
        ("judge-1", {"languages": {str(number): "x" for number in range(VALUE_BYTES_MAX)}}),
        ("judge-1", {"host": "\ud800"}),
        ("judge-1", {"seen_at": "yesterday"}),
        ("judge-1", {"entered_at": "2026-10-03T09:00:00"}),
    ],
)
async def test_a_forged_judge_is_not_listed(
    server: HostileServer, directory: EtcdDirectory, key: str, changed: dict[str, Any]
) -> None:
    server.answer = reply("200 OK", listing((PREFIX + key, json.dumps({**GOOD, **changed}))))
    assert await directory.workers() == []


async def test_a_key_of_another_tenant_is_not_listed(server: HostileServer, directory: EtcdDirectory) -> None:
    server.answer = reply("200 OK", listing(("/another/judge-1", json.dumps(GOOD)), ("/another/secret", "s")))
    assert await directory.workers() == []


async def test_a_crowd_of_forged_judges_is_bounded(server: HostileServer, directory: EtcdDirectory) -> None:
    crowd = [(f"{PREFIX}{n}", json.dumps({**GOOD, "owner": str(n)})) for n in range(LISTED_MAX + 500)]
    server.answer = reply("200 OK", listing(*crowd))
    assert len(await directory.workers()) == LISTED_MAX


@pytest.mark.parametrize(
    "answer",
    [
        reply("200 OK", b"[" * 100_000),
        reply("200 OK", b"{" + b'"a":{' * 10_000),
        reply("200 OK", b"x" * (2 << 20)),
        reply("200 OK", content_length=str(1 << 60)),
        reply("500 Internal Server Error", b"x" * 1000),
        reply("200 OK", b'{"kvs"', content_length="100"),
    ],
)
async def test_what_is_no_answer_is_an_error_that_says_so(
    server: HostileServer, directory: EtcdDirectory, answer: Any
) -> None:
    server.answer = answer
    with pytest.raises(ServerUnavailable, match="etcd") as said:
        await directory.workers()
    assert len(str(said.value)) < 600


@pytest.mark.parametrize("drop", [b"x", b'{"kvs":['])
async def test_one_that_drips_is_left_when_the_time_is_over(
    server: HostileServer, drop: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost_judge._discovery_etcd.REPLY_SECONDS", REPLY_SECONDS / 10)
    server.answer = dripping(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n", drop)
    async with EtcdDirectory(EtcdAddress.read(f"etcd://127.0.0.1:{server.port}"), lease_seconds=5) as slow:
        with pytest.raises(ServerUnavailable, match="no whole reply after"):
            await slow.workers()


async def test_a_redirect_is_followed_nowhere(server: HostileServer, directory: EtcdDirectory) -> None:
    with hostile_server(reply("200 OK", b"{}")) as canary:
        server.answer = reply("307 Temporary Redirect", location=f"{canary.url}/latest/meta-data/")
        with pytest.raises(ServerUnavailable, match="etcd answers 307"):
            await directory.workers()
    assert canary.asked == []


@pytest.mark.parametrize("lease", ["9" * 19, "9" * 400, "1e9", "-0x1", "", None, [], {"ID": 1}])
async def test_an_absurd_lease_is_refused(
    server: HostileServer, directory: EtcdDirectory, lease: Any
) -> None:
    server.answer = reply("200 OK", json.dumps({"ID": lease}).encode())
    with pytest.raises(ServerUnavailable, match="not a lease"):
        await directory.enter(INFO)


@pytest.mark.parametrize("kept", [{}, {"result": {}}, {"result": {"TTL": "0"}}, {"result": {"TTL": "-9"}}])
async def test_a_lease_that_is_not_kept_is_lost(
    server: HostileServer, directory: EtcdDirectory, kept: Any
) -> None:
    server.answer = reply("200 OK", json.dumps(kept).encode())
    with pytest.raises((RegistrationLost, ServerUnavailable)) as said:
        await directory.beat(Registration("judge-1", 0, 7), Load())
    assert isinstance(said.value, FencepostError)
