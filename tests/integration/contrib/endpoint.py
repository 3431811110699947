"""One idempotent endpoint as its clients see it, whichever framework serves it.

`POST /notes` with `{"word": ..., "then": ...}` writes the word into `public.note`, and ends as `then` says.
"""

import json
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

SCOPE = "notes"
INSERT = "insert into public.note values (%s)"
DIE = "select pg_terminate_backend(pg_backend_pid())"


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    """With names in lower case."""
    body: bytes

    @property
    def is_replay(self) -> bool:
        return self.headers.get("idempotent-replayed") == "true"

    def without_mark(self) -> "Reply":
        headers = {name: value for name, value in self.headers.items() if name != "idempotent-replayed"}
        return Reply(self.status, headers, self.body)


class Endpoint(Protocol):
    def post(self, key: str | None, word: str, then: str = "return", path: str = "/notes") -> Reply: ...


Serve = Callable[[str], AbstractContextManager[Endpoint]]
"""Serves the endpoint on the database at a URL."""


def request_headers(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def request_body(word: str, then: str) -> bytes:
    return json.dumps({"word": word, "then": then}).encode()


def returned(word: str, then: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body; no two bodies are the same, so only a stored one can come twice."""
    body = json.dumps({"word": word, "id": uuid.uuid4().hex, "quote": '"é"'}).encode()
    headers = {"Content-Type": "application/json", "X-Note": uuid.uuid4().hex}
    match then:
        case "return":
            return 201, headers, body
        case "reject":
            return 402, headers, body
        case "fail":
            return 503, headers, body
        case "slow down":
            return 429, headers, body
        case "binary":
            return 200, {**headers, "Content-Type": "application/octet-stream"}, bytes(range(256)) + body
        case "grow":
            return 200, headers, b"x" * 65536
        case _:
            raise RuntimeError("The handler failed.")
