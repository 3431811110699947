"""Login by password, with the limits that keep passwords from being guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import Generic

from fastapi import Request

from fencepost_server.accounts.calls import LoginAttempt
from fencepost_server.accounts.passwords import Passwords, PasswordVerdict
from fencepost_server.accounts.role import R
from fencepost_server.accounts.secret import digest_of
from fencepost_server.accounts.sessions import Sessions
from fencepost_server.web.formatting import duration
from fencepost_server.web.forms import address_of, readable

WINDOW_SECONDS = 900.0
NAME_MAX = 64


class Proof(Enum):
    """What has shown that it is the account's owner."""

    PASSWORD = "password"  # noqa: S105
    TOKEN = "token"  # noqa: S105 - Of this service: it proves nothing to another one.


@dataclass(frozen=True, slots=True)
class LoginRefused(Exception):
    """The status, and a text for the page."""

    status: int
    reason: str


class PasswordLogin(Generic[R]):
    """Checks a name and a password. With `with_tokens` a token of the service is accepted as its owner's
    password: it opens the service anyway."""

    def __init__(self, sessions: Sessions[R], passwords: Passwords, *, with_tokens: bool = False) -> None:
        self._sessions = sessions
        self._passwords = passwords
        self._with_tokens = with_tokens

    async def check(self, request: Request, given_name: str, given: str) -> str:
        """The name of the account, if the password is right; LoginRefused says why not.

        The answer, and its time, are the same for a wrong password and for an unknown name.
        """
        name = readable(given_name)[:NAME_MAX]
        if not name:
            either = ", or a token" if self._with_tokens else ""
            raise LoginRefused(400, f"Enter a name and a password{either}.")
        # A client that guesses passwords for a name locks out other unknown clients, not the owner's browser.
        known = self._sessions.cookies.known(request, name)
        accounts = self._sessions.accounts
        if known is None:
            begin = accounts.begin_login(name, address_of(request), window_seconds=WINDOW_SECONDS)
        else:
            begin = accounts.begin_login_known(name, known, window_seconds=WINDOW_SECONDS)
        await self._judge(request, name, given, await self._sessions.fp.run(begin))
        return name

    async def check_again(self, request: Request, name: str, session: str, given: str) -> Proof:
        """The same for a browser that is logged in already: what its owner has shown, or LoginRefused."""
        known = digest_of(session).hex()
        begin = self._sessions.accounts.begin_login_known(name, known, window_seconds=WINDOW_SECONDS)
        return await self._judge(request, name, given, await self._sessions.fp.run(begin))

    async def _judge(self, request: Request, name: str, given: str, attempt: LoginAttempt) -> Proof:
        if attempt.wait_seconds is not None:
            raise LoginRefused(429, f"Too many attempts. Wait {duration(ceil(attempt.wait_seconds))}.")
        proof = Proof.PASSWORD
        if self._with_tokens and given.startswith(self._sessions.accounts.token_prefix):
            owner = await self._sessions.of_token(given)
            proof, verdict = Proof.TOKEN, PasswordVerdict(right=owner is not None and owner.name == name)
        else:
            verdict = await self._passwords.judge(given, attempt.password)
        await self._sessions.fp.run(
            self._sessions.accounts.end_login(
                name, address_of(request), right=verdict.right, rehashed=verdict.rehashed
            )
        )
        if not verdict.right:
            what = "Name, password or token" if self._with_tokens else "Name or password"
            raise LoginRefused(403, f"{what} is wrong.")
        return proof
