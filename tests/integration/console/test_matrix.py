"""The authorization matrix: every route, every role, and without login."""

from __future__ import annotations

import re

import httpx
import pytest
from fastapi.routing import APIRoute

from fencepost.client import Fencepost
from fencepost_server.console._http_service import make_context, make_router
from fencepost_server.console._login import OPEN_PATHS
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings
from tests.integration.console.env import ConsoleEnv

LOGOUT = ("POST", "/console/logout")
THEME = ("POST", "/console/theme")
STREAM = ("GET", "/api/events")
# A token may make no tokens, whatever its role.
SESSIONS_ONLY = {("POST", "/api/account/tokens"), ("POST", "/console/account/tokens")}


def routes(env: ConsoleEnv) -> dict[tuple[str, str], Role]:
    return dict(env.context.router.roles)


def address(path: str) -> str:
    """A path whose parts name nothing: who may come in finds nothing, who may not is refused."""
    return re.sub(r"\{[^}]+\}", "999999", path)


def send(client: httpx.Client, method: str, path: str) -> int:
    body = {"how": "replay"} if method == "POST" and path.startswith("/api") else None
    return client.request(method, address(path), json=body).status_code


def test_every_route_was_made_by_the_router_or_is_open_to_all(env: ConsoleEnv) -> None:
    settings = ConsoleSettings(
        public_url="https://console.example",
        oidc_issuer="https://id.example",
        oidc_client_id="fencepost",
        oidc_else_role=Role.VIEWER,
    )
    context = make_context(Fencepost(env.database.url), env.database.viewer_url, settings)
    make_router(context)
    made = {
        (method, route.path)
        for route in (*context.router.api.routes, *context.router.pages.routes)
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    unguarded = {path for _, path in made - set(context.router.roles) - {LOGOUT, THEME}}
    assert unguarded == set(OPEN_PATHS)
    assert len(context.router.roles) > 60


def test_no_caller_and_a_made_up_token_come_in_nowhere(env: ConsoleEnv) -> None:
    with env.stranger() as client:
        for method, path in routes(env):
            expected = 401 if path.startswith("/api") else 303
            assert send(client, method, path) == expected, (method, path)
        client.headers["authorization"] = "Bearer fpc_made_up"
        for method, path in routes(env):
            assert send(client, method, path) in {401, 303}, (method, path)


@pytest.mark.parametrize("role", list(Role))
def test_each_role_may_exactly_what_it_may(env: ConsoleEnv, role: Role) -> None:
    with env.program(role) as client:
        for (method, path), needed in routes(env).items():
            if (method, path) == STREAM or (method, path) in SESSIONS_ONLY:
                continue
            status = send(client, method, path)
            assert (status == 403) == (role < needed), (method, path, status)
            assert status < 500, (method, path, status)


@pytest.mark.parametrize("role", list(Role))
def test_a_session_without_the_forms_token_changes_nothing_whatever_its_role(
    env: ConsoleEnv, role: Role
) -> None:
    with env.visitor(role) as client:
        del client.headers["x-form-token"]
        for method, path in routes(env):
            if method == "POST":
                assert send(client, method, path) == 403, path
        assert send(client, *THEME) == 403
