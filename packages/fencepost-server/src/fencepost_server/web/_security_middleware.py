"""Access control and limits of requests.

Four kinds of clients are refused before a route sees them: one without a token, or without the right that the
route needs; a page of another site in
this machine's browser, which sends its user's requests here (detected by Sec-Fetch-Site, or by Origin in old
browsers); a host name of another site that was made to point at loopback (detected by Host); and a client
behind
a proxy that no setting names, which would look like a program of this machine, or like the proxy.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from fastapi.responses import Response
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fencepost_server.web._proxies import is_forwarded, is_local
from fencepost_server.web.authorization import ACCOUNT_TOKENS, AccessTable, Authenticate, Rule, no_accounts
from fencepost_server.web.errors import failure

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# More digits are not converted: the number would be too large anyway.
DIGITS_MAX = 20
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# For supervisors and load balancers; an unauthenticated caller gets the status and nothing else.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})
ACCOUNTS_SECONDS = 1.0
BEHIND_A_PROXY = (
    "This request was forwarded by a proxy, and without HTTP_TOKEN only programs of this machine are served. "
    "Set HTTP_TOKEN, and HTTP_PROXIES to the address of the proxy."
)
UNNAMED_PROXY = (
    "This request was forwarded by a proxy that HTTP_PROXIES does not name. Set HTTP_PROXIES to the address "
    "from which the proxy connects."
)


@dataclass(frozen=True, slots=True)
class SecurityRules:
    """The rules that every request must satisfy."""

    token: str | None
    body_max_bytes: int
    own_auth_paths: tuple[str, ...] = ()

    def refusal(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        http_version: str = "1.1",
        *,
        by_account: bool = False,
        scheme: str = "http",
    ) -> Response | None:
        """Why the request is refused, or None. `by_account`: the token of an account is checked instead of
        the server's. `scheme` is the client's, if a named proxy says so."""
        if path in OPEN_PATHS:
            return None
        if self.token is None and not is_local(headers, http_version):
            return failure(403, "forbidden", BEHIND_A_PROXY)
        if self.token is None and not self.trusts(headers):
            return failure(403, "forbidden", "This address is only available on localhost.")
        if self.token is not None and not by_account and not self._lets_in(path, headers):
            return _unauthorized("Send the header `Authorization: Bearer <HTTP_TOKEN>`.")
        if method not in SAFE_METHODS and not _is_of_this_site(headers, scheme):
            return failure(403, "forbidden", "Cross-site requests may not change anything.")
        return _length_refusal(headers.get("content-length") or "0", self.body_max_bytes)

    def trusts(self, headers: Mapping[str, str], http_version: str = "1.1") -> bool:
        """Whether the caller gets all details: by the token, or without one because it comes from this
        machine."""
        if self.token is None:
            local = is_local(headers, http_version)
            return local and _host_name(headers.get("host", "")) in LOOPBACK_NAMES
        return _carries(headers.get("authorization", ""), self.token)

    def _lets_in(self, path: str, headers: Mapping[str, str]) -> bool:
        """By the token, or because a service authenticates there itself: `/api` and below it, not `/apis`."""
        own = any(
            path == prefix or (prefix != "/" and path.startswith(f"{prefix}/"))
            for prefix in self.own_auth_paths
        )
        return own or self.trusts(headers)


class Accounts:
    """Whether any service has an account; checked once a second for all requests."""

    def __init__(
        self, questions: Iterable[Callable[[], Awaitable[bool]]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._questions = tuple(questions)
        self._now = now
        self._seen = False
        self._seen_at: float | None = None

    async def exist(self) -> bool:
        if self._seen_at is None or self._now() - self._seen_at >= ACCOUNTS_SECONDS:
            self._seen = any([await question() for question in self._questions])
            self._seen_at = self._now()
        return self._seen


class SecurityMiddleware:
    """Applies the rules in front of an application."""

    def __init__(
        self,
        app: ASGIApp,
        rules: SecurityRules,
        accounts: Accounts | None = None,
        access: AccessTable | None = None,
        authenticate: Authenticate = no_accounts,
    ) -> None:
        self._app = app
        self._rules = rules
        self._accounts = accounts or Accounts(())
        self._access = access or AccessTable()
        self._authenticate = authenticate

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        token = _account_token(headers)
        rules = [] if token is None else self._access.find(scope["method"], scope["path"])
        refusal = self._rules.refusal(
            scope["method"],
            scope["path"],
            headers,
            scope.get("http_version", "1.1"),
            by_account=bool(rules),
            scheme=scope.get("scheme", "http"),
        )
        if refusal is None and scope["path"] not in OPEN_PATHS and is_forwarded(headers):
            # A login would be counted as the proxy's, or as that of whatever address the client invents.
            refusal = failure(403, "forbidden", UNNAMED_PROXY) if await self._accounts.exist() else None
        if refusal is None and token is not None and rules:
            refusal = await self._authorize(scope, token, rules)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, self._rules.body_max_bytes), send)

    async def _authorize(self, scope: Scope, token: str, rules: Sequence[Rule]) -> Response | None:
        service = rules[0].service
        caller = await self._authenticate(token, service)
        if caller is None:
            return _unauthorized(f"This token is unknown to {service}, expired or revoked.")
        for rule in rules:
            if not caller.rights & rule.needs:
                return failure(
                    403,
                    "forbidden",
                    f"This needs the right to {rule.needs.words}; {caller.actor} may {caller.rights.words}.",
                )
        scope.setdefault("state", {})["caller"] = caller
        return None


def _bounded(receive: Receive, most: int) -> Receive:
    """Bounds a body that comes in chunks, without its length."""
    taken = 0

    async def receive_bounded() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise HTTPException(413, f"The body is larger than {most} bytes (HTTP_BODY_MAX_BYTES).")
        return message

    return receive_bounded


def _length_refusal(length: str, most: int) -> Response | None:
    if not (length.isascii() and length.isdigit()):
        return failure(400, "invalid_input", "Content-Length is not a valid number.")
    if len(length) > DIGITS_MAX or int(length) > most:
        return failure(413, "too_large", f"The body is larger than {most} bytes (HTTP_BODY_MAX_BYTES).")
    return None


def _unauthorized(message: str) -> Response:
    return failure(401, "unauthorized", message, headers={"WWW-Authenticate": "Bearer"})


def _account_token(headers: Mapping[str, str]) -> str | None:
    """The token of an account that the request carries. The server's token may begin with anything else."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    given = given.strip()
    return given if scheme.lower() == "bearer" and given.startswith(ACCOUNT_TOKENS) else None


def _host_name(host: str) -> str:
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


def _carries(authorization: str, token: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), token.encode())


def _is_of_this_site(headers: Mapping[str, str], scheme: str) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in {"same-origin", "none"}
    origin = headers.get("origin")
    if origin is None:
        return True
    with suppress(ValueError):
        parts = urlsplit(origin)
        # A page that came by plain HTTP may have been changed on the way.
        if scheme == "https" and parts.scheme != "https":
            return False
        # An origin without a host never matches, even where the request does not state its host either.
        return (parts.netloc or None) == headers.get("host")
    return False
