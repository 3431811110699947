"""The authorization matrix: every route, every role, and nobody."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi.routing import APIRoute

from fencepost.client import Fencepost
from fencepost_server.console.http_service import make_context, make_router
from fencepost_server.console.login import OPEN_PATHS
from fencepost_server.console.role import Role
from fencepost_server.console.settings import ConsoleSettings
from tests.integration.console.env import ConsoleEnv

LOGOUT = ("POST", "/console/logout")
STREAM = ("GET", "/api/events")
# A token may make no tokens, whatever its role.
SESSIONS_ONLY = {("POST", "/api/account/tokens"), ("POST", "/console/account/tokens")}


def routes(stage: ConsoleEnv) -> dict[tuple[str, str], Role]:
    return dict(stage.place.desk.roles)


def address(path: str) -> str:
    """A path whose parts name nothing: who may come in finds nothing, who may not is refused."""
    return re.sub(r"\{[^}]+\}", "999999", path)


def send(client: httpx.Client, method: str, path: str) -> int:
    body = {"how": "replay"} if method == "POST" and path.startswith("/api") else None
    return client.request(method, address(path), json=body).status_code


def test_every_route_was_made_by_the_desk_or_is_open_to_all(stage: ConsoleEnv) -> None:
    settings = ConsoleSettings(
        public_url="https://console.example",
        oidc_issuer="https://id.example",
        oidc_client_id="fencepost",
        oidc_else_role=Role.VIEWER,
    )
    place = make_context(Fencepost(stage.database.url), stage.database.viewer_url, settings)
    make_router(place)
    made = {
        (method, route.path)
        for route in (*place.desk.api.routes, *place.desk.pages.routes)
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    unguarded = {path for _, path in made - set(place.desk.roles) - {LOGOUT}}
    assert unguarded == set(OPEN_PATHS)
    assert len(place.desk.roles) > 60


def test_nobody_and_a_made_up_token_come_in_nowhere(stage: ConsoleEnv) -> None:
    with stage.stranger() as client:
        for method, path in routes(stage):
            expected = 401 if path.startswith("/api") else 303
            assert send(client, method, path) == expected, (method, path)
        client.headers["authorization"] = "Bearer fpc_made_up"
        for method, path in routes(stage):
            assert send(client, method, path) in {401, 303}, (method, path)


@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_exactly_what_it_may(stage: ConsoleEnv, role: Role) -> None:
    with stage.program(role) as client:
        for (method, path), needed in routes(stage).items():
            if (method, path) == STREAM or (method, path) in SESSIONS_ONLY:
                continue
            status = send(client, method, path)
            assert (status == 403) == (role < needed), (method, path, status)
            assert status < 500, (method, path, status)


@pytest.mark.parametrize("role", list(Role))
def test_a_session_without_the_forms_token_changes_nothing_whatever_its_role(
    stage: ConsoleEnv, role: Role
) -> None:
    with stage.visitor(role) as client:
        del client.headers["x-form-token"]
        for method, path in routes(stage):
            if method == "POST":
                assert send(client, method, path) == 403, path
