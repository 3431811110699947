"""A whole system whose secrets sing, who goes through every door of it, and every place to listen at."""

from __future__ import annotations

import contextlib
import html
import io
import re
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from fastapi import FastAPI
from psycopg import sql
from starlette.routing import Route

from fencepost.embedded import Database, ValkeyServer
from fencepost.kernel.call import Call
from fencepost.kernel.drivers import run
from fencepost.logs import configure_logging
from fencepost.metrics import Metrics
from fencepost.redis_streams.connection import connect_sync
from fencepost.server_addresses import of_this_directory
from fencepost.settings import Settings
from fencepost_judge._role import ACCOUNTS as JUDGE_ACCOUNTS
from fencepost_judge._role import JudgeRole
from fencepost_server import _web_service as web_service
from fencepost_server.accounts.secret import new_secret
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.web._app import make_app
from tests.security.canary import CanaryServers, canary_of, planted

SAME_MAX = 3
"""Pages of one route that links lead to."""
BY_SESSION = re.compile(r"/$|/(console|api)(/|$)|/judge(/(?!api(/|$))|$)")


@dataclass
class CanaryApp:
    url: str
    app: FastAPI
    logs: io.StringIO
    database: Database
    valkey: ValkeyServer
    redis_url: str
    folder: Path

    def call(self, call: Call[Any]) -> Any:
        with psycopg.connect(self.database.url, autocommit=True) as connection:
            return run(connection, call)

    @contextmanager
    def stranger(self) -> Generator[httpx.Client]:
        with httpx.Client(base_url=self.url, timeout=60) as client:
            yield client

    @contextmanager
    def program(self) -> Generator[httpx.Client]:
        """With the token of the system, which the console does not know."""
        with self.stranger() as client:
            client.headers["authorization"] = f"Bearer {canary_of('HTTP_TOKEN')}"
            yield client

    @contextmanager
    def admin(self) -> Generator[httpx.Client]:
        """A browser that is logged in to the console and to the judge, each as an administrator."""
        ticket, token = new_secret(), JUDGE_ACCOUNTS.token_prefix + new_secret()
        self.call(ACCOUNTS.make_ticket(ticket, "ada", Role.ADMIN, lifetime_seconds=600))
        self.call(JUDGE_ACCOUNTS.set_user("ada", JudgeRole.ADMIN, None, "test", by_service=True))
        self.call(JUDGE_ACCOUNTS.make_token(token, "ada", "test", None, lifetime_seconds=600, actor="test"))
        with self.stranger() as client:
            entered = [
                client.get(f"/console/enter?ticket={ticket}"),
                client.post(
                    "/judge/login",
                    data={"name": "ada", "password": token, "form_token": form_token(client, "/judge/login")},
                ),
            ]
            assert [answer.status_code for answer in entered] == [303, 303]
            client.headers["x-form-token"] = form_token(client, "/console/account")
            yield client

    def routes(self) -> list[Route]:
        """Every route that answers GET, described or not."""
        found = [one for one in routes_of(self.app) if "GET" in (one.methods or ())]
        described = {path for path, methods in self.app.openapi()["paths"].items() if "get" in methods}
        assert described < {one.path_format for one in found}, "there are more than those that are described"
        return found

    def rows(self) -> str:
        """Everything that is stored, as text."""
        with self.database.connect_admin() as admin:
            tables = admin.execute(
                "select schemaname, tablename from pg_tables where schemaname in ('fencepost', 'public')"
            ).fetchall()
            statement = sql.SQL("select t::text from {} t")
            return "\n".join(
                str(row[0])
                for table in tables
                for row in admin.execute(statement.format(sql.Identifier(*table)))
            )

    def keys(self) -> str:
        store: Any = connect_sync(self.redis_url, reply_seconds=10)
        with contextlib.closing(store):
            return repr([(key, store.dump(key)) for key in store.scan_iter()])

    def files(self) -> str:
        return "\n".join(
            path.read_text(errors="replace") for path in self.folder.rglob("*") if path.is_file()
        )

    def places(self) -> dict[str, str]:
        """Whatever stays, wherever it stays. None of it is documented to keep a secret: only the note of a
        `fencepost up` has addresses with their passwords, for its owner alone, and this one has none."""
        return {
            "a row": self.rows(),
            "Redis": self.keys(),
            "the log": self.logs.getvalue(),
            "PostgreSQL's log": self.database.server.log.read_text(errors="replace"),
            "Valkey's log": self.valkey.log.read_text(errors="replace"),
            "a file": self.files(),
        }


@contextmanager
def open_stack(
    ground: CanaryServers, valkey: ValkeyServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Generator[CanaryApp]:
    """As `fencepost serve --with all` has it: settings from the environment, every service, every page."""
    logs, made = io.StringIO(), list[FastAPI]()

    def kept(*arguments: Any, **options: Any) -> FastAPI:
        made.append(make_app(*arguments, **options))
        return made[-1]

    for name, value in planted(ground, folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(web_service, "make_app", kept)
    configure_logging(level="debug", form="json", stream=logs)
    settings = Settings.load()
    server = web_service.web_service(settings, of_this_directory(settings), Metrics(), roles=["all"])
    server.start()
    try:
        yield CanaryApp(server.url, made[0], logs, ground.database, valkey, ground.redis_url, folder)
    finally:
        server.stop()


def routes_of(holder: Any) -> Iterator[Route]:
    """With those of the routers that it includes."""
    for one in holder.routes:
        if isinstance(one, Route):
            yield one
        elif hasattr(one, "original_router"):
            yield from routes_of(one.original_router)


def form_token(client: httpx.Client, page: str) -> str:
    found = re.search(r'name="form-token" content="([^"]+)"', client.get(page).text)
    assert found is not None, page
    return found[1]


def walk(
    stack: CanaryApp, admin: httpx.Client, program: httpx.Client
) -> Iterator[tuple[Route, httpx.Response]]:
    """Every GET route there is, and where the links of its pages lead."""
    routes, seen, looked = stack.routes(), set[str](), Counter[str]()
    waiting = [re.sub(r"\{[^}]+\}", "1", route.path) for route in routes]
    while waiting:
        address = waiting.pop(0)
        path = address.partition("?")[0]
        route = next((one for one in routes if one.path_regex.match(path)), None)
        if route is None or address in seen or looked[route.path] > SAME_MAX:
            continue
        seen.add(address)
        looked[route.path] += 1
        answer = fetch(admin if BY_SESSION.match(path) else program, address)
        yield route, answer
        waiting += [html.unescape(link) for link in re.findall(r'href="(/[^"#]*)', answer.text)]
    assert set(looked) == {route.path for route in routes}


def fetch(client: httpx.Client, address: str) -> httpx.Response:
    """Of a stream, what comes first: it has no end."""
    with client.stream("GET", address) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            first = next(answer.iter_bytes())
            return httpx.Response(
                answer.status_code, headers=answer.headers, content=first, request=answer.request
            )
        answer.read()
        return answer
