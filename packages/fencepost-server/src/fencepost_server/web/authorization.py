"""Authorization: the right that each route of a service needs, and the callers that have it.

A service declares one rule for each of its routes (`HttpService.access`). SecurityMiddleware applies them
to requests that carry the token of an account, before anything of the request is parsed. The server's own
token, HTTP_TOKEN, has every right; a route without a rule is open to it alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Flag, auto

from fastapi import Request
from starlette.routing import compile_path

ACCOUNT_TOKENS = ("fpc_", "fpp_")
"""How tokens of accounts begin: of a user of the console, and of a program of one service."""


class Right(Flag):
    """What a caller may do in a service. A rule with several rights is satisfied by any of them."""

    READ = auto()
    """See orders, players, signers."""
    SUBMIT = auto()
    """Place orders, change players, send transactions: what programs do."""
    DECIDE = auto()
    """Resolve, resend, halt, resume: what operators do."""

    @property
    def words(self) -> str:
        """The roles in words: `operator or admin`."""
        return " or ".join(str(one.name).lower() for one in self)


EVERY_RIGHT = Right.READ | Right.SUBMIT | Right.DECIDE
OPEN = "open"
"""The rule of a route that needs no authentication."""


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated account: its name for the history, and its rights in the service that it calls."""

    actor: str
    rights: Right


Authenticate = Callable[[str, str], Awaitable[Caller | None]]
"""The caller that a token authenticates in a service, or None."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The rights that a route needs: any of these, in this service."""

    service: str
    needs: Right


class AccessTable:
    """The rules of all routes that the server itself authorizes."""

    def __init__(self, rules: Mapping[tuple[str, str], Rule] | None = None) -> None:
        self._rules = [
            (method, compile_path(path)[0], rule) for (method, path), rule in (rules or {}).items()
        ]

    def find(self, method: str, path: str) -> list[Rule]:
        """The rules of every route that could serve the request. Where two could, both must be satisfied."""
        return [rule for wanted, regex, rule in self._rules if wanted == method and regex.match(path)]


async def no_accounts(token: str, service: str) -> None:
    """Authenticates no token: for a server without accounts."""


def actor_of(request: Request) -> str:
    """The name that the history keeps: the authenticated account's, or else the caller's address.

    HTTP_TOKEN is shared by everything that has it, so it gives no name."""
    caller: Caller | None = getattr(request.state, "caller", None)
    if caller is not None:
        return caller.actor
    return f"http {request.client.host if request.client else 'unknown'}"
