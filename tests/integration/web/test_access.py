"""The authorization table: every route of every service, and every kind of caller."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from fencepost.embedded import Database
from fencepost.kernel.drivers import run
from fencepost_server.accounts.programs import programs_of
from fencepost_server.console._role import Role
from fencepost_server.web.authorization import OPEN, Right, Rule
from tests.integration.web.tokens import program_token, user_token
from tests.integration.web.whole_app import SERVER_TOKEN, WholeApp, whole_app

WITH_PROGRAMS = ("orders", "players", "nonces")
OPERATOR = Right.READ | Right.DECIDE
PROGRAM = Right.READ | Right.SUBMIT
Route = tuple[str, str]


@pytest.fixture
def site(database: Database, tmp_path: Path) -> Iterator[WholeApp]:
    with whole_app(database, tmp_path) as site:
        yield site


def address(path: str) -> str:
    """A path whose parts name nothing."""
    return re.sub(r"\{[^}]+\}", "999999", path)


def statuses(site: WholeApp, token: str | None, routes: dict[Route, Any]) -> dict[Route, int]:
    headers = {"authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(base_url=site.url, headers=headers, timeout=30) as client:
        return {
            (method, path): client.request(
                method, address(path), json={} if method == "POST" else None
            ).status_code
            for method, path in routes
        }


def test_every_route_has_a_rule_and_every_rule_a_route(site: WholeApp) -> None:
    assert site.routes - site.access.keys() == set()
    stale = {route for route, needs in site.access.items() if needs != OPEN} - site.routes
    assert {(method, path) for method, path in stale if method != "HEAD"} == set()


def test_nothing_of_a_service_is_open(site: WholeApp) -> None:
    ours = {route: needs for route, needs in site.access.items() if isinstance(needs, Rule)}
    assert {rule.service for rule in ours.values()} == {*WITH_PROGRAMS, "server"}
    for token in (None, "fpc_made_up", "fpp_made_up", "made_up"):
        assert set(statuses(site, token, ours).values()) == {401}


@pytest.mark.parametrize(
    ("caller", "rights"),
    [(Role.VIEWER, Right.READ), (Role.OPERATOR, OPERATOR), (Role.ADMIN, OPERATOR)],
)
def test_a_role_of_the_console_binds_every_service(site: WholeApp, caller: Role, rights: Right) -> None:
    ours = {route: needs for route, needs in site.access.items() if isinstance(needs, Rule)}
    found = statuses(site, user_token(site.database, caller), ours)
    for route, rule in ours.items():
        assert (found[route] == 403) == (not rule.needs & rights), (route, found[route])
        assert found[route] < 500, (route, found[route])
        assert found[route] != 401, route


@pytest.mark.parametrize("service", WITH_PROGRAMS)
def test_a_program_has_rights_in_its_own_service_only(site: WholeApp, service: str) -> None:
    ours = {route: needs for route, needs in site.access.items() if isinstance(needs, Rule)}
    found = statuses(site, program_token(site.database, service), ours)
    for route, rule in ours.items():
        if rule.service != service:
            assert found[route] == 401, (route, found[route])
        else:
            assert (found[route] == 403) == (not rule.needs & PROGRAM), (route, found[route])
            assert found[route] < 500, (route, found[route])
            assert found[route] != 401, route


def test_the_servers_token_has_every_right(site: WholeApp) -> None:
    ours = {route: needs for route, needs in site.access.items() if isinstance(needs, Rule)}
    assert not {401, 403} & set(statuses(site, SERVER_TOKEN, ours).values())


@pytest.mark.parametrize("service", WITH_PROGRAMS)
def test_no_other_token_opens_the_console_or_the_judge(site: WholeApp, service: str) -> None:
    """The rules of these two are tested where they are; here, that other services' programs have no part."""
    theirs = {
        route: needs
        for route, needs in site.access.items()
        if isinstance(needs, str) and needs != OPEN and "events" not in route[1]
    }
    assert set(statuses(site, program_token(site.database, service), theirs).values()) <= {401, 303}


def test_a_wrong_right_is_told_before_the_body_is_read(site: WholeApp) -> None:
    headers = {"authorization": f"Bearer {user_token(site.database, Role.VIEWER)}"}
    answer = httpx.post(f"{site.url}/orders", content=b"no JSON", headers=headers)
    assert answer.status_code == 403
    assert answer.json()["message"] == "This needs the right to submit; viewer@console may read."


def test_a_revoked_token_ends_at_once(site: WholeApp) -> None:
    headers = {"authorization": f"Bearer {program_token(site.database, 'orders')}"}
    assert httpx.get(f"{site.url}/orders", headers=headers).status_code == 200
    with psycopg.connect(site.database.url, autocommit=True) as connection:
        [token] = run(connection, programs_of("orders").tokens("checkout"))
        run(connection, programs_of("orders").revoke_token(token.token_id, "test"))
    assert httpx.get(f"{site.url}/orders", headers=headers).status_code == 401
