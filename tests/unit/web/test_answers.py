"""What errors repeat of a request, and where a login leads."""

import json
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from fencepost.errors import Backpressure, FencepostError, ServerUnavailable, from_sqlstate
from fencepost_server.web.errors import (
    ECHO_MAX,
    HTTP_CODES,
    MESSAGE_MAX,
    RETRIED,
    STATUSES,
    answer_errors_of,
    brief,
    failure,
    status_of,
)
from fencepost_server.web.forms import local_path

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "http.md"


@pytest.mark.parametrize(
    "message",
    [
        f"There is no problem {'a' * 5000}.",
        f"There is no order '{'a b ' * 5000}'.",
        f'name is "{"a b " * 5000}"; allowed: a name.',
        f"{'/' * 201}: unknown.",
    ],
)
def test_nothing_long_is_repeated(message: str) -> None:
    said = brief(message)
    assert len(said) < 2 * ECHO_MAX
    assert "…" in said
    assert json.loads(bytes(failure(400, "invalid_input", message).body))["message"] == said


@pytest.mark.parametrize(
    ("error", "wait"),
    [
        (from_sqlstate("ZF102", "Too fast.", '{"retry_seconds": 36.2}'), "37"),
        (from_sqlstate("ZF102", "Too many wait.", None), "1"),
        (Backpressure("Too fast.", retry_seconds=0.1), "1"),
        (ServerUnavailable("Away."), "1"),
    ],
)
async def test_what_is_told_to_wait_is_told_how_long(error: FencepostError, wait: str) -> None:
    app = FastAPI()
    answer_errors_of(app)

    @app.get("/")
    async def refuse() -> None:
        raise error

    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        assert (await client.get("/")).headers["Retry-After"] == wait


def test_the_reference_has_every_status_with_its_code() -> None:
    shown = re.findall(r"^\| (\d{3}) \| `(\w+)`(, with `Retry-After`)? \|", PAGE.read_text(), re.MULTILINE)
    retried = {(*status_of(kind("x")), True) for kind in RETRIED}
    known = {(status, code) for _, status, code in STATUSES if code} | set(HTTP_CODES.items())
    known |= {(400, "incomplete"), *((status, code) for status, code, _ in retried)}
    assert {(int(status), code) for status, code, _ in shown} == known
    assert {(int(status), code, True) for status, code, waits in shown if waits} == retried


def test_a_message_is_a_few_sentences() -> None:
    assert len(brief("word " * 1000)) == MESSAGE_MAX + 1
    assert brief(f"'{'a' * 100}' is unknown. Known: {', '.join('abc')}.").endswith("Known: a, b, c.")


def test_a_field_is_a_name_and_no_novel() -> None:
    assert len(json.loads(bytes(failure(400, "x", "y", field="z" * 1000).body))["field"]) == ECHO_MAX + 1


@pytest.mark.parametrize(
    "path",
    ["/console", "/console/jobs?state=dead", "/console/leases/a%2Fb", "/console/a..b", "/console?next=.."],
)
def test_a_page_of_ours_is_gone_to(path: str) -> None:
    assert local_path(path, "/console") == path


@pytest.mark.parametrize(
    "path",
    [
        None,
        "",
        "/consoles",
        "//evil.example",
        "https://evil.example/console",
        "/console//evil.example",
        "/console/\\evil.example",
        "/console/../orders",
        "/console/..",
        "/console/./jobs",
        "/console/%2e%2e/orders",
        "/console/%2E./orders",
        "/console/.%2e/..%2f",
        "/console/jobs\r\nset-cookie: a=b",
    ],
)
def test_another_place_is_not(path: str | None) -> None:
    assert local_path(path, "/console") == "/console"
