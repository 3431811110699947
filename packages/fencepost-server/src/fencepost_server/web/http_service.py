"""What a service brings to the house."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

from fastapi import APIRouter, Request

Rank = TypeVar("Rank")


@dataclass(frozen=True, slots=True)
class HttpService:
    """A service: its routes, and what runs beside them from before the first request until after the last.

    All of it runs in one event loop. `running` raises when the service cannot start: then nothing does.
    """

    name: str
    router: APIRouter
    running: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
    own_auth_paths: tuple[str, ...] = ()
    """Below these paths the part asks itself who is there: a browser cannot send the house's token."""
    has_accounts: Callable[[], Awaitable[bool]] | None = None
    """Whether people have accounts in this part, who log in from somewhere."""


def has_service(request: Request, name: str) -> bool:
    """Whether the house that answers has this part: pages link to a neighbour only where he is."""
    return name in request.app.state.parts


def pages_for(
    may: Callable[[Rank], bool] | None,
    request: Request,
    pages: Iterable[tuple[str, str, Rank]],
    neighbours: Mapping[str, str],
) -> list[tuple[str, str]]:
    """The pages that somebody may open, with their names; a neighbour's only where that part is."""
    if may is None:
        return []
    return [
        (address, name)
        for address, name, needed in pages
        if may(needed) and (address not in neighbours or has_service(request, neighbours[address]))
    ]
