"""Behind a proxy: whose address counts, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest

from fencepost.embedded import Database
from fencepost_server.console._role import ACCOUNTS, Role
from fencepost_server.web.settings import WebSettings
from tests.integration.console.env import ConsoleEnv, console, log_in

TOKEN = "the-token-of-the-server"
LOGIN = {"name": "nobody", "password": "wrong"}


@pytest.fixture
def named(database: Database) -> Iterator[ConsoleEnv]:
    """Loopback is a proxy here."""
    with console(database, web=WebSettings(token=TOKEN, proxies="127.0.0.1")) as env:
        yield env


@pytest.fixture
def unnamed(database: Database) -> Iterator[ConsoleEnv]:
    with console(database, web=WebSettings(token=TOKEN)) as env:
        yield env


def addresses(env: ConsoleEnv) -> set[str]:
    with psycopg.connect(env.database.admin_url) as connection:
        return {row[0] for row in connection.execute("select address from fencepost.account_attempt")}


def test_an_unnamed_proxy_is_not_believed(unnamed: ConsoleEnv) -> None:
    """With no account there is nothing to forge, and the header is ignored."""
    with unnamed.stranger() as client:
        said = log_in(client, **LOGIN, headers={"x-forwarded-for": "203.0.113.9"})
        assert said.status_code == 403
        assert "Name or password is wrong" in said.text
    assert addresses(unnamed) == {"127.0.0.1"}


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-forwarded-proto", "x-real-ip"])
def test_with_an_account_it_is_refused_and_told_what_to_set(unnamed: ConsoleEnv, name: str) -> None:
    with unnamed.visitor(Role.ADMIN) as client:
        assert client.get("/console").status_code == 200
        said = client.get("/console", headers={name: "203.0.113.9"})
        assert (said.status_code, said.json()["code"]) == (403, "forbidden")
        assert "HTTP_PROXIES" in said.json()["message"]
        assert client.get("/console").status_code == 200


def test_the_limit_of_logins_counts_the_client_behind_a_named_proxy(named: ConsoleEnv) -> None:
    with named.stranger() as client:
        for number in range(50):
            named.call(ACCOUNTS.begin_login(f"n{number}", "203.0.113.9", window_seconds=900))
        over = log_in(client, **LOGIN, headers={"x-forwarded-for": "1.2.3.4, 203.0.113.9"})
        other = log_in(client, **LOGIN, headers={"x-forwarded-for": "203.0.113.10"})
    assert (over.status_code, other.status_code) == (429, 403)
    assert addresses(named) == {"203.0.113.9", "203.0.113.10"}


def test_over_https_at_the_proxy_cookies_are_secure(named: ConsoleEnv) -> None:
    with named.stranger() as client:
        link = urlsplit(named.link(Role.VIEWER))
        forwarded = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https"}
        entered = client.get(f"{link.path}?{link.query}", headers=forwarded)
        assert "; Secure" in entered.headers["set-cookie"]


def test_without_a_token_nothing_that_was_forwarded_is_served(database: Database) -> None:
    with console(database) as env, env.stranger() as client:
        for path in ("/console/login", "/api/overview", "/openapi.json"):
            said = client.get(path, headers={"x-forwarded-for": "203.0.113.9"})
            assert said.status_code == 403, path
            assert "HTTP_TOKEN" in said.json()["message"]
        assert client.get("/openapi.json").status_code == 200


def test_the_audit_has_the_client_and_not_what_it_invents(named: ConsoleEnv) -> None:
    with named.stranger() as client:
        link = urlsplit(named.link(Role.ADMIN))
        client.get(f"{link.path}?{link.query}", headers={"x-forwarded-for": "10.9.9.9, 203.0.113.9"})
        audit = httpx.get(
            f"{named.url}/api/audit",
            headers={"authorization": f"Bearer {named.token(Role.ADMIN)}", "x-forwarded-for": "203.0.113.9"},
        )
    used = [line for line in audit.json()["entries"] if line["action"] == "link.use"]
    assert {line["address"] for line in used} == {"203.0.113.9"}
