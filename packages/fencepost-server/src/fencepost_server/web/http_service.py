"""What a service provides to the HTTP server."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.routing import Route

from fencepost_server.web.authorization import Right

Rank = TypeVar("Rank")


@dataclass(frozen=True, slots=True)
class HttpService:
    """A service: its routes, what they need, and the work that it executes by itself.

    `running` is open from before the first request until after the last, in every process that serves it. It
    answers, deletes what is old and keeps figures, and executes nothing. It raises when the service cannot
    start: then the server does not start. `working` is the work of the role that has the service's name; it
    is open inside `running`, in processes with that role only. All of it runs in one event loop.
    """

    name: str
    router: APIRouter
    running: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    own_auth_paths: tuple[str, ...] = ()
    """Below these paths the service authenticates requests itself: a browser cannot send the server's
    token."""
    has_accounts: Callable[[], Awaitable[bool]] | None = None
    """Whether this service has user accounts that can log in."""
    access: Mapping[tuple[str, str], Right | str] = field(default_factory=dict[tuple[str, str], Any])
    """What each method and path needs: a right, which the server checks; or the word of a role, which the
    service checks itself below its `own_auth_paths`. A route that is missing here needs HTTP_TOKEN."""
    working: Callable[[], AbstractAsyncContextManager[object]] | None = None
    """The work of its role; None for a service that only answers."""

    @asynccontextmanager
    async def running_and_working(self) -> AsyncGenerator[None]:
        """What a process with the role opens."""
        async with self.running(), (self.working or nullcontext)():
            yield


def access_of(router: APIRouter, changes: Right) -> dict[tuple[str, str], Right | str]:
    """Rules for a service whose every GET reads and whose every other method changes something."""
    return {
        (method, route.path): Right.READ if method in {"GET", "HEAD"} else changes
        for route in router.routes
        if isinstance(route, Route)
        for method in route.methods or ()
    }


def has_service(request: Request, name: str) -> bool:
    """Whether the server has this service: pages link to another service only where it is present."""
    return name in request.app.state.parts


def pages_for(
    may: Callable[[Rank], bool] | None,
    request: Request,
    pages: Iterable[tuple[str, str, Rank]],
    neighbours: Mapping[str, str],
) -> list[tuple[str, str]]:
    """The pages that a user may open, with their names; a page of another service only where it is
    present."""
    if may is None:
        return []
    return [
        (address, name)
        for address, name, needed in pages
        if may(needed) and (address not in neighbours or has_service(request, neighbours[address]))
    ]
