"""Whatever a browser or a stranger sends gets an answer, and nonsense opens nothing."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import strategies as st
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from fencepost.errors import InvalidInput
from fencepost.kernel.call import text as storable_text
from fencepost.tracing import place_of, trace_id_of
from fencepost_server.accounts._cookies import Cookies
from fencepost_server.web._security_middleware import SecurityMiddleware, SecurityRules
from fencepost_server.web._tracing_middleware import TracingMiddleware
from fencepost_server.web.forms import FORM_FIELD, Id, fields_of, filled, local_path, readable
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import TEXTS, wrong_bytes, wrong_text

COOKIES = Cookies(b"k" * 32, "f")
TRACE = b"00-" + b"ab" * 16 + b"-" + b"cd" * 8 + b"-01"
FORM = b"application/x-www-form-urlencoded"
KEPT = f"f_session={COOKIES.signed('session', 's')}; f_notice={COOKIES.signed('notice', 'a')}".encode()
TOKEN = "0123456789abcdef"
OPEN, CLOSED = SecurityRules(token=None, body_max_bytes=2048), SecurityRules(token=TOKEN, body_max_bytes=2048)
Headers = Sequence[tuple[bytes, bytes]]


class Wanted(BaseModel):
    name: str
    job: Id | None = None


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """What pages do with a request."""
    request = Request(scope, receive)
    fields = await fields_of(request)
    COOKIES.notice(request)
    session = COOKIES.kept(request, "session", 3600)
    COOKIES.is_form_token(fields.get(FORM_FIELD, ""), session or "")
    try:
        storable_text("name", readable(filled(Wanted, fields).name))
    except InvalidInput as error:
        str(error).encode(errors="replace")
    await PlainTextResponse("in")(scope, receive, send)


def status_of(
    headers: Headers, body: bytes = b"", *, method: str = "POST", rules: SecurityRules = OPEN
) -> int:
    said: list[Message] = []

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Message) -> None:
        said.append(message)

    scope: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": "/orders",
        "query_string": b"",
        "headers": list(headers),
        "client": None,
        "server": ("127.0.0.1", 80),
        "scheme": "http",
    }
    asyncio.run(TracingMiddleware(SecurityMiddleware(inner, rules))(scope, receive, send))
    if said[0]["status"] >= 400:
        assert json.loads(said[1]["body"])["code"]
    return int(said[0]["status"])


def ask(given: tuple[Headers, bytes]) -> None:
    headers, body = given
    names = [name for name, _ in headers]
    status = status_of([*([] if b"host" in names else [(b"host", b"localhost")]), *headers], body)
    assert status in {200, 400, 403, 413}
    assert status_of(headers, body, rules=CLOSED) in {200, 401, 403}
    if (b"authorization", b"Bearer " + TOKEN.encode()) not in headers:
        assert status_of(headers, body, rules=CLOSED) == 401


def header(name: bytes, right: bytes) -> st.SearchStrategy[tuple[bytes, bytes]]:
    return st.tuples(st.just(name), st.one_of(st.just(right), wrong_bytes(right)))


HEADERS = st.lists(
    st.one_of(
        header(b"host", b"localhost:8080"),
        header(b"origin", b"http://localhost:8080"),
        header(b"sec-fetch-site", b"same-origin"),
        header(b"traceparent", TRACE),
        header(b"cookie", KEPT),
        header(b"content-length", b"7"),
        header(b"content-type", FORM),
        header(b"authorization", b"Bearer 0123456789abcdee"),
        st.tuples(st.binary(max_size=5), st.binary(max_size=20)),
    ),
    max_size=6,
)
BODIES = st.one_of(wrong_bytes(b"name=a&job=7&form_token=x"), st.binary(max_size=40), st.just(b"a=&" * 101))


def read_place(text: str) -> None:
    place = place_of({"traceparent": text})
    assert (place is None) is (trace_id_of(text) is None)


def lead(text: str) -> None:
    path = local_path(text, "/console")
    assert path.partition("?")[0] == "/console" or path.startswith("/console/")
    assert "//" not in path


PARSERS = {
    "a request": Parser(ask, st.tuples(HEADERS, BODIES)),
    "a form": Parser(
        lambda body: status_of([(b"host", b"localhost"), (b"content-type", FORM)], body), BODIES
    ),
    "cookies": Parser(
        lambda value: status_of([(b"host", b"localhost"), (b"cookie", value)]),
        st.one_of(wrong_bytes(KEPT), st.binary(max_size=60)),
    ),
    "a trace": Parser(read_place, wrong_text(TRACE.decode())),
    "where to go": Parser(lead, st.one_of(wrong_text("/console/jobs?state=dead"), TEXTS)),
}


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_is_asked_gets_an_answer(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_whatever_is_asked_gets_an_answer_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


@pytest.mark.parametrize(
    ("length", "status"),
    [
        (b"", 200),
        (b"7", 200),
        (b"abc", 400),
        (b"-1", 400),
        (b"+7", 400),
        (b"1_0", 400),
        (b"\xb2", 400),
        (b"7, 7", 400),
        (b"9" * 5000, 413),
    ],
)
def test_a_length_that_is_none_is_told(length: bytes, status: int) -> None:
    assert status_of([(b"host", b"localhost"), (b"content-length", length)]) == status


@pytest.mark.parametrize(
    "host", [b"[::1", b"[", b"localhost]", b"\xff", b"@", b"localhost@evil.example", b""]
)
def test_a_host_that_is_none_is_not_this_machine(host: bytes) -> None:
    assert status_of([(b"host", host)], method="GET") == 403


@pytest.mark.parametrize("origin", [b"null", b"http://[a", b"//", b"\xff", b"http:localhost"])
@pytest.mark.parametrize("host", [b"localhost", b""])
def test_an_origin_that_is_none_is_another_site(origin: bytes, host: bytes) -> None:
    right = (b"authorization", b"Bearer " + TOKEN.encode())

    assert status_of([(b"host", host), (b"origin", origin), right], rules=CLOSED) == 403
