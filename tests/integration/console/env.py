"""A console on a socket, and people who use it."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import psycopg
from argon2 import PasswordHasher

from fencepost.client import Fencepost
from fencepost.embedded import Database
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.settings import Settings
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._http_service import make_context, make_router, running
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.console._settings import ConsoleSettings
from fencepost_server.console.context import ConsoleContext
from fencepost_server.web._app import make_app
from fencepost_server.web._server import WebServer
from fencepost_server.web.http_service import HttpService
from fencepost_server.web.settings import WebSettings

T = TypeVar("T")
PASSWORD = "correct horse battery"
YES = {"confirmed": "yes"}
"""What a form sends when its question was answered."""
# As cheap as argon2 can be: these tests are about who may come in, not about how slowly.
CHEAP = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


@dataclass(frozen=True)
class ConsoleEnv:
    """A running console, and the database below it."""

    url: str
    database: Database
    context: ConsoleContext

    def call(self, call: Call[T]) -> T:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return run(connection, call)

    def user(self, role: Role) -> str:
        """A person with this role, known by the role's word."""
        self.call(ACCOUNTS.set_user(role.word, role, CHEAP.hash(PASSWORD), "test", by_service=False))
        return role.word

    def link(self, role: Role) -> str:
        secret = new_secret()
        self.call(ACCOUNTS.make_ticket(secret, role.word, role, lifetime_seconds=60))
        return f"/console/enter?ticket={secret}"

    def token(self, role: Role) -> str:
        secret = ACCOUNTS.token_prefix + new_secret()
        self.call(
            ACCOUNTS.make_token(secret, self.user(role), "test", role, lifetime_seconds=600, actor="test")
        )
        return secret

    @contextmanager
    def stranger(self) -> Generator[httpx.Client]:
        with httpx.Client(base_url=self.url, timeout=30) as client:
            yield client

    @contextmanager
    def visitor(self, role: Role) -> Generator[httpx.Client]:
        """Logged in by a link; `form_token` of the pages is in the header that scripts send."""
        with self.stranger() as client:
            assert client.get(self.link(role)).status_code == 303
            client.headers["x-form-token"] = form_token(client)
            yield client

    @contextmanager
    def program(self, role: Role) -> Generator[httpx.Client]:
        with self.stranger() as client:
            client.headers["authorization"] = f"Bearer {self.token(role)}"
            yield client


def form_token(
    client: httpx.Client, page: str = "/console/account", headers: Mapping[str, str] | None = None
) -> str:
    text = client.get(page, headers=headers).text
    found = re.search(r'name="form-token" content="([^"]+)"', text)
    assert found is not None, text
    return found[1]


def log_in(
    client: httpx.Client, name: str, password: str, *, headers: Mapping[str, str] | None = None, **more: str
) -> httpx.Response:
    """Fill in the form of the login page, and send it."""
    fields = {"name": name, "password": password, **more}
    fields["form_token"] = form_token(client, "/console/login", headers)
    return client.post("/console/login", data=fields, headers=headers)


@contextmanager
def console(
    database: Database,
    settings: ConsoleSettings | None = None,
    web: WebSettings | None = None,
    *,
    data_directory: Path | None = None,
) -> Generator[ConsoleEnv]:
    web = web or WebSettings()
    fp = Fencepost(database.url, settings=Settings(data_directory=data_directory or Path("nowhere")))
    context = make_context(fp, database.viewer_url, settings or ConsoleSettings(look_seconds=0.2))
    part = HttpService(
        "console",
        make_router(context),
        lambda: running(context, loopback=web.is_loopback),
        ("/", "/console", "/api"),
        has_accounts=lambda: fp.run(ACCOUNTS.has_users()),
    )
    server = WebServer(make_app([part], web, opened_first=lambda: fp), address="127.0.0.1", port=0)
    try:
        server.start()
        yield ConsoleEnv(server.url, database, context)
    finally:
        server.stop()
