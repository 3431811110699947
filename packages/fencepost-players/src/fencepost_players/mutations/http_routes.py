"""The error contract over HTTP: every mutation's route, and the body and status of each error.

    {"code": "aborted", "msg": "The request is under way.", "meta": {"reason": "pending"}}

A declaration becomes two routes: Twirp's, with the request id in the body or the header, and a REST one.
Twirp's accepts and returns protobuf too (`mutations/_proto.py`); its errors are still JSON, as Twirp defines.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, cast

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

from fencepost.errors import FencepostError
from fencepost.logs import get_logger
from fencepost_players.mutations._execution import explained
from fencepost_players.mutations._proto import MEDIA_TYPE, Codec
from fencepost_players.mutations.errors import (
    BadRoute,
    Internal,
    InvalidArgument,
    MutationError,
    Unimplemented,
)
from fencepost_players.mutations.pipeline import MutationAnswer
from fencepost_players.mutations.planning import Mutation
from fencepost_server.web.authorization import actor_of
from fencepost_server.web.errors import brief

HEADER = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
_log = get_logger(__name__)


class Perform(Protocol):
    """How a service performs one declared mutation."""

    def __call__(
        self, mutation: Mutation[Any, Any, Any], request: BaseModel, request_id: str | None, actor: str, /
    ) -> Awaitable[MutationAnswer]: ...


class Told(BaseModel):
    """An error in Twirp's form."""

    code: str
    msg: str
    meta: dict[str, str] = {}


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": Told, "description": description}
    for status, description in (
        (400, "invalid_argument: the request is wrong; nothing was written"),
        (404, "not_found: an object that it names does not exist"),
        (409, "aborted: send it again; already_exists: it committed, read the state"),
        (412, "failed_precondition: the present state does not allow it"),
        (422, "invalid_argument, reason mismatch: the request id belongs to another request"),
        (503, "unavailable: repeat the same request with the same id"),
    )
}


class ContractRoute(APIRoute):
    """A route whose errors follow the contract."""

    is_twirp = False

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, whose errors have the shape of this API."""
        handle = super().get_route_handler()

        async def keep_contract(request: Request) -> Response:
            try:
                return await handle(request)
            except (FencepostError, RequestValidationError, ValidationError) as error:
                return failure(_meant(error), request, is_twirp=self.is_twirp)
            except Exception as error:
                # Starlette's own responses (404, 413) stay as they are.
                if hasattr(error, "status_code"):
                    raise
                _log.error("mutation_failed", path=request.url.path, exc_info=error)
                reported = Internal("Failed; the reason is in the log.")
                return failure(reported, request, is_twirp=self.is_twirp)

        return keep_contract


class MutationRoute(ContractRoute):
    """The REST route of one declared mutation, named by `mutation`: a test checks every POST for it."""

    mutation: Mutation[Any, Any, Any]


class TwirpRoute(MutationRoute):
    """The same under Twirp's path, with Twirp's statuses."""

    is_twirp = True


def failure(error: MutationError, request: Request | None = None, *, is_twirp: bool) -> JSONResponse:
    """The answer for an error, in Twirp's shape or REST's, with `Retry-After` where it helps."""
    headers: dict[str, str] = {}
    if error.is_retryable:
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_seconds or 0)))
    status = error.status if is_twirp else error.rest_status
    return JSONResponse(error.body(lambda text: brief(text, request)), status, headers=headers)


def add_mutation(
    router: APIRouter,
    mutation: Mutation[Any, Any, Any],
    *,
    rest_path: str,
    twirp_path: str,
    perform: Perform,
    codec: Codec | None = None,
) -> None:
    """Add both routes of a declaration. Without a codec bodies in protobuf are refused."""
    for path, kind in ((rest_path, MutationRoute), (twirp_path, TwirpRoute)):
        by_twirp = _endpoint_of_twirp(mutation, perform, codec)
        router.add_api_route(
            path,
            by_twirp if kind is TwirpRoute else _endpoint(mutation, perform),
            methods=["POST"],
            name=mutation.method,
            summary=mutation.summary,
            route_class_override=_route_class(kind, mutation),
            responses=ERRORS,
            openapi_extra=_described(mutation, path),
        )


def _route_class(kind: type[MutationRoute], mutation: Mutation[Any, Any, Any]) -> type[MutationRoute]:
    return type(f"{mutation.method}Route", (kind,), {"mutation": mutation})


def _described(mutation: Mutation[Any, Any, Any], path: str) -> dict[str, Any]:
    """The request for OpenAPI: the model without its path parameters, and with the request id."""
    schema = _whole(mutation.request.model_json_schema())
    for name in [name for name in schema["properties"] if f"{{{name}}}" in path]:
        del schema["properties"][name]
        schema["required"] = [other for other in schema.get("required", ()) if other != name]
    schema["properties"]["request_id"] = {"type": "string", "description": f"or the header {HEADER}"}
    # Path parameters are described by the path's own declaration.
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _whole(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its definitions inlined: a reference would resolve against the OpenAPI document."""
    parts: dict[str, Any] = schema.pop("$defs", {})

    def put(value: Any) -> Any:
        if isinstance(value, list):
            return [put(one) for one in cast("Sequence[Any]", value)]
        if not isinstance(value, dict):
            return value
        found = cast("dict[str, Any]", value)
        if "$ref" in found:
            return put(parts[str(found["$ref"]).rpartition("/")[2]])
        return {name: put(one) for name, one in found.items()}

    whole: dict[str, Any] = put(schema)
    return whole


def add_bad_routes(router: APIRouter, prefix: str) -> None:
    """Answer every other path under Twirp's prefix with Twirp's bad_route. Must be added last."""

    async def answer(request: Request) -> Response:
        asked = f"{request.method} {request.url.path}"
        error = BadRoute(f"There is no method {asked}.", twirp_invalid_route=asked)
        return failure(error, request, is_twirp=True)

    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
    router.add_route(f"{prefix}/{{rest:path}}", answer, methods=methods, include_in_schema=False)


def _endpoint(mutation: Mutation[Any, Any, Any], perform: Perform) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        return _in_json(await _perform(mutation, perform, request, await _body(request)))

    return endpoint


def _endpoint_of_twirp(
    mutation: Mutation[Any, Any, Any], perform: Perform, codec: Codec | None
) -> Callable[..., Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
            return _in_json(await _perform(mutation, perform, request, await _body(request)))
        if codec is None:
            raise Unimplemented("Bodies in protobuf need the extra fencepost[twirp] to be installed.")
        body = codec.decode(mutation.method, await request.body())
        answer = await _perform(mutation, perform, request, body)
        return Response(codec.encode(answer.response), headers=_headers(answer), media_type=MEDIA_TYPE)

    return endpoint


async def _perform(
    mutation: Mutation[Any, Any, Any], perform: Perform, request: Request, body: dict[str, Any]
) -> MutationAnswer:
    request_id = _request_id(request, body)
    # Path parameters are part of the request, as if they were in the body.
    asked = mutation.request.model_validate({**body, **request.path_params})
    return await perform(mutation, asked, request_id, actor_of(request))


def _in_json(answer: MutationAnswer) -> Response:
    # The stored text, not rendered again: a repeat has the same bytes.
    return Response(answer.body, headers=_headers(answer), media_type="application/json")


def _headers(answer: MutationAnswer) -> dict[str, str]:
    return {REPLAYED: "true"} if answer.is_replay else {}


def _request_id(request: Request, body: dict[str, Any]) -> str | None:
    in_body, in_header = body.pop("request_id", None), request.headers.get(HEADER)
    if in_body is not None and not isinstance(in_body, str):
        raise InvalidArgument("request_id must be a string.", argument="request_id")
    if in_body is not None and in_header is not None and in_body != in_header:
        raise InvalidArgument(f"request_id and the header {HEADER} differ.", argument="request_id")
    # A blank id does not count as a missing one: its sender believes that the request is protected.
    return in_header if in_body is None else in_body


async def _body(request: Request) -> dict[str, Any]:
    try:
        body: Any = await request.json()
    except (ValueError, RecursionError):
        raise InvalidArgument("The body is not JSON.", argument="body") from None
    if not isinstance(body, dict):
        raise InvalidArgument("The body must be an object.", argument="body")
    return cast("dict[str, Any]", body)


def _meant(error: Exception) -> MutationError:
    if isinstance(error, RequestValidationError | ValidationError):
        return _invalid(error.errors()[0])
    return explained(error)


def _invalid(detail: Mapping[str, Any]) -> InvalidArgument:
    """Names the first wrong field. Never includes its value: that may be a secret, or a megabyte."""
    field = ".".join(str(part) for part in detail["loc"]) or "body"
    return InvalidArgument(f"{field}: {detail['msg'].removeprefix('Value error, ')}.", argument=field)
