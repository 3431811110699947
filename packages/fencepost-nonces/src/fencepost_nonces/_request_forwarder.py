"""Handles a request that came to the wrong node: returns the owner's address, or forwards it there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from fencepost import http_client
from fencepost.errors import Refusal
from fencepost.http_client import HttpClient, MaybeSent, NotSent
from fencepost_nonces._errors import SignerElsewhere
from fencepost_nonces._nonce_calls import URL_BEGINS

BODY_BYTES_MAX = 1 << 24
FORWARDED = "x-fencepost-forwarded"
_CARRIED = ("content-type", "authorization")
_RETURNED = ("content-type", "retry-after")


class RequestForwarder:
    """Forwards requests to other nodes, over connections that it keeps."""

    def __init__(self, *, seconds: float) -> None:
        self._client = HttpClient(reply_seconds=seconds, body_bytes_max=BODY_BYTES_MAX)

    async def carry(self, request: Request, address: str) -> Response:
        headers = {name: request.headers[name] for name in _CARRIED if name in request.headers}
        # Forwarded only once: two nodes that disagree about the home must not forward it in a loop.
        headers[FORWARDED] = "1"
        url = address.rstrip("/") + request.url.path
        forwarded = http_client.Request(request.method, url, headers, await request.body())
        reply = await self._client.exchange(forwarded)
        kept = {name: reply.headers[name] for name in _RETURNED if name in reply.headers}
        return Response(reply.body, reply.status, headers=kept)

    async def close(self) -> None:
        await self._client.close()


def elsewhere(owner: str | None, message: str, retry_seconds: float) -> JSONResponse:
    """409 with the owner and Retry-After: nothing was written."""
    body = {"code": "not_owner", "message": message, "owner": owner}
    return JSONResponse(body, 409, headers={"Retry-After": str(max(1, round(retry_seconds)))})


def route_class(forwarder: RequestForwarder | None) -> type[APIRoute]:
    """A route class that forwards or refuses requests for a signer that another node holds."""

    class SignerRoute(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
            handle: Callable[[Request], Any] = super().get_route_handler()

            async def routed(request: Request) -> Response:
                try:
                    answer: Response = await handle(request)
                except SignerElsewhere as error:
                    if forwarder is not None and _may_be_carried(request, error.owner):
                        return await _carried(forwarder, request, error)
                    return elsewhere(error.owner, str(error), error.retry_seconds)
                except Refusal as refusal:
                    if refusal.noun != "lease":
                        raise
                    return elsewhere(refusal.seen.get("owner"), str(refusal), 1)
                return answer

            return routed

    return SignerRoute


def _may_be_carried(request: Request, owner: str | None) -> bool:
    return FORWARDED not in request.headers and owner is not None and owner.startswith(URL_BEGINS)


async def _carried(forwarder: RequestForwarder, request: Request, error: SignerElsewhere) -> Response:
    try:
        return await forwarder.carry(request, error.owner or "")
    except (NotSent, MaybeSent):
        # It may have reached the other node: the same request with the same id settles it.
        return JSONResponse(
            {"code": "unavailable", "message": f"{error.owner} does not answer.", "owner": error.owner},
            503,
            headers={"Retry-After": "1"},
        )
