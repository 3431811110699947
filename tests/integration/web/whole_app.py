"""All services in one application on one address, as `fencepost serve` has them; nothing is sent outside."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from starlette.routing import Route

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost_judge._access import ACCESS, OWN_AUTH_PATHS
from fencepost_judge._api import make_router as make_judge
from fencepost_judge._service import Judging
from fencepost_judge._settings import JudgeSettings
from fencepost_nonces._http_service import make_service as make_nonces
from fencepost_nonces._settings import NoncesSettings
from fencepost_orders._api import ACCESS as ORDERS_ACCESS
from fencepost_orders._api import make_router as make_orders
from fencepost_orders.broker import Promise
from fencepost_orders.brokers import Broker
from fencepost_orders.operator_calls import BrokerLimits
from fencepost_orders.service import Orders
from fencepost_players._http_service import make_service as make_players
from fencepost_server._callers import Callers
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._http_service import make_service as make_console
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings
from tests.integration.orders.broker_env import adapter_for

SERVER_TOKEN = "the-token-of-the-server"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class WholeApp:
    url: str
    description: dict[str, Any]
    database: Database
    access: dict[tuple[str, str], Any]
    """What each method and path needs."""
    routes: set[tuple[str, str]]

    def bearer(self, path: str) -> str:
        """A token that opens this door: the console's own, made anew: a request may have revoked the last."""
        if not path.startswith("/api"):
            return f"Bearer {SERVER_TOKEN}"
        secret = ACCOUNTS.token_prefix + new_secret()
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            run(connection, ACCOUNTS.set_user("walker", Role.ADMIN, None, "test", by_service=False))
            token = ACCOUNTS.make_token(
                secret, "walker", "test", Role.ADMIN, lifetime_seconds=600, actor="test"
            )
            run(connection, token)
        return f"Bearer {secret}"


def served(router: Any) -> Iterator[Any]:
    """Every route of a router. FastAPI keeps those of an included router in that router."""
    for route in router.routes:
        yield from served(route.original_router) if hasattr(route, "original_router") else (route,)


@contextmanager
def whole_app(database: Database, folder: Path) -> Generator[WholeApp]:
    fp = Fencepost(database.url)
    judging = Judging(fp, JudgeSettings(workspace=folder / "workspace", store=folder / "store"))
    orders = Orders(fp, {"acme": Broker(adapter_for(NOWHERE, Promise.NOTHING), BrokerLimits())})
    parts = [
        HttpService(
            "judge",
            make_judge(judging, app_token=SERVER_TOKEN),
            own_auth_paths=OWN_AUTH_PATHS,
            access={route: f"judge {access.role.word}" for route, access in ACCESS.items()},
        ),
        make_nonces(fp, NoncesSettings()),
        HttpService("orders", make_orders(orders), access=ORDERS_ACCESS),
        make_players(fp),
        make_console(fp, database.viewer_url, loopback=True, settings=ConsoleSettings()),
    ]
    app = make_app(
        parts,
        WebSettings(token=SERVER_TOKEN),
        opened_first=lambda: fp,
        authenticate=Callers(fp).authenticate,
    )
    routes = {
        (method, route.path)
        for route in served(app)
        if isinstance(route, Route)
        for method in route.methods or ()
    }
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    try:
        yield WholeApp(server.url, app.openapi(), database, app.state.access, routes)
    finally:
        server.stop()
