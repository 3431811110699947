"""Authentication: identifies the visitor, checks its role and limits the body, before the body is read.

Three kinds of visitors are accepted:

- a user, with a token of the judge;
- the operator, with the token of the server (HTTP_TOKEN), which is accepted everywhere;
- an anonymous request on loopback that the server accepts without a token, as long as the judge has no users.
  Once the first user exists, every request needs a token. `fencepost judge tokens` creates a new one for a
  user that has lost its token.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from fencepost.client import Fencepost
from fencepost.errors import FencepostError, IndeterminateCommit, ServerUnavailable
from fencepost.logs import get_logger
from fencepost_judge._access import ACCESS, Access
from fencepost_judge._role import ACCOUNTS, OPERATOR, JudgeRole, JudgeVisitor, visitor

_log = get_logger(__name__)
ANONYMOUS = "anonymous"
"""The author of an operator's submissions that name no author."""
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Authentication:
    """Identifies the visitor from the credentials in its request."""

    def __init__(self, fp: Fencepost, *, app_token: str | None, source_max_bytes: int) -> None:
        self._fp = fp
        self._app_token = app_token
        self._source_max_bytes = source_max_bytes

    async def visitor(self, authorization: str) -> JudgeVisitor | None:
        scheme, _, given = authorization.partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if given.startswith(ACCOUNTS.token_prefix) and given.isascii():
            return visitor(await self._fp.run(ACCOUNTS.use_token(given)))
        if self._app_token is not None:
            return OPERATOR if hmac.compare_digest(given.encode(), self._app_token.encode()) else None
        # A wrong token is refused; it does not fall back to anonymous access.
        return None if authorization else await self.unasked()

    async def unasked(self) -> JudgeVisitor | None:
        """The operator, if anonymous access is allowed; otherwise None."""
        closed = self._app_token is not None or await self._fp.run(ACCOUNTS.has_users())
        return None if closed else OPERATOR

    async def pass_through(self, request: Request, access: Access) -> Request:
        """The request with its visitor and a bounded body. Raises HTTPException when the visitor is
        refused."""
        visitor = await self.visitor(request.headers.get("authorization", ""))
        if visitor is None:
            raise HTTPException(
                401,
                "Send a judge token: `Authorization: Bearer fpj_…`.",
                {"WWW-Authenticate": "Bearer"},
            )
        return self.admit(request, visitor, access)

    def admit(self, request: Request, visitor: JudgeVisitor, access: Access) -> Request:
        if not visitor.may(access.role):
            raise HTTPException(403, f"This needs the role {access.role.word}; you are {visitor.role.word}.")
        request.state.visitor = visitor
        most = access.bound(self._source_max_bytes)
        if most is None:
            return request
        if int(request.headers.get("content-length") or 0) > most:
            raise _too_large(most)
        return Request(request.scope, _bounded(request.receive, most))


def make_router(authentication: Authentication) -> APIRouter:
    """A router that authenticates each of its routes by the route's entry in the access table."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Handler:
            handle = super().get_route_handler()
            access = ACCESS[line_of(self)]

            async def pass_and_handle(request: Request) -> Response:
                with reasons_withheld(request):
                    return await handle(await authentication.pass_through(request, access))

            return pass_and_handle

    return APIRouter(tags=["judge"], route_class=Guarded)


def told_to(visitor: JudgeVisitor | None, error: FencepostError) -> FencepostError:
    """The error as the visitor may read it. Internal addresses and paths are shown to juries only, and
    logged."""
    if not isinstance(error, ServerUnavailable | IndeterminateCommit):
        return error
    if visitor is not None and visitor.may(JudgeRole.JURY):
        return error
    _log.error("judge_unavailable", error=str(error), kind=type(error).__name__)
    if isinstance(error, IndeterminateCommit):
        return IndeterminateCommit(
            "The connection broke, and the request may have taken effect. Check before you repeat it."
        )
    return ServerUnavailable(
        "The judge cannot reach its database or storage right now. Try again in a minute."
    )


@contextmanager
def reasons_withheld(request: Request) -> Generator[None]:
    """Replaces errors raised in the block by what the visitor may read."""
    try:
        yield
    except (ServerUnavailable, IndeterminateCommit) as error:
        told = told_to(getattr(request.state, "visitor", None), error)
        if told is error:
            raise
        raise told from error


def lines_of(router: APIRouter) -> set[tuple[str, str]]:
    """The entries of the access table for which the router has a route."""
    return {line_of(route) for route in router.routes if isinstance(route, APIRoute)}


def visitor_of(request: Request) -> JudgeVisitor:
    visitor: JudgeVisitor = request.state.visitor
    return visitor


Who = Annotated[JudgeVisitor, Depends(visitor_of)]


def author_of(who: JudgeVisitor, named: str | None) -> str:
    """The author to act for: a jury may name another author, a contestant only itself."""
    own = who.name if who.is_user else ANONYMOUS
    if named is not None and named != own and not who.may(JudgeRole.JURY):
        raise HTTPException(403, f"You are {own}; only a jury may name another author.")
    return named or own


def line_of(route: APIRoute) -> tuple[str, str]:
    (method,) = route.methods or ("",)
    return method, route.path


def _bounded(receive: Receive, most: int) -> Receive:
    """Enforces the limit on chunked bodies too, which do not declare their length."""
    taken = 0

    async def receive_bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise _too_large(most)
        return message

    return receive_bounded


def _too_large(most: int) -> HTTPException:
    return HTTPException(413, f"The body is larger than {most} bytes.")
