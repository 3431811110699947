"""Makes one application of the HTTP services."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request, Response

from fencepost.metrics_server import Route
from fencepost_server.web._cached_health import CachedHealth
from fencepost_server.web._proxies import Proxied
from fencepost_server.web._security_middleware import OPEN_PATHS, Accounts, SecurityMiddleware, SecurityRules
from fencepost_server.web._tracing_middleware import TracingMiddleware
from fencepost_server.web.authorization import OPEN, AccessTable, Authenticate, Right, Rule, no_accounts
from fencepost_server.web.errors import DESCRIBED, answer_errors_of
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

SERVER = "server"
"""The service of the pages that the server itself has: health, metrics, the description of the API."""
Opening = Callable[[], AbstractAsyncContextManager[object]]


def make_app(
    parts: Iterable[HttpService],
    settings: WebSettings,
    *,
    pages: Mapping[str, Route] | None = None,
    opened_first: Opening | None = None,
    authenticate: Authenticate = no_accounts,
) -> FastAPI:
    """The services, and fixed pages beside them. `opened_first` opens before the services and closes
    after them. `authenticate` identifies the tokens of accounts."""
    parts = tuple(parts)
    openings = ([opened_first] if opened_first else []) + [part.running for part in parts]
    app = FastAPI(
        title="Fencepost",
        version=version("fencepost"),
        lifespan=lambda _: _open(openings),
        # FastAPI's documentation pages load scripts from other hosts.
        docs_url=None,
        redoc_url=None,
        responses=dict(DESCRIBED),
    )
    app.state.parts = frozenset(part.name for part in parts)
    for part in parts:
        app.include_router(part.router)
    own_auth_paths = tuple(prefix for part in parts for prefix in part.own_auth_paths)
    rules = SecurityRules(settings.token, settings.body_max_bytes, own_auth_paths)
    for path, route in (pages or {}).items():
        served = _page(route, CachedHealth(route) if path in OPEN_PATHS else None, rules)
        app.add_api_route(path, served, methods=["GET", "HEAD"], include_in_schema=False)
    answer_errors_of(app)
    app.state.access = access = {**_access_to_pages(app, pages or {}), **dict(_access(parts))}
    table = AccessTable({route: rule for route, rule in access.items() if isinstance(rule, Rule)})
    accounts = Accounts(part.has_accounts for part in parts if part.has_accounts is not None)
    app.add_middleware(
        SecurityMiddleware, rules=rules, accounts=accounts, access=table, authenticate=authenticate
    )
    # Outside of SecurityMiddleware: a request that it refuses has a trace too.
    app.add_middleware(TracingMiddleware)
    # The outermost: all others see the client, and not the proxy.
    app.add_middleware(Proxied, proxies=settings.proxy_networks)
    return app


def _access(parts: Iterable[HttpService]) -> Iterable[tuple[tuple[str, str], Rule | str]]:
    """What each route needs: a rule that the server checks, or a role that the service checks itself."""
    for part in parts:
        for route, needs in part.access.items():
            yield route, Rule(part.name, needs) if isinstance(needs, Right) else needs


def _access_to_pages(app: FastAPI, pages: Iterable[str]) -> dict[tuple[str, str], Rule | str]:
    shown = {path: OPEN if path in OPEN_PATHS else Rule(SERVER, Right.READ) for path in pages}
    shown[str(app.openapi_url)] = Rule(SERVER, Right.READ)
    return {(method, path): needs for path, needs in shown.items() for method in ("GET", "HEAD")}


@asynccontextmanager
async def _open(openings: Iterable[Opening]) -> AsyncGenerator[None]:
    async with AsyncExitStack() as closing:
        for opening in openings:
            await closing.enter_async_context(opening())
        yield


def _page(
    route: Route, cached_health: CachedHealth | None, rules: SecurityRules
) -> Callable[[Request], Response]:
    # Not a coroutine: it reads from the database, and so it runs in a thread.
    def serve(request: Request) -> Response:
        version = request.scope.get("http_version", "1.1")
        page = (
            route()
            if cached_health is None or rules.trusts(request.headers, version)
            else cached_health.page()
        )
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
