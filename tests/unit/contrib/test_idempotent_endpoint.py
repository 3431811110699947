"""What an idempotent endpoint decides without I/O, and what its declaration refuses."""

import json
import subprocess
import sys
from typing import Any

import pytest
from fastapi import APIRouter
from hypothesis import given
from hypothesis import strategies as st

from fencepost import Fencepost, InvalidInput
from fencepost.contrib import django, fastapi, flask
from fencepost.contrib._idempotent_endpoint import Answer, KeyedRequest, identify


def digest_of(method: str = "POST", path: str = "/a", query: str = "", body: bytes = b"") -> str:
    request = identify("s", "k", True, method, path, query, body)
    assert isinstance(request, KeyedRequest)
    return request.digest


def test_each_part_of_a_request_counts() -> None:
    parts: list[dict[str, Any]] = [
        {},
        {"method": "PUT"},
        {"path": "/b"},
        {"query": "b"},
        {"body": b"b"},
        {"path": "/", "query": "a"},
        {"path": "/a\n", "body": b""},
        {"body": b"\n"},
    ]

    assert len({digest_of(**part) for part in parts}) == len(parts)
    assert digest_of() == digest_of()


@pytest.mark.parametrize(
    ("key", "is_valid"),
    [
        ("k", True),
        ("k" * 255, True),
        ("a b", True),
        ("k" * 256, False),
        ("", False),
        (" ", False),
        ("é", False),
    ],
)
def test_a_key_is_printable_and_short(key: str, is_valid: bool) -> None:
    request = identify("s", key, True, "POST", "/", "", b"")

    assert isinstance(request, KeyedRequest if is_valid else Answer)


@given(st.binary(), st.sampled_from([200, 404]))
def test_an_answer_comes_back_as_it_was_stored(body: bytes, status: int) -> None:
    headers = (("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"))
    stored = json.loads(json.dumps(Answer(status, headers, body).stored()))

    assert Answer.replayed(stored) == Answer(status, (*headers, ("Idempotent-Replayed", "true")), body)


def test_an_answer_is_stored_up_to_64_kib() -> None:
    frame = len(json.dumps(Answer(200, (), b"").stored(), separators=(",", ":")))
    Answer(200, (), b"x" * (65536 - frame)).stored()

    with pytest.raises(InvalidInput, match="takes 65537 bytes"):
        Answer(200, (), b"x" * (65537 - frame)).stored()


def test_a_handler_of_the_wrong_kind_is_refused_when_it_is_declared() -> None:
    async def awaited(*_: Any) -> Any: ...
    def blocking(*_: Any) -> Any: ...

    fp = Fencepost("postgresql://localhost/never-opened")
    unchecked: Any = awaited  # A type checker refuses it too.
    router = APIRouter(route_class=fastapi.idempotent_route(fp, scope="s"))

    with pytest.raises(TypeError, match="async def"):
        router.post("/")(blocking)
    with pytest.raises(TypeError, match="coroutine function"):
        flask.idempotent(fp.sync(), scope="s")(unchecked)
    with pytest.raises(TypeError, match="coroutine function"):
        django.idempotent(scope="s")(unchecked)


@pytest.mark.parametrize("framework", ["fastapi", "flask", "django"])
def test_a_missing_framework_is_named_with_what_to_install(framework: str) -> None:
    code = f"import sys; sys.modules[{framework!r}] = None; import fencepost.contrib.{framework}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert f"Run: pip install {framework}" in done.stderr.splitlines()[-1]
