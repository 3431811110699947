"""The identity provider of single sign-on: its endpoints, and the identity that it asserts (OpenID Connect).

The code flow with PKCE. An ID token is accepted when a key of the provider signed it, it is issued for us, it
is fresh, and it answers the login state with which this browser was sent. joserfc checks signatures and
claims.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
import warnings
from base64 import urlsafe_b64encode
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Generic, Self, cast
from urllib.parse import urlencode, urlsplit

import aiohttp
from joserfc import jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import KeySet, KeySetSerialization
from joserfc.jws import JWSRegistry

from fencepost_server.accounts._oidc_settings import OidcSettings
from fencepost_server.accounts.role import R
from fencepost_server.web.forms import readable

ANSWER_SECONDS = 10.0
ANSWER_BYTES_MAX = 1 << 20
KNOWN_SECONDS = 3600.0
# Asymmetric signatures only: every party that knows a shared secret could make a symmetric one.
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
    *("EdDSA", "Ed25519"),
)
LEEWAY_SECONDS = 60
SCOPE = "openid email profile"
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
SHOWN_MAX = 200


class IdentityRefused(Exception):
    """The provider cannot be reached, or does not authenticate this person. The text may be shown."""


@dataclass(frozen=True, slots=True)
class LoginState:
    """What a browser is sent with, and must return with."""

    state: str
    nonce: str
    verifier: str
    next: str

    @classmethod
    def new(cls, next_path: str) -> Self:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return cls(state, nonce, verifier, next_path)

    @classmethod
    def read(cls, text: str) -> Self:
        return cls(**json.loads(text))

    def written(self) -> str:
        return json.dumps(asdict(self))

    @property
    def challenge(self) -> str:
        digest = hashlib.sha256(self.verifier.encode()).digest()
        return urlsafe_b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Person(Generic[R]):
    """A person as the provider knows them, with the role that their groups have here."""

    name: str
    subject: str
    role: R


class OidcProvider(Generic[R]):
    """Talks to the provider over HTTP; its endpoints are cached for an hour."""

    def __init__(self, settings: OidcSettings[R]) -> None:
        self.issuer = settings.issuer
        self._settings = settings
        self._endpoints: Mapping[str, str] = {}
        self._known_until = 0.0

    async def address(self, begun: LoginState) -> str:
        """The address to which the browser is sent for the login."""
        question = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_uri,
            "scope": SCOPE,
            "state": begun.state,
            "nonce": begun.nonce,
            "code_challenge": begun.challenge,
            "code_challenge_method": "S256",
        }
        async with _session() as session:
            endpoints = await self._find(session)
        return f"{endpoints['authorization_endpoint']}?{urlencode(question)}"

    async def person(self, code: str, begun: LoginState) -> Person[R]:
        """The person that the code was issued for; IdentityRefused says why there is none."""
        async with _session() as session:
            endpoints = await self._find(session)
            token = await self._redeem(session, endpoints["token_endpoint"], code, begun)
            keys = await _ask(session, "GET", endpoints["jwks_uri"])
        return person_of(believed(token, keys, self._settings, begun), self._settings)

    async def _find(self, session: aiohttp.ClientSession) -> Mapping[str, str]:
        if time.monotonic() > self._known_until:
            endpoints = await _ask(session, "GET", f"{self.issuer}/.well-known/openid-configuration")
            self._endpoints = endpoints_of(endpoints, self.issuer)
            self._known_until = time.monotonic() + KNOWN_SECONDS
        return self._endpoints

    async def _redeem(self, session: aiohttp.ClientSession, url: str, code: str, begun: LoginState) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect_uri,
            "code_verifier": begun.verifier,
            "client_id": self._settings.client_id,
        }
        if self._settings.client_secret is not None:
            form["client_secret"] = self._settings.client_secret
        answer = await _ask(session, "POST", url, data=form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise IdentityRefused("The provider answered without an ID token.")
        return token


def endpoints_of(said: Mapping[str, Any], issuer: str) -> Mapping[str, str]:
    """The provider's endpoints, from its own description."""
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise IdentityRefused(f"{issuer} calls itself {_shown(said.get('issuer'))!r}.")
    # A provider over HTTPS has its endpoints there too: otherwise the secret would pass in clear.
    schemes = {"https"} if urlsplit(issuer).scheme == "https" else {"http", "https"}
    for name in ENDPOINTS:
        if not _is_address(said.get(name), schemes):
            raise IdentityRefused(f"{issuer} does not say its {name}, over {' or '.join(sorted(schemes))}.")
    return {name: str(said[name]) for name in ENDPOINTS}


def person_of(claims: Mapping[str, Any], settings: OidcSettings[R]) -> Person[R]:
    """What the claims mean here: the highest role of the person's groups; without any, the default role."""
    name, subject = claims.get(settings.name_claim), claims.get("sub")
    if not isinstance(name, str) or not isinstance(subject, str):
        raise IdentityRefused(f"The provider's token has no {settings.name_claim!r}.")
    if settings.name_claim == "email" and claims.get("email_verified") is False:
        raise IdentityRefused("The provider has not verified this address.")
    said: object = claims.get(settings.role_claim)
    groups = cast("list[object]", said) if isinstance(said, list) else [said]
    roles = [role for group, role in settings.roles.items() if group in groups]
    role = max(roles, default=settings.else_role)
    if role is None:
        raise IdentityRefused("None of this person's groups has a role here.")
    return Person(name, subject, role)


def believed(
    token: str, keys: Mapping[str, Any], settings: OidcSettings[R], begun: LoginState
) -> Mapping[str, Any]:
    """The claims of an ID token that answers this login state; IdentityRefused says what is wrong with any
    other."""
    claims = _verified(token, keys, settings)
    if not secrets.compare_digest(
        str(claims.get("nonce", "")).encode(errors="replace"), begun.nonce.encode()
    ):
        raise IdentityRefused("The ID token answers another login.")
    return claims


def _verified(token: str, keys: Mapping[str, Any], settings: OidcSettings[R]) -> Mapping[str, Any]:
    """The claims, if a key of the provider signed them for us, and they are fresh.

    The key is the one that the token names; a token that names none is accepted from a provider with one key.
    """
    # A header may have parameters that we do not know; those that are critical are refused all the same.
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    required = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "values": [settings.issuer, f"{settings.issuer}/"]},
        aud={"essential": True, "value": settings.client_id},
        sub={"essential": True},
        iat={"essential": True},
        exp={"essential": True},
    )
    try:
        with warnings.catch_warnings():
            # EdDSA by its older name.
            warnings.simplefilter("ignore", SecurityWarning)
            known = KeySet.import_key_set(cast("KeySetSerialization", keys))
            claims = jwt.decode(token, known, registry=registry).claims
        required.validate(claims)
    except JoseError as error:
        raise IdentityRefused(f"The ID token is not valid: {_shown(error)}.") from error
    except Exception as error:
        # Whatever an invalid token or key makes the library raise: it authenticates no one.
        raise IdentityRefused("The ID token, or a key of the provider, cannot be read.") from error
    return claims


def _is_address(said: object, schemes: Collection[str]) -> bool:
    if not isinstance(said, str) or not (said.isascii() and said.isprintable()):
        return False
    try:
        parts = urlsplit(said)
    except ValueError:
        return False
    return parts.scheme in schemes and bool(parts.hostname)


def _shown(said: object) -> str:
    """Text of the provider for one of our pages, bounded in length."""
    return readable(str(said)[:SHOWN_MAX])


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))


async def _ask(session: aiohttp.ClientSession, method: str, url: str, **more: Any) -> Mapping[str, Any]:
    """Request a JSON document of bounded size. Redirects are not followed: the request may contain a
    secret."""
    try:
        async with session.request(method, url, allow_redirects=False, **more) as response:
            body = await _body(response)
            if response.status != 200:
                raise IdentityRefused(f"The provider answered {response.status}.")
            if len(body) > ANSWER_BYTES_MAX:
                raise IdentityRefused(f"The provider's answer is larger than {ANSWER_BYTES_MAX} bytes.")
            answer = json.loads(body)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise IdentityRefused(f"The provider does not answer: {type(error).__name__}.") from error
    except (ValueError, RecursionError) as error:
        raise IdentityRefused("The provider's answer is not JSON.") from error
    if not isinstance(answer, dict):
        raise IdentityRefused("The provider's answer is not a document.")
    return cast("Mapping[str, Any]", answer)


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Read the body in chunks, and no more than shows that it is too large."""
    body = bytearray()
    async for piece in response.content.iter_any():
        body += piece
        if len(body) > ANSWER_BYTES_MAX:
            break
    return bytes(body)
