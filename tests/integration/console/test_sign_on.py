"""Single sign-on, against an OpenID provider for tests that runs as a process of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from fencepost.embedded import Database
from fencepost_server.accounts.calls import audit_entries
from fencepost_server.console._role import ACCOUNTS, Role
from tests.integration.console.env import CHEAP, PASSWORD, ConsoleEnv, console, log_in
from tests.integration.console.oidc_double import ADA, BOB, EVE, FAKE, openid_provider, trusting


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with openid_provider() as url:
        yield url


@pytest.fixture
def env(database: Database, provider: str) -> Iterator[ConsoleEnv]:
    with console(database, trusting(provider)) as env:
        yield env


def go(client: httpx.Client, person: dict[str, Any], wanted: str = "/console/jobs") -> str:
    """Be asked by the provider who is there, and answer; the path and query that it sends the browser to."""
    sent = client.get("/console/login/sso", params={"next": wanted})
    assert sent.status_code == 303, sent.text
    agreed = httpx.post(sent.headers["location"], data={"sub": person["sub"]})
    back = urlsplit(agreed.headers["location"])
    assert (back.scheme, back.netloc) == ("https", "console.example")
    return f"{back.path}?{back.query}"


def test_a_person_that_the_provider_vouches_for_gets_the_role_of_their_groups(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        assert (
            "/console/login/sso?next=%2Fconsole%2Fjobs"
            in client.get("/console/login?next=/console/jobs").text
        )
        answer = client.get(go(client, ADA))
        assert (answer.status_code, answer.headers["location"]) == (303, "/console/jobs")
        assert client.get("/console/jobs").status_code == 200
        assert "ada@house.example" in client.get("/console/account").text
        # An operator, and no more.
        assert client.get("/console/users").status_code == 403
    [login] = env.call(audit_entries(actor="ada@house.example", before=None, limit=10))
    assert (login.action, login.outcome, login.role) == ("login", "done", "operator")


@pytest.mark.parametrize(
    ("person", "why"),
    [(BOB, "None of this person&#39;s groups"), (EVE, "has not verified this address")],
)
def test_a_person_that_it_does_not_vouch_for_is_refused(
    env: ConsoleEnv, person: dict[str, Any], why: str
) -> None:
    with env.stranger() as client:
        answer = client.get(go(client, person))
        assert (answer.status_code, "fencepost_session" in client.cookies) == (403, False)
        assert why in answer.text


def test_the_same_name_at_another_provider_is_another_person(env: ConsoleEnv) -> None:
    env.call(ACCOUNTS.set_user("admin", Role.ADMIN, CHEAP.hash(PASSWORD), "test", by_service=False))
    with env.stranger() as client:
        answer = client.get(go(client, FAKE))
        assert answer.status_code == 403
        assert "Another account has this name" in answer.text
        assert client.get("/console").status_code == 303


def test_an_answer_is_for_the_browser_that_asked(env: ConsoleEnv) -> None:
    with env.stranger() as victim, env.stranger() as attacker:
        # A link that logs the victim in as the attacker, or the attacker with what the victim was given.
        assert victim.get(go(attacker, ADA)).status_code == 403
        go(victim, ADA)
        assert "was not begun here" in victim.get(go(attacker, ADA)).text
        path, _, query = go(attacker, ADA).partition("?")
        code = dict(part.split("=", 1) for part in query.split("&"))["code"]
        own = dict(part.split("=", 1) for part in go(victim, ADA).partition("?")[2].split("&"))
        mixed = victim.get(path, params={"code": code, "state": own["state"]})
        assert mixed.status_code == 403
        assert "answers another login" in mixed.text
        assert "fencepost_session" not in victim.cookies


def test_a_code_lets_in_once(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        way = go(client, ADA)
        login_state = client.cookies["fencepost_login_state"]
        assert client.get(way).status_code == 303
        client.cookies.clear()
        client.cookies.set("fencepost_login_state", login_state)
        assert client.get(way).status_code == 403


def test_a_user_that_was_locked_here_stays_locked(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        client.get(go(client, ADA))
        env.call(ACCOUNTS.disable_user("ada@house.example", "test"))
        assert client.get("/console").status_code == 303
        answer = client.get(go(client, ADA))
        assert answer.status_code == 403
        assert "account is disabled" in answer.text


def test_the_role_is_what_the_provider_says_today(database: Database, provider: str) -> None:
    with console(database, trusting(provider)) as env, env.stranger() as client:
        client.get(go(client, ADA))
    changed = trusting(provider).model_copy(update={"oidc_roles": {"staff": Role.VIEWER}})
    with console(database, changed) as env, env.stranger() as client:
        client.get(go(client, ADA))
        assert [(user.name, user.role) for user in env.call(ACCOUNTS.users(None, 10))] == [
            ("ada@house.example", "viewer")
        ]


def test_a_provider_that_does_not_answer_is_named_and_passwords_still_work(database: Database) -> None:
    with console(database, trusting("http://127.0.0.1:1")) as env:
        env.user(Role.VIEWER)
        with env.stranger() as client:
            answer = client.get("/console/login/sso")
            assert answer.status_code == 403
            assert "The provider does not answer" in answer.text
            assert log_in(client, "viewer", PASSWORD).status_code == 303


def test_a_console_without_it_has_no_such_door(database: Database) -> None:
    with console(database) as env, env.stranger() as client:
        assert client.get("/console/login/sso").status_code == 404
        assert "sso" not in client.get("/console/login").text


def test_the_secret_is_in_no_page_and_no_error(env: ConsoleEnv) -> None:
    with env.stranger() as client, suppress(httpx.HTTPError):
        pages = [client.get("/console/login").text, client.get(go(client, BOB)).text]
        assert all("known to two" not in page for page in pages)
    assert "known to two" not in repr(env.context.settings)
