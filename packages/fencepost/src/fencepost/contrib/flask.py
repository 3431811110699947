"""Idempotent endpoints for Flask: what the view writes and its stored answer commit together.

@app.post("/payments")
@idempotent(fp, scope="payments")
def pay(tx: SyncTransaction) -> tuple[dict[str, int], int]: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, cast

try:
    from flask import Request, Response, current_app, request
    from werkzeug.exceptions import HTTPException
except ImportError as error:
    raise ImportError(
        "fencepost.contrib.flask needs Flask. Run: pip install flask", name=error.name
    ) from error

from fencepost.client import SyncFencepost
from fencepost.contrib._idempotent_endpoint import (
    KEY_HEADER,
    Answer,
    KeyedRequest,
    RolledBack,
    identify,
    refused,
    require_final,
)
from fencepost.errors import Refusal
from fencepost.transaction import SyncTransaction

P = ParamSpec("P")

__all__ = ["idempotent"]


def idempotent(
    fp: SyncFencepost, *, scope: str | Callable[[Request], str], require_key: bool = True
) -> Callable[[Callable[Concatenate[SyncTransaction, P], Any]], Callable[P, Response]]:
    """A view that takes effect once for each Idempotency-Key. Its first argument is the transaction.

    Keys of different scopes are different keys: where callers must not see each other's answers, `scope` is
    a function that names the caller. Without `require_key`, a request without a key runs each time.
    """

    def decorate(view: Callable[Concatenate[SyncTransaction, P], Any]) -> Callable[P, Response]:
        if inspect.iscoroutinefunction(view):
            raise TypeError(
                f"{view.__name__} is a coroutine function. The transaction of an idempotent view blocks: "
                "declare the view with `def`."
            )

        @wraps(view)
        def handle(*args: P.args, **kwargs: P.kwargs) -> Response:
            keyed = identify(
                scope if isinstance(scope, str) else scope(cast("Any", request)),
                request.headers.get(KEY_HEADER),
                require_key,
                request.method,
                request.path,
                request.query_string.decode("latin-1"),
                request.get_data(),
            )
            if isinstance(keyed, Answer):
                return _response(keyed)

            def respond(tx: SyncTransaction) -> Response:
                return current_app.make_response(view(tx, *args, **kwargs))

            try:
                return _once(fp, keyed, respond)
            except HTTPException as error:
                raised = current_app.make_response(current_app.handle_user_exception(error))
                raised.make_sequence()  # Flask runs the error as an application, whose answer is an iterator.
            return _once(fp, keyed, lambda tx: raised)

        return handle

    return decorate


def _once(
    fp: SyncFencepost, keyed: KeyedRequest | None, respond: Callable[[SyncTransaction], Response]
) -> Response:
    """One transaction: the claim, what `respond` writes, and its answer."""
    try:
        with fp.transaction() as tx:
            if keyed is not None:
                try:
                    claim = tx.claim(keyed.scope, keyed.key, digest=keyed.digest)
                except Refusal as refusal:
                    raise RolledBack(_response(refused(refusal.reason))) from refusal
                if claim.replayed:
                    return _response(Answer.replayed(claim.response))
            response = respond(tx)
            answer = _answer(response)
            require_final(answer, response)
            if keyed is not None:
                fp.idempotency.complete(tx, keyed.scope, keyed.key, answer.stored())
            return response
    except RolledBack as ended:
        return cast("Response", ended.response)


def _answer(response: Response) -> Answer:
    if response.is_streamed or response.direct_passthrough:
        raise TypeError(
            "A streamed response or a file cannot be stored. An idempotent view returns its answer whole. "
            "Nothing was written."
        )
    return Answer(response.status_code, tuple(response.headers.items()), response.get_data())


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.headers.clear()
    for name, value in answer.headers:
        response.headers.add(name, value)
    return response
