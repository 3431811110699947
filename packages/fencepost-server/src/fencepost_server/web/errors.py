"""The shape of errors over HTTP: the same for every service.

    {"code": "mismatch", "message": "...", "field": "quantity"}

`code` is for programs and stable; for a refusal it is the reason. `field` is present when one field is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from html import escape
from math import ceil
from typing import Any, cast
from urllib.parse import parse_qsl, unquote

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from fencepost.errors import (
    Backpressure,
    FencepostError,
    IndeterminateCommit,
    InFlight,
    InvalidInput,
    Mismatch,
    NotFound,
    Refusal,
    Rewound,
    SchemaError,
    ServerUnavailable,
    TooOld,
)
from fencepost.logs import LogLimiter, get_logger

RETRY_SECONDS = 1
STATUSES: Sequence[tuple[type[FencepostError], int, str]] = (
    (InvalidInput, 400, "invalid_input"),
    (NotFound, 404, NotFound.reason),
    (Mismatch, 422, Mismatch.reason),
    (TooOld, 422, TooOld.reason),
    # Nothing is done until the database was recovered.
    (Rewound, 503, Rewound.reason),
    (Refusal, 409, ""),
    (Backpressure, 429, "backpressure"),
    # The outcome is unknown, not failed: the same request with the same key settles it.
    (IndeterminateCommit, 503, "indeterminate"),
    (SchemaError, 503, "schema"),
    (ServerUnavailable, 503, "unavailable"),
    (FencepostError, 500, "failed"),
)
"""The first match decides. A refusal's code is its reason."""

ECHO_MAX = 200
MESSAGE_MAX = 600
_LONG = re.compile(rf"\S{{{ECHO_MAX + 1},}}|'[^']{{{ECHO_MAX},}}'|\"[^\"]{{{ECHO_MAX},}}\"")
RETRIED = (InFlight, Backpressure, IndeterminateCommit, ServerUnavailable)
_TITLES = {
    401: "Sign in required",
    403: "Forbidden",
    404: "Not found",
    405: "Method not allowed",
    413: "Too large",
    429: "Too many requests",
}
HTTP_CODES = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
}


class ErrorBody(BaseModel):
    """The body of every refusal and every failure."""

    code: str
    message: str
    field: str | None = None


DESCRIBED: Mapping[int | str, dict[str, Any]] = {
    "default": {"model": ErrorBody, "description": "Refused or failed: `code` says why, for programs."}
}
"""For the description of the API: the default error response of every operation."""


def status_of(error: FencepostError) -> tuple[int, str]:
    """The HTTP status and the code of an error."""
    status, code = next((status, code) for kind, status, code in STATUSES if isinstance(error, kind))
    return status, code or getattr(error, "reason", "refused")


def brief(message: str, request: Request | None = None) -> str:
    """Shorten a message that repeats long input: no word, no quoted piece and nothing of the request is
    longer than 200 characters, and the whole is a few sentences."""
    short = _LONG.sub(lambda found: found[0][:ECHO_MAX] + "…", message)
    if request is not None and len(short) > ECHO_MAX:
        for given in _texts_of(request):
            short = _cut(short, given)
    return short if len(short) <= MESSAGE_MAX else short[:MESSAGE_MAX] + "…"


def _cut(message: str, given: str) -> str:
    """The message with at most 200 characters of a text that it repeats."""
    at = message.find(given[: ECHO_MAX + 1]) if len(given) > ECHO_MAX else -1
    if at < 0:
        return message
    end = at
    while end < min(len(message), at + len(given)) and message[end] == given[end - at]:
        end += 1
    return f"{message[: at + ECHO_MAX]}…{message[end:]}"


def _texts_of(request: Request) -> Iterator[str]:
    """Every text that the request contains, as far as it was read."""
    yield from (request.url.path, unquote(request.url.path), unquote(request.url.query))
    yield from map(str, request.path_params.values())
    yield from request.query_params.values()
    yield from request.headers.values()
    body: bytes = getattr(request, "_body", b"")
    text = body.decode(errors="replace")
    yield text
    yield from (part for pair in parse_qsl(text, max_num_fields=None) for part in pair)
    with suppress(ValueError, RecursionError):
        yield from _texts_in(json.loads(body))


def _texts_in(document: Any) -> Iterator[str]:
    match document:
        case str():
            yield document
        case dict():
            for name, value in cast("dict[str, Any]", document).items():
                yield name
                yield from _texts_in(value)
        case list():
            for value in cast("Sequence[Any]", document):
                yield from _texts_in(value)
        case _:
            pass


def failure(
    status: int,
    code: str,
    message: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
    request: Request | None = None,
) -> Response:
    """The body of an error, in the shape that every service uses."""
    shown = None if field is None else brief(field, request)
    if request is not None and _wants_page(request):
        return _page(status, brief(message, request), headers or {})
    body = {"code": code, "message": brief(message, request), "field": shown}
    return JSONResponse(
        {name: value for name, value in body.items() if value is not None},
        status,
        headers=dict(headers or {}),
    )


def _wants_page(request: Request) -> bool:
    """A person at a browser, which names text/html first; programs and the paths of the APIs get JSON."""
    accepted = request.headers.get("accept", "").partition(",")[0].strip()
    return accepted == "text/html" and "/api/" not in f"{request.url.path}/"


def _page(status: int, message: str, headers: Mapping[str, str]) -> Response:
    """An error that no page of a service answers. It needs no style and no script."""
    title = f"{status} {_TITLES.get(status, 'Refused' if status < 500 else 'Failed')}"
    body = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{title} · Fencepost</title><meta name="color-scheme" content="light dark"></head>'
        f'<body><main><h1>{title}</h1><p>{escape(message)}</p><p><a href="/">To the start page</a></p></main>'
        "</body></html>"
    )
    policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return HTMLResponse(body, status, headers={**headers, "Content-Security-Policy": policy})


def answer_errors_of(app: FastAPI) -> None:
    """Give the errors of every route of the application the same shape."""
    app.add_exception_handler(FencepostError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_http)
    app.add_exception_handler(ClientDisconnect, _of_a_client_that_left)
    app.add_exception_handler(Exception, _BugAnswers())


async def _of_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, FencepostError)
    status, code = status_of(error)
    headers = {"Retry-After": str(_wait_of(error))} if isinstance(error, RETRIED) else {}
    field = getattr(error, "field", None)
    return failure(status, code, str(error), field=field, headers=headers, request=request)


def _wait_of(error: FencepostError) -> int:
    """Whole seconds until the same request has a chance, as far as it is known."""
    known = getattr(error, "retry_seconds", None)
    return RETRY_SECONDS if known is None else max(RETRY_SECONDS, ceil(known))


async def _of_validation(request: Request, error: Exception) -> Response:
    """The first wrong field, by name. Never its value: that may be a secret, or a megabyte."""
    assert isinstance(error, RequestValidationError)
    detail: Mapping[str, Any] = error.errors()[0]
    if detail["type"] == "json_invalid":
        return failure(400, "invalid_input", "The body is not JSON.", field="body", request=request)
    field = ".".join(str(part) for part in detail["loc"][1:]) or str(detail["loc"][0])
    return failure(400, "invalid_input", f"{field}: {detail['msg']}.", field=field, request=request)


async def _of_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = HTTP_CODES.get(error.status_code, "failed")
    return failure(error.status_code, code, str(error.detail), headers=error.headers, request=request)


async def _of_a_client_that_left(request: Request, error: Exception) -> Response:
    """The client left before its body was complete, or was too slow: no failure of ours, and no one reads the
    answer."""
    return failure(400, "incomplete", "The request was not complete.")


class _BugAnswers:
    """Answers an unexpected exception: the log has its reason, at most a few times in ten seconds."""

    def __init__(self) -> None:
        self._log_limiter = LogLimiter()

    async def __call__(self, request: Request, error: Exception) -> Response:
        log, kind = get_logger(__name__), type(error).__name__
        self._log_limiter.log(log.error, "request_failed", kind=kind, path=request.url.path, exc_info=error)
        return failure(500, "failed", "Failed; the reason is in the log.", request=request)
