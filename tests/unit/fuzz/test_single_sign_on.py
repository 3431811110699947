"""What a provider of single sign-on sends is believed, or not vouched for: no answer of it is an error."""

import base64
import json
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from hypothesis import strategies as st

from fencepost_server.accounts._oidc import IdentityRefused, OidcProvider, believed, endpoints_of, person_of
from fencepost_server.console._role import Role
from tests.unit.accounts.test_oidc import ISSUER, LOGIN_STATE, SETTINGS, claims, keys, signed
from tests.unit.fuzz.feeding import LONG, QUICK, Parser, feed
from tests.unit.fuzz.hostile import DEEP, DOCUMENTS, wrong_documents, wrong_text

PERSON = claims(email="a@b.example", email_verified=True, groups=["ops"])
TOKEN = signed(PERSON)
ENDPOINTS = {
    "issuer": ISSUER,
    "authorization_endpoint": f"{ISSUER}/ask",
    "token_endpoint": f"{ISSUER}/token",
    "jwks_uri": f"{ISSUER}/keys",
}


def believe(token: str, known: Any = None) -> None:
    with shown():
        person_of(believed(token, known or keys(), SETTINGS, LOGIN_STATE), SETTINGS)


def describe(endpoints: Any) -> None:
    with shown():
        found = endpoints_of(endpoints, ISSUER)
        assert all(urlsplit(found[name]).hostname for name in ENDPOINTS if name != "issuer")


@contextmanager
def shown() -> Generator[None]:
    """The reason why an account is not vouched for stands on a page."""
    why = ""
    try:
        yield
    except IdentityRefused as error:
        why = str(error)
        raise
    finally:
        assert len(why.encode()) < 2000


def with_part(place: int, document: Any) -> str:
    """The token with another head, or with other claims under the old signature."""
    parts = TOKEN.split(".")
    parts[place] = base64.urlsafe_b64encode(json.dumps(document).encode()).decode().rstrip("=")
    return ".".join(parts)


HEADS = st.one_of(wrong_documents({"alg": "RS256", "kid": "1", "typ": "JWT"}), DOCUMENTS)
PARSERS = {
    "where its doors are": Parser(
        describe,
        wrong_documents(ENDPOINTS).filter(lambda endpoints: hasattr(endpoints, "get")),
        (IdentityRefused,),
    ),
    "an ID token": Parser(believe, wrong_text(TOKEN), (IdentityRefused,)),
    "its head": Parser(believe, HEADS.map(lambda head: with_part(0, head)), (IdentityRefused,)),
    "its claims": Parser(
        believe, st.one_of(wrong_documents(PERSON), DOCUMENTS).map(signed), (IdentityRefused,)
    ),
    "keys": Parser(
        lambda known: believe(TOKEN, known),
        st.one_of(wrong_documents(keys()), wrong_documents({"keys": [ENDPOINTS]})).filter(bool),
        (IdentityRefused,),
    ),
}


@pytest.mark.parametrize("name", PARSERS)
def test_whatever_a_provider_says_is_believed_or_not(name: str) -> None:
    feed(PARSERS[name], QUICK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PARSERS)
def test_whatever_a_provider_says_is_believed_or_not_at_length(name: str) -> None:
    feed(PARSERS[name], LONG)


@pytest.mark.parametrize(
    "wrong",
    [
        {"exp": float("inf")},
        {"iat": float("inf")},
        {"nonce": "\ud800"},
        {"iss": ["\ud800"]},
    ],
    ids=repr,
)
def test_claims_that_cannot_be_valid_vouch_for_no_person(wrong: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused):
        believe(signed(PERSON | wrong))


@pytest.mark.parametrize(
    "known",
    [{"keys": 7}, {"keys": [7]}, {"keys": [{"kty": "RSA", "kid": "1", "n": 7, "e": "AQAB"}]}],
    ids=repr,
)
def test_invalid_keys_vouch_for_no_person(known: Any) -> None:
    with pytest.raises(IdentityRefused):
        believe(TOKEN, known)


@asynccontextmanager
async def provider(answers: dict[str, bytes]) -> AsyncGenerator[OidcProvider[Role]]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=answers[request.path])

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        endpoints = {
            "issuer": url,
            "authorization_endpoint": f"{url}/ask",
            "token_endpoint": f"{url}/token",
            "jwks_uri": f"{url}/keys",
        }
        answers.setdefault(FOUND, json.dumps(endpoints | {"more": "x" * 600_000}).encode())
        yield OidcProvider(replace(SETTINGS, issuer=url))
    finally:
        await runner.cleanup()


FOUND = "/.well-known/openid-configuration"


async def test_an_answer_that_comes_in_pieces_is_read_to_its_end() -> None:
    async with provider({}) as asked:
        assert "/ask?response_type=code" in await asked.address(LOGIN_STATE)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"authorization_endpoint": 7},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"authorization_endpoint": "https://[a"},
        {"authorization_endpoint": "https://a/\ud800"},
        {"authorization_endpoint": "https://a", "token_endpoint": {}},
    ],
    ids=repr,
)
def test_a_provider_that_does_not_say_where_its_doors_are_is_not_asked(wrong: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused, match=r"does not say its (authorization|token)_endpoint"):
        describe({"issuer": ISSUER} | wrong)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/token", b"7"), ("/token", b'{"id_token": 7}'), ("/keys", DEEP[0].encode()), ("/keys", b"[]")],
)
async def test_an_answer_that_is_not_a_document_vouches_for_no_person(path: str, body: bytes) -> None:
    right = {"/token": json.dumps({"id_token": TOKEN}).encode(), "/keys": json.dumps(keys()).encode()}
    async with provider(right | {path: body}) as asked:
        with pytest.raises(IdentityRefused, match="The provider"):
            await asked.person("code", LOGIN_STATE)
