"""An identity provider that lies: it authenticates no one, and gets no secret sent anywhere else."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from joserfc import jwk, jwt

from fencepost_server.accounts import _oidc as oidc
from fencepost_server.accounts._oidc import IdentityRefused, LoginState, OidcProvider, endpoints_of
from fencepost_server.console._role import Role
from fencepost_server.console._settings import ConsoleSettings

SECRET = "known to two"
STATE = LoginState("state", "nonce", "verifier", "/console")
KEY = jwk.RSAKey.generate_key(2048, {"kid": "1"})


class Provider:
    """Answers like a good provider, but for what a test changes."""

    def __init__(self) -> None:
        self.url = ""
        self.key: jwk.RSAKey = KEY
        self.asked: list[str] = []
        self.description: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.head: dict[str, Any] = {"alg": "RS256", "kid": "1"}
        self.instead: dict[str, Callable[[], web.StreamResponse]] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.path} {await request.text()}")
        if request.path in self.instead:
            return self.instead[request.path]()
        if request.path.endswith("openid-configuration"):
            return web.json_response(self.described())
        if request.path == "/keys":
            return web.json_response({"keys": [{**self.key.as_dict(private=False), "use": "sig"}]})
        if request.path == "/token":
            return web.json_response({"id_token": self.token()})
        return web.Response(status=404)

    def described(self) -> dict[str, Any]:
        ends = {
            "authorization_endpoint": "/login",
            "token_endpoint": "/token",
            "jwks_uri": "/keys",
        }
        return {
            "issuer": self.url,
            **{name: self.url + path for name, path in ends.items()},
            **self.description,
        }

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": "fencepost", "sub": "1", "iat": now, "exp": now + 300}
        claims |= {"nonce": "nonce", "email": "ada@house.example", "groups": ["ops"], **self.claims}
        return jwt.encode(self.head, claims, self.key)


@asynccontextmanager
async def serving(provider: Provider) -> AsyncGenerator[None]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    provider = Provider()
    async with serving(provider):
        yield provider


def client_of(provider: Provider) -> OidcProvider[Role]:
    settings = ConsoleSettings(
        public_url="https://console.example",
        oidc_issuer=provider.url,
        oidc_client_id="fencepost",
        oidc_client_secret=SECRET,
        oidc_roles={"ops": Role.OPERATOR},
    )
    return OidcProvider(settings.oidc("/back"))


async def test_a_good_one_authenticates(provider: Provider) -> None:
    assert (await client_of(provider).person("code", STATE)).name == "ada@house.example"


async def test_new_keys_count_from_the_next_login_on_and_old_ones_no_more(provider: Provider) -> None:
    client = client_of(provider)
    await client.person("code", STATE)
    old_token = provider.token()
    provider.key = jwk.RSAKey.generate_key(2048, {"kid": "2"})
    provider.head["kid"] = "2"
    assert (await client.person("code", STATE)).subject == "1"
    provider.instead["/token"] = lambda: web.json_response({"id_token": old_token})
    with pytest.raises(IdentityRefused):
        await client.person("code", STATE)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://id.example"},
        {"aud": "another client"},
        {"nonce": "of another login"},
        {"nonce": None},
        {"exp": 1},
        {"sub": None},
    ],
)
async def test_a_token_about_something_else_is_refused(provider: Provider, claims: dict[str, Any]) -> None:
    provider.claims = claims
    with pytest.raises(IdentityRefused):
        await client_of(provider).person("code", STATE)


@pytest.mark.parametrize("head", [{"alg": "none"}, {"alg": "HS256"}])
async def test_a_token_without_a_signature_of_its_key_is_refused(
    provider: Provider, head: dict[str, Any]
) -> None:
    body = provider.token().split(".")[1]
    forged = f"{urlsafe_b64encode(json.dumps(head).encode()).decode().rstrip('=')}.{body}."
    provider.instead["/token"] = lambda: web.json_response({"id_token": forged})
    with pytest.raises(IdentityRefused):
        await client_of(provider).person("code", STATE)


async def test_another_issuers_description_is_refused_before_a_secret_is_sent(provider: Provider) -> None:
    provider.description = {"issuer": "https://id.example"}
    with pytest.raises(IdentityRefused, match="calls itself"):
        await client_of(provider).person("code", STATE)
    assert not [asked for asked in provider.asked if SECRET.replace(" ", "+") in asked]


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys"])
async def test_a_redirect_is_followed_nowhere(provider: Provider, path: str) -> None:
    """Neither to this machine nor to the address where clouds keep credentials."""
    canary = Provider()
    async with serving(canary):
        provider.instead[path] = lambda: web.Response(status=307, headers={"Location": f"{canary.url}{path}"})
        with pytest.raises(IdentityRefused, match="answered 307"):
            await client_of(provider).person("code", STATE)
    assert canary.asked == []


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize("address", ["http://id.example/x", "file:///etc/passwd", "//id.example", 7, None])
def test_a_provider_over_https_has_its_endpoints_there(name: str, address: object) -> None:
    """The secret and the keys would pass in clear otherwise."""
    issuer = "https://id.example"
    said = {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/login",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/keys",
    }
    assert endpoints_of(said, issuer)
    with pytest.raises(IdentityRefused, match=name):
        endpoints_of({**said, name: address}, issuer)


async def test_an_answer_without_end_is_cut(provider: Provider) -> None:
    provider.instead["/keys"] = lambda: web.json_response({"keys": ["x" * (oidc.ANSWER_BYTES_MAX + 1)]})
    with pytest.raises(IdentityRefused, match="larger than"):
        await client_of(provider).person("code", STATE)
