"""Idempotent endpoints for FastAPI: what the handler writes and its stored answer commit together.

payments = APIRouter(route_class=idempotent_route(fp, scope="payments"))

@payments.post("/payments", status_code=201)
async def pay(payment: Payment, tx: Tx) -> dict[str, int]: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Annotated, Any, cast

try:
    from fastapi import Depends, Request, Response
    from fastapi.routing import APIRoute
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
except ImportError as error:
    raise ImportError(
        "fencepost.contrib.fastapi needs FastAPI. Run: pip install fastapi", name=error.name
    ) from error

from fencepost.client import Fencepost
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
from fencepost.transaction import Transaction

__all__ = ["Tx", "idempotent_route"]


def _transaction_of(request: Request) -> Transaction:
    return cast("Transaction", request.state.fencepost_tx)


Tx = Annotated[Transaction, Depends(_transaction_of)]
"""The transaction of the request, as a parameter of the handler."""


def idempotent_route(
    fp: Fencepost, *, scope: str | Callable[[Request], str], require_key: bool = True
) -> type[APIRoute]:
    """The class of routes that take effect once for each Idempotency-Key.

    Keys of different scopes are different keys: where callers must not see each other's answers, `scope` is
    a function that names the caller. Without `require_key`, a request without a key runs each time.
    """

    class IdempotentRoute(APIRoute):
        def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
            if not inspect.iscoroutinefunction(endpoint):
                raise TypeError(
                    f"{endpoint.__name__} is no coroutine function. The transaction of an idempotent "
                    "endpoint is awaited: declare the handler with `async def`."
                )
            super().__init__(path, endpoint, **options)

        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def handle(request: Request) -> Response:
                keyed = identify(
                    scope if isinstance(scope, str) else scope(request),
                    request.headers.get(KEY_HEADER),
                    require_key,
                    request.method,
                    request.url.path,
                    request.url.query,
                    await request.body(),
                )
                if isinstance(keyed, Answer):
                    return _response(keyed)

                async def respond(tx: Transaction) -> Response:
                    request.state.fencepost_tx = tx
                    return await handler(request)

                try:
                    return await _once(fp, keyed, respond)
                except HTTPException as error:
                    raised = await _rendered(request, error)

                async def answer(tx: Transaction) -> Response:
                    return raised

                return await _once(fp, keyed, answer)

            return handle

    return IdempotentRoute


async def _once(
    fp: Fencepost, keyed: KeyedRequest | None, respond: Callable[[Transaction], Awaitable[Response]]
) -> Response:
    """One transaction: the claim, what `respond` writes, and its answer."""
    try:
        async with fp.transaction() as tx:
            if keyed is not None:
                try:
                    claim = await tx.claim(keyed.scope, keyed.key, digest=keyed.digest)
                except Refusal as refusal:
                    raise RolledBack(_response(refused(refusal.reason))) from refusal
                if claim.replayed:
                    return _response(Answer.replayed(claim.response))
            response = await respond(tx)
            answer = _answer(response)
            require_final(answer, response)
            if keyed is not None:
                await fp.idempotency.complete(tx, keyed.scope, keyed.key, answer.stored())
            return response
    except RolledBack as ended:
        return cast("Response", ended.response)


async def _rendered(request: Request, error: HTTPException) -> Response:
    """What the application answers for an error that its handler raised."""
    handlers = request.app.exception_handlers
    kinds: list[Any] = [error.status_code, *type(error).__mro__]
    handler = next((handlers[kind] for kind in kinds if kind in handlers), None)
    if handler is None:
        raise error
    if inspect.iscoroutinefunction(handler):
        return cast("Response", await handler(request, error))
    return cast("Response", await run_in_threadpool(handler, request, error))


def _answer(response: Response) -> Answer:
    body = getattr(response, "body", None)
    if not isinstance(body, bytes):
        raise TypeError(
            f"{type(response).__name__} has no body that can be stored. An idempotent endpoint returns its "
            "answer whole, not as a stream or a file. Nothing was written."
        )
    headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers)
    return Answer(response.status_code, headers, body)


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    response.raw_headers = [
        (name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers
    ]
    return response
