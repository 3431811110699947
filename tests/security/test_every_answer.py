"""Every answer of every route: not kept, not guessed at, and an error repeats at most 200 characters."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import httpx
import pytest

from fencepost.embedded import Database
from fencepost_judge._access import PAGES
from fencepost_judge._role import JudgeRole
from fencepost_server.console._role import Role
from fencepost_server.web.errors import ECHO_MAX
from tests.integration.judge.judge_env import open_office
from tests.integration.web.tokens import program_token, user_token
from tests.integration.web.whole_app import SERVER_TOKEN, WholeApp, whole_app

KEPT_BY_ITS_OWN = {"/api/events"}
"""Streams without an end; test_streams.py has them."""
LONG = {
    "one word": "qz" * 1500,
    "words": "qz qz" * 600,
    "quotes": "qz'qz\"" * 500,
    "lines": "qz\nqz" * 600,
}
FIELDS: list[str] = ["id", "name", "queue", "key", "cursor", "before", "next"]
EXPECTED = {"cache-control": "no-store", "x-content-type-options": "nosniff"}


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[WholeApp]:
    with whole_app(database, tmp_path) as site:
        yield site


def repeats(text: str, given: str) -> bool:
    """Whether the answer has more of the input than an error may repeat, as it was sent or as JSON or HTML
    write it."""
    plain = re.sub(r"&#39;|\\u0027", "'", re.sub(r"&#34;|&quot;|\\\"", '"', text.replace("\\n", "\n")))
    piece = given[: ECHO_MAX + 1]
    return piece in plain or quote(piece, safe="") in text


def check(answer: httpx.Response, given: str) -> None:
    where = (answer.request.method, str(answer.url)[:80], answer.status_code)
    assert {name: answer.headers[name] for name in EXPECTED} == EXPECTED, where
    assert answer.status_code < 500, (where, answer.text[-300:])
    if answer.status_code >= 400:
        assert not repeats(answer.text, given), (where, answer.text[:900])


@pytest.mark.parametrize(
    ("caller", "shape"),
    [
        ("a stranger", "one word"),
        ("the server", "words"),
        pytest.param("the server", "one word", marks=pytest.mark.full),
        pytest.param("a viewer", "quotes", marks=pytest.mark.full),
        pytest.param("a program", "lines", marks=pytest.mark.full),
    ],
)
def test_of_every_service(site: WholeApp, caller: str, shape: str) -> None:
    given = LONG[shape]
    tokens = {
        "the server": lambda: SERVER_TOKEN,
        "a viewer": lambda: user_token(site.database, Role.VIEWER),
        "a program": lambda: program_token(site.database, "orders"),
    }
    token = tokens[caller]() if caller in tokens else None
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=site.url, headers=headers, timeout=30) as client:
        for method, path in sorted(site.routes):
            if path in KEPT_BY_ITS_OWN or path.endswith("/events"):
                continue
            place = re.sub(r"\{[^}]+\}", quote(given[:1200], safe=""), path)
            fields = dict.fromkeys(FIELDS, given[:300])
            has_body = method in {"POST", "PUT", "PATCH"}
            body = {"name": given, given[:400]: given} if has_body else None
            check(client.request(method, place, params=fields, json=body), given)
            if has_body:
                check(client.request(method, place, content=given.encode()), given)


DEEP = [b"[" * 100_000, b'{"a":' * 20_000, b'{"name":' + b"[" * 50_000 + b"]" * 50_000 + b"}"]


@pytest.mark.parametrize("body", DEEP)
def test_of_every_service_to_a_deep_document(site: WholeApp, body: bytes) -> None:
    headers = {"authorization": f"Bearer {SERVER_TOKEN}", "content-type": "application/json"}
    with httpx.Client(base_url=site.url, headers=headers, timeout=30) as client:
        for method, path in sorted(site.routes):
            if method in {"POST", "PUT", "PATCH"}:
                check(
                    client.request(method, re.sub(r"\{[^}]+\}", "999999", path), content=body), body.decode()
                )


def said(site: WholeApp, sent: bytes) -> tuple[int, dict[str, str], str]:
    """The answer to bytes that no client library would send."""
    address = httpx.URL(site.url)
    with socket.create_connection((address.host, address.port or 0), timeout=30) as client:
        client.sendall(sent)
        got = b""
        while piece := client.recv(65_536):
            got += piece
    head, _, body = got.decode().partition("\r\n\r\n")
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    return int(first.split(" ")[1]), headers, body


LONGEST = b"qz" * 10_000
END = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
TOKEN = f"Authorization: Bearer {SERVER_TOKEN}\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"this is no HTTP " + LONGEST[:400] + b"\r\n\r\n", 400),
        # A head that is not whole after 16 KiB.
        (b"GET /" + LONGEST, 400),
        (b"GET /" + END + b"X: " + LONGEST, 400),
        (b"GET /" + END + b"Host: b\r\n\r\n", 400),
        (b"GET /" + LONGEST[:3000] + END + b"\r\n", 401),
        (b"POST /orders" + END + b"Content-Length: -1\r\n\r\n", 400),
        (b"POST /orders" + END + b"Transfer-Encoding: qz\r\n\r\n", 400),
        (b"POST /orders" + END + TOKEN + b"Content-Length: 99999999999\r\n\r\n", 413),
        (b"DELETE /orders" + END + TOKEN + b"\r\n", 405),
        (b"GET /" + LONGEST[:3000] + END + TOKEN + b"\r\n", 404),
        (b"GET /console/static/app.css" + END + b"\r\n", 200),
        (b"GET /console/static/" + LONGEST[:900] + END + b"\r\n", 404),
    ],
)
def test_of_the_parser_and_the_router(site: WholeApp, sent: bytes, status: int) -> None:
    got, headers, body = said(site, sent)
    assert got == status, body[:300]
    assert {name: headers[name] for name in EXPECTED} == EXPECTED
    assert status == 200 or not repeats(body, "qz" * 1500)


@pytest.mark.parametrize("shape", ["words", "quotes"])
async def test_of_the_pages_of_the_judge(database: Database, tmp_path: Path, shape: str) -> None:
    given = LONG[shape]
    async with open_office(database, tmp_path) as office:
        await office.add("ada", JudgeRole.ADMIN)
        async with office.browser("ada") as ada:
            for method, path in PAGES:
                if method != "GET" or path.endswith("/events"):
                    continue
                place = re.sub(r"\{[^}]+\}", quote(given[:1200], safe=""), path)
                for query in ("", f"?before={quote(given[:1200], safe='')}"):
                    check(await ada.client.get(place + query), given)
