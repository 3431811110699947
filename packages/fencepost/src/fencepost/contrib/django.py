"""Idempotent endpoints for Django: what the view writes and its stored answer commit together.

@idempotent(scope="payments")
def pay(request: HttpRequest) -> HttpResponse: ...

On Django's own connection: models write in the transaction of the claim.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, cast

try:
    from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
    from django.core.handlers.exception import response_for_exception
    from django.db import DEFAULT_DB_ALIAS, connections, transaction
    from django.http import Http404, HttpRequest, HttpResponse
    from django.http.response import HttpResponseBase
    from django.template.response import SimpleTemplateResponse
except ImportError as error:
    raise ImportError(
        "fencepost.contrib.django needs Django. Run: pip install django", name=error.name
    ) from error

from fencepost.contrib._idempotent_endpoint import (
    KEY_HEADER,
    Answer,
    KeyedRequest,
    RolledBack,
    identify,
    refused,
    require_final,
)
from fencepost.kernel import idempotency
from fencepost.kernel.drivers import run

P = ParamSpec("P")

__all__ = ["idempotent"]

_ANSWERED_BY_DJANGO = (Http404, PermissionDenied, BadRequest, SuspiciousOperation)
"""The errors that Django answers with 4xx."""


def idempotent(
    *, scope: str | Callable[[HttpRequest], str], require_key: bool = True, using: str = DEFAULT_DB_ALIAS
) -> Callable[
    [Callable[Concatenate[HttpRequest, P], HttpResponseBase]],
    Callable[Concatenate[HttpRequest, P], HttpResponse],
]:
    """A view that takes effect once for each Idempotency-Key, in `atomic()` on the database `using`.

    Keys of different scopes are different keys: where callers must not see each other's answers, `scope` is
    a function that names the caller. Without `require_key`, a request without a key runs each time.
    """

    def decorate(
        view: Callable[Concatenate[HttpRequest, P], HttpResponseBase],
    ) -> Callable[Concatenate[HttpRequest, P], HttpResponse]:
        if inspect.iscoroutinefunction(view):
            raise TypeError(
                f"{view.__name__} is a coroutine function. Django's transactions block: declare the view "
                "with `def`."
            )

        @wraps(view)
        def handle(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
            keyed = identify(
                scope if isinstance(scope, str) else scope(request),
                request.headers.get(KEY_HEADER),
                require_key,
                request.method or "",
                request.path,
                request.META.get("QUERY_STRING", ""),
                request.body,
            )
            if isinstance(keyed, Answer):
                return _response(keyed)
            try:
                return _once(using, keyed, lambda: _whole(view(request, *args, **kwargs)))
            except _ANSWERED_BY_DJANGO as error:
                raised = _whole(response_for_exception(request, error))
            return _once(using, keyed, lambda: raised)

        return cast("Callable[Concatenate[HttpRequest, P], HttpResponse]", handle)

    return decorate


def _once(using: str, keyed: KeyedRequest | None, respond: Callable[[], HttpResponse]) -> HttpResponse:
    """One transaction: the claim, what `respond` writes, and its answer."""
    connection = connections[using]
    try:
        with transaction.atomic(using=using):
            if keyed is not None:
                claim = run(connection, idempotency.claim(keyed.scope, keyed.key, digest=keyed.digest))
                if claim.replayed:
                    return _response(Answer.replayed(claim.response))
                if not claim.claimed:
                    return _response(refused(claim.outcome))
            response = respond()
            answer = Answer(response.status_code, _headers(response), response.content)
            require_final(answer, response)
            if keyed is not None:
                run(connection, idempotency.remember(keyed.scope, keyed.key, answer.stored()))
            return response
    except RolledBack as ended:
        return cast("HttpResponse", ended.response)


def _whole(response: HttpResponseBase) -> HttpResponse:
    if isinstance(response, SimpleTemplateResponse):
        response.render()
    if not isinstance(response, HttpResponse):
        raise TypeError(
            f"{type(response).__name__} cannot be stored. An idempotent view returns its answer whole, as an "
            "HttpResponse and not as a stream or a file. Nothing was written."
        )
    return response


def _headers(response: HttpResponse) -> tuple[tuple[str, str], ...]:
    cookies = (("Set-Cookie", morsel.OutputString()) for morsel in response.cookies.values())
    return (*response.items(), *cookies)


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status)
    del response["Content-Type"]
    for name, value in answer.headers:
        if name == "Set-Cookie":
            response.cookies.load(value)
        else:
            response[name] = value
    return response
