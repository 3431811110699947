"""All services in one application on one address, as `fencepost serve` has them; nothing is sent outside."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from fencepost.console import people
from fencepost.console.doors import TOKEN_PREFIX
from fencepost.console.part import make_part as make_console
from fencepost.console.role import Role
from fencepost.console.settings import ConsoleSettings
from fencepost.embedded import Database
from fencepost.house import Fencepost
from fencepost.judge.access import OWN_DOORS
from fencepost.judge.api import make_router as make_judge
from fencepost.judge.service import Judging
from fencepost.judge.settings import JudgeSettings
from fencepost.kernel.drivers import run
from fencepost.nonces.part import make_part as make_nonces
from fencepost.nonces.settings import NoncesSettings
from fencepost.orders.api import make_router as make_orders
from fencepost.orders.broker import Promise
from fencepost.orders.brokers import Broker
from fencepost.orders.desk import Strength
from fencepost.orders.service import Orders
from fencepost.players.part import make_part as make_players
from fencepost.web.app import make_app
from fencepost.web.part import Part
from fencepost.web.seal import digest_of, new_secret
from fencepost.web.server import WebServer
from fencepost.web.settings import WebSettings
from tests.integration.orders.trading_floor import adapter_for

HOUSE_TOKEN = "the-token-of-the-house"
NOWHERE = "http://127.0.0.1:1"


@dataclass(frozen=True)
class House:
    url: str
    description: dict[str, Any]
    database: Database

    def bearer(self, path: str) -> str:
        """A token that opens this door: the console's own, made anew: a request may have revoked the last."""
        if not path.startswith("/api"):
            return f"Bearer {HOUSE_TOKEN}"
        secret = TOKEN_PREFIX + new_secret()
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            run(connection, people.set_user("walker", Role.ADMIN, None, "test"))
            token = people.make_token(digest_of(secret), "walker", "test", Role.ADMIN, lifetime_seconds=600)
            run(connection, token)
        return f"Bearer {secret}"


@contextmanager
def whole_house(database: Database, folder: Path) -> Generator[House]:
    fp = Fencepost(database.url)
    judging = Judging(fp, JudgeSettings(workspace=folder / "workspace", store=folder / "store"))
    orders = Orders(fp, {"acme": Broker(adapter_for(NOWHERE, Promise.NOTHING), Strength())})
    parts = [
        Part("judge", make_judge(judging, house_token=HOUSE_TOKEN), own_doors=OWN_DOORS),
        make_nonces(fp, NoncesSettings()),
        Part("orders", make_orders(orders)),
        make_players(fp),
        make_console(fp, database.viewer_url, loopback=True, settings=ConsoleSettings()),
    ]
    app = make_app(parts, WebSettings(token=HOUSE_TOKEN), ground=lambda: fp)
    server = WebServer(app, address="127.0.0.1", port=0)
    server.start()
    try:
        yield House(server.url, app.openapi(), database)
    finally:
        server.stop()
