"""Requests that no page would send: answered, and never with a failure of ours."""

from __future__ import annotations

import re
from urllib.parse import quote

from fencepost_server.console._role import Role
from tests.integration.console.env import ConsoleEnv

VALUES = [
    "",
    "-1",
    "0",
    "9223372036854775807",
    "9223372036854775808",
    "1e9",
    "NaN",
    "null",
    "x" * 3000,
    "\0",
    "ü€😀",
    "'; --",
    "%",
    "../..",
    "2030-01-01",
    "9999-12-31T23:59:59+00:00",
    "{}",
    "[]",
    "true",
    "\ud7ff",
    "a\nb",
    "csv",
]
NAMES = [
    "before",
    "after",
    "limit",
    "state",
    "queue",
    "kind",
    "id",
    "channel",
    "key",
    "prefix",
    "cause",
    "span",
    "status",
    "broker",
    "account",
    "actor",
    "resource",
    "format",
]
BODIES: list[object] = [
    {},
    [],
    None,
    7,
    "x",
    {"how": "replay"},
    {"note": "\0"},
    {"role": "king"},
    {"password": "x"},
    {"how": "replay", "before": "9999-12-31T23:59:59+00:00", "limit": 10**30},
]
STREAM = "/api/events"


def is_api(path: str) -> bool:
    """The pages read by the same functions."""
    return path.startswith("/api/") and path != STREAM


def test_no_query_makes_the_api_fail(env: ConsoleEnv) -> None:
    paths = [path for method, path in env.context.router.roles if method == "GET" and is_api(path)]
    with env.program(Role.ADMIN) as client:
        for number, path in enumerate(paths):
            # Names and values are spread over the paths: all of them for each would take minutes.
            for turn, name in enumerate(NAMES[number % 6 :: 6]):
                value = VALUES[(number + turn) % len(VALUES)]
                address = re.sub(r"\{[^}]+\}", "1", path)
                answer = client.get(f"{address}?{name}={quote(value)}")
                assert answer.status_code < 500, (address, name, value, answer.text[:500])


def test_no_name_in_a_path_makes_the_api_fail(env: ConsoleEnv) -> None:
    paths = [one for one in env.context.router.roles if "{" in one[1]]
    with env.program(Role.ADMIN) as client:
        for number, (method, path) in enumerate(paths):
            for turn in range(3):
                value = VALUES[(number + turn * 7) % len(VALUES)] or "x"
                address = re.sub(r"\{[^}]+\}", quote(value, safe=""), path)
                answer = client.request(
                    method, address, json=BODIES[(number + turn) % len(BODIES)] if method == "POST" else None
                )
                assert answer.status_code < 500, (method, address, answer.text[:500])


def test_no_body_makes_an_action_fail(env: ConsoleEnv) -> None:
    paths = [path for method, path in env.context.router.roles if method == "POST" and is_api(path)]
    with env.program(Role.ADMIN) as client:
        for number, path in enumerate(paths):
            address = re.sub(r"\{[^}]+\}", "1", path)
            for body in BODIES[number % 2 :: 2]:
                answer = client.post(address, json=body)
                assert answer.status_code < 500, (address, body, answer.text[:500])
            assert client.post(address, content=b"\xff\xfe{").status_code < 500, address
