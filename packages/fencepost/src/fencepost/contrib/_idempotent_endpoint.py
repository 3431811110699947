"""What an idempotent endpoint decides, without I/O and without a framework.

The frameworks' modules do the I/O: one transaction claims the key, runs the handler and stores its answer.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from fencepost.errors import InvalidInput
from fencepost.kernel.call import document

KEY_HEADER = "Idempotency-Key"
REPLAY_HEADER = "Idempotent-Replayed"
ANSWER_BYTES_MAX = 65536
_KEY = re.compile(r"[\x20-\x7e]{0,254}[\x21-\x7e]")
# They ask for a repeat, so the key must stay free for it.
_TEMPORARY = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes to the client: status, headers in their order, and the bytes of the body."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def is_final(self) -> bool:
        """Stored and replayed. Any other answer rolls the handler's writes back and leaves the key free."""
        return self.status < 500 and self.status not in _TEMPORARY

    def stored(self) -> dict[str, Any]:
        """The answer as the document that is kept with its key."""
        stored: dict[str, Any] = {"status": self.status, "headers": [list(pair) for pair in self.headers]}
        try:
            text = self.body.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" in text:  # PostgreSQL stores no NUL in a text.
            stored["base64"] = base64.b64encode(self.body).decode()
        else:
            stored["body"] = text
        size = len(document("response", stored).encode())
        if size > ANSWER_BYTES_MAX:
            raise InvalidInput(
                f"The answer of an idempotent endpoint takes {size} bytes with its headers, and at most "
                f"{ANSWER_BYTES_MAX} can be stored. Nothing was written, and the key is free. Return a "
                "smaller answer, such as an id by which the client can ask for the rest.",
                field="response",
            )
        return stored

    @classmethod
    def replayed(cls, stored: Any) -> Answer:
        """The stored answer again, with a header that says so."""
        body = base64.b64decode(stored["base64"]) if "base64" in stored else stored["body"].encode()
        headers = tuple((name, value) for name, value in stored["headers"])
        return cls(stored["status"], (*headers, (REPLAY_HEADER, "true")), body)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with an idempotency key."""

    scope: str
    key: str
    digest: str


class RolledBack(Exception):
    """Leaves the transaction, so that nothing of it commits; its response goes to the client."""

    def __init__(self, response: Any) -> None:
        super().__init__("The transaction was rolled back.")
        self.response = response


def require_final(answer: Answer, response: object) -> None:
    """Leave the transaction with the framework's response where its answer is not to be stored."""
    if not answer.is_final:
        raise RolledBack(response)


def identify(
    scope: str, key: str | None, require_key: bool, method: str, path: str, query: str, body: bytes
) -> KeyedRequest | Answer | None:
    """The request by its key; an answer where the key is missing or wrong; None where none is required."""
    if key is None:
        return _problem(400, "missing_key", f"Send a header {KEY_HEADER}.") if require_key else None
    if not _KEY.fullmatch(key):
        return _problem(400, "invalid_key", f"{KEY_HEADER} has 1 to 255 printable ASCII characters.")
    # The line break separates: JSON contains none.
    content = json.dumps([method, path, query]).encode() + b"\n" + body
    return KeyedRequest(scope, key, "sha256:" + hashlib.sha256(content).hexdigest())


def refused(outcome: str) -> Answer:
    """The answer for a claim that is neither claimed nor a replay."""
    match outcome:
        case "in_flight":
            message = "A request with this key is in progress. Repeat it shortly."
            return _problem(409, outcome, message, ("Retry-After", "1"))
        case "mismatch":
            return _problem(422, outcome, "This key was used for another request. Use a new key.")
        case _:
            return _problem(409, outcome, "This request took effect before, and its answer was not stored.")


def _problem(status: int, error: str, message: str, *headers: tuple[str, str]) -> Answer:
    body = json.dumps({"error": error, "message": message}).encode()
    length = ("Content-Length", str(len(body)))
    return Answer(status, (("Content-Type", "application/json"), length, *headers), body)
