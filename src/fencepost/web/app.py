"""One application out of the services' parts."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Response

from fencepost.endpoint import Route
from fencepost.web.answers import DESCRIBED, answer_errors_of
from fencepost.web.guard import Guard, Rules
from fencepost.web.part import Part
from fencepost.web.settings import WebSettings
from fencepost.web.traced import Traced

Opening = Callable[[], AbstractAsyncContextManager[object]]


def make_app(
    parts: Iterable[Part],
    settings: WebSettings,
    *,
    pages: Mapping[str, Route] | None = None,
    ground: Opening | None = None,
) -> FastAPI:
    """The services, and fixed pages beside them. `ground` is opened before the services and closed after."""
    parts = tuple(parts)
    openings = ([ground] if ground else []) + [part.running for part in parts]
    app = FastAPI(
        title="Fencepost",
        version=version("fencepost"),
        lifespan=lambda _: _open(openings),
        # Their pages load scripts from hosts that are not ours.
        docs_url=None,
        redoc_url=None,
        responses=dict(DESCRIBED),
    )
    app.state.parts = frozenset(part.name for part in parts)
    for part in parts:
        app.include_router(part.router)
    for path, route in (pages or {}).items():
        app.add_api_route(path, _page(route), methods=["GET", "HEAD"], include_in_schema=False)
    answer_errors_of(app)
    own_doors = tuple(door for part in parts for door in part.own_doors)
    app.add_middleware(Guard, rules=Rules(settings.token, settings.body_max_bytes, own_doors))
    # The outermost: a request that the guard refuses has a trace too.
    app.add_middleware(Traced)
    return app


@asynccontextmanager
async def _open(openings: Iterable[Opening]) -> AsyncGenerator[None]:
    async with AsyncExitStack() as closing:
        for opening in openings:
            await closing.enter_async_context(opening())
        yield


def _page(route: Route) -> Callable[[], Response]:
    # Not a coroutine: it reads from the database, and so it runs in a thread.
    def serve() -> Response:
        page = route()
        return Response(
            page.body,
            page.status,
            media_type=page.content_type,
            headers={
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
            },
        )

    return serve
