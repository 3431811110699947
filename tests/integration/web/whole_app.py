"""All services in one application on one address, as `fencepost serve` has them; nothing is sent outside."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fencepost.app import Fencepost
from fencepost.console import account_calls
from fencepost.console.auth import TOKEN_PREFIX
from fencepost.console.http_service import make_service as make_console
from fencepost.console.role import Role
from fencepost.console.settings import ConsoleSettings
from fencepost.embedded import Database
from fencepost.judge.access import OWN_AUTH_PATHS
from fencepost.judge.api import make_router as make_judge
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.kernel.drivers import run
from fencepost.nonces.http_service import make_service as make_nonces
from fencepost.nonces.settings import NoncesSettings
from fencepost.orders.api import make_router as make_orders
from fencepost.orders.broker import Promise
from fencepost.orders.brokers import Broker
from fencepost.orders.operator_calls import BrokerLimits
from fencepost.orders.service import Orders
from fencepost.players.http_service import make_service as make_players
from fencepost.web.app import make_app
from fencepost.web.http_service import HttpService
from fencepost.web.server import WebServer
from fencepost.web.settings import WebSettings
from fencepost.web.signing import digest_of, new_secret
from tests.integration.orders.broker_env import adapter_for

HOUSE_TOKEN = "the-token-of-the-house"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class WholeApp:
    url: str
    description: dict[str, Any]
    database: Database

    def bearer(self, path: str) -> str:
        """A token that opens this door: the console's own, made anew: a request may have revoked the last."""
        if not path.startswith("/api"):
            return f"Bearer {HOUSE_TOKEN}"
        secret = TOKEN_PREFIX + new_secret()
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            run(connection, account_calls.set_user("walker", Role.ADMIN, None, "test"))
            token = account_calls.make_token(
                digest_of(secret), "walker", "test", Role.ADMIN, lifetime_seconds=600
            )
            run(connection, token)
        return f"Bearer {secret}"


@contextmanager
def whole_house(database: Database, folder: Path) -> Generator[WholeApp]:
    fp = Fencepost(database.url)
    judging = Judging(fp, JudgeSettings(workspace=folder / "workspace", store=folder / "store"))
    orders = Orders(fp, {"acme": Broker(adapter_for(NOWHERE, Promise.NOTHING), BrokerLimits())})
    parts = [
        HttpService("judge", make_judge(judging, app_token=HOUSE_TOKEN), own_auth_paths=OWN_AUTH_PATHS),
        make_nonces(fp, NoncesSettings()),
        HttpService("orders", make_orders(orders)),
        make_players(fp),
        make_console(fp, database.viewer_url, loopback=True, settings=ConsoleSettings()),
    ]
    app = make_app(parts, WebSettings(token=HOUSE_TOKEN), ground=lambda: fp)
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    try:
        yield WholeApp(server.url, app.openapi(), database)
    finally:
        server.stop()
