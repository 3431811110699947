"""The identity provider of single sign-on: its endpoints, and the identity that it asserts (OpenID Connect).

The code flow with PKCE. An ID token is accepted when a key of the provider signed it, it is issued for us, it
is
fresh, and it answers the login state with which this browser was sent.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self, cast
from urllib.parse import urlencode, urlsplit

import aiohttp
import jwt

from fencepost_server.console.role import Role
from fencepost_server.console.settings import ConsoleSettings
from fencepost_server.web.forms import readable

ANSWER_SECONDS = 10.0
ANSWER_BYTES_MAX = 1 << 20
KNOWN_SECONDS = 3600.0
# Asymmetric signatures only: others who know a shared secret could make a symmetric one.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
LEEWAY_SECONDS = 60
SCOPE = "openid email profile"
OWN_AUTH_PATHS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
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
class Person:
    """A person as the provider knows them, with the role that their groups have here."""

    name: str
    subject: str
    role: Role


class OidcProvider:
    """Talks to the provider over HTTP; its endpoints are cached for an hour."""

    def __init__(self, settings: ConsoleSettings, back: str) -> None:
        assert settings.oidc_issuer is not None, "a console without single sign-on has no provider"
        self.issuer = settings.oidc_issuer
        self._settings = settings
        self._back = f"{settings.public_url}{back}"
        self._doors: Mapping[str, str] = {}
        self._known_until = 0.0

    async def address(self, errand: LoginState) -> str:
        """The address to which the browser is sent for the login."""
        question = {
            "response_type": "code",
            "client_id": self._settings.oidc_client_id,
            "redirect_uri": self._back,
            "scope": SCOPE,
            "state": errand.state,
            "nonce": errand.nonce,
            "code_challenge": errand.challenge,
            "code_challenge_method": "S256",
        }
        async with _session() as session:
            doors = await self._find(session)
        return f"{doors['authorization_endpoint']}?{urlencode(question)}"

    async def person(self, code: str, errand: LoginState) -> Person:
        """The person for whom the code was issued; IdentityRefused says why there is none."""
        async with _session() as session:
            doors = await self._find(session)
            token = await self._redeem(session, doors["token_endpoint"], code, errand)
            keys = await _ask(session, "GET", doors["jwks_uri"])
        return person_of(believed(token, keys, self._settings, self.issuer, errand), self._settings)

    async def _find(self, session: aiohttp.ClientSession) -> Mapping[str, str]:
        if time.monotonic() > self._known_until:
            doors = await _ask(session, "GET", f"{self.issuer}/.well-known/openid-configuration")
            self._doors = doors_of(doors, self.issuer)
            self._known_until = time.monotonic() + KNOWN_SECONDS
        return self._doors

    async def _redeem(self, session: aiohttp.ClientSession, url: str, code: str, errand: LoginState) -> str:
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back,
            "code_verifier": errand.verifier,
            "client_id": self._settings.oidc_client_id or "",
        }
        if self._settings.oidc_client_secret is not None:
            form["client_secret"] = self._settings.oidc_client_secret
        answer = await _ask(session, "POST", url, data=form)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise IdentityRefused("The provider answered without an ID token.")
        return token


def doors_of(said: Mapping[str, Any], issuer: str) -> Mapping[str, str]:
    """The provider's endpoints, from its own description."""
    if str(said.get("issuer", "")).rstrip("/") != issuer:
        raise IdentityRefused(f"{issuer} calls itself {_shown(said.get('issuer'))!r}.")
    for name in OWN_AUTH_PATHS:
        if not _is_address(said.get(name)):
            raise IdentityRefused(f"{issuer} does not say its {name}.")
    return {name: str(said[name]) for name in OWN_AUTH_PATHS}


def person_of(claims: Mapping[str, Any], settings: ConsoleSettings) -> Person:
    """What the claims mean here: the highest role of the person's groups; without any, the default role."""
    name, subject = claims.get(settings.oidc_name_claim), claims.get("sub")
    if not isinstance(name, str) or not isinstance(subject, str):
        raise IdentityRefused(f"The provider does not say {settings.oidc_name_claim!r} of this person.")
    if settings.oidc_name_claim == "email" and claims.get("email_verified") is False:
        raise IdentityRefused("The provider has not verified this address.")
    said: object = claims.get(settings.oidc_role_claim)
    groups = cast("list[object]", said) if isinstance(said, list) else [said]
    roles = [role for group, role in settings.oidc_roles.items() if group in groups]
    role = max(roles, default=settings.oidc_else_role)
    if role is None:
        raise IdentityRefused("None of this person's groups has a role here.")
    return Person(name, subject, role)


def believed(
    token: str, keys: Mapping[str, Any], settings: ConsoleSettings, issuer: str, errand: LoginState
) -> Mapping[str, Any]:
    """The claims of an ID token that answers this login state; IdentityRefused says what is wrong with any
    other."""
    claims = _verified(token, keys, settings.oidc_client_id)
    if str(claims["iss"]).rstrip("/") != issuer:
        raise IdentityRefused("The ID token is from somebody else.")
    if not secrets.compare_digest(
        str(claims.get("nonce", "")).encode(errors="replace"), errand.nonce.encode()
    ):
        raise IdentityRefused("The ID token answers another login.")
    return claims


def _verified(token: str, keys: Mapping[str, Any], audience: str | None) -> Mapping[str, Any]:
    """The claims, if a key of the provider signed them for us, and they are fresh."""
    try:
        header = jwt.get_unverified_header(token)
        known = jwt.PyJWKSet.from_dict(dict(keys)).keys
        fitting = [key for key in known if header.get("kid") in (None, key.key_id)]
        claims: Mapping[str, Any] = jwt.decode(
            token,
            _trusted(header.get("alg"), fitting),
            algorithms=[header["alg"]],
            audience=audience,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iat", "iss", "aud", "sub"], "verify_iss": False},
        )
    except IdentityRefused:
        raise
    except jwt.PyJWTError as error:
        raise IdentityRefused(f"The ID token is not valid: {_shown(error)}.") from error
    except Exception as error:
        # Whatever an invalid token or key makes the library raise: it authenticates no one.
        raise IdentityRefused("The ID token, or a key of the provider, cannot be read.") from error
    return claims


def _trusted(algorithm: object, fitting: list[jwt.PyJWK]) -> jwt.PyJWK:
    if algorithm not in ALGORITHMS or not fitting:
        raise IdentityRefused("The ID token is not signed by a key of the provider.")
    return fitting[0]


def _is_address(said: object) -> bool:
    if not isinstance(said, str) or not (said.isascii() and said.isprintable()):
        return False
    try:
        parts = urlsplit(said)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


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
