"""Authentication of a request: HTTP basic authentication as the specification wants it, a token, or a
spectator without either.

To hash a password takes a tenth of a second, and tools ask many times a second. So a password that was right
opens a session, which is used for the next requests with the same credentials: it ends like every session,
also when the account is locked or its password changes.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import OrderedDict

from fastapi import Request
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost_judge._authentication import Authentication
from fencepost_judge._role import ACCOUNTS, JudgeRole, JudgeVisitor, visitor
from fencepost_judge._settings import JudgeSettings
from fencepost_server.accounts.login import LoginRefused, PasswordLogin
from fencepost_server.accounts.passwords import Passwords
from fencepost_server.accounts.secret import new_secret
from fencepost_server.accounts.sessions import SessionPolicy, Sessions
from fencepost_server.web.forms import address_of, readable

SESSIONS_MAX = 1000
CHALLENGE = {"WWW-Authenticate": 'Basic realm="Contest API", charset="UTF-8"'}


class ApiAuthentication:
    def __init__(
        self, fp: Fencepost, auth: Authentication, settings: JudgeSettings, passwords: Passwords
    ) -> None:
        policy = SessionPolicy(
            settings.session_hours, settings.idle_minutes, "fencepost_judge_api", settings.secure_cookies
        )
        self._fp = fp
        self._auth = auth
        self._policy = policy
        self._sessions = Sessions(fp, ACCOUNTS, policy)
        self._logins: PasswordLogin[JudgeRole] = PasswordLogin(self._sessions, passwords, with_tokens=True)
        self._known: OrderedDict[bytes, str] = OrderedDict()

    async def visitor(self, request: Request) -> JudgeVisitor | None:
        """None for a spectator. Raises for credentials that are wrong."""
        authorization = request.headers.get("authorization", "")
        if not authorization:
            return await self._auth.unasked()
        if authorization.lower().startswith("basic "):
            return await self._by_password(request, authorization[6:])
        found = await self._auth.visitor(authorization)
        if found is None:
            raise HTTPException(401, "This token is unknown, expired or revoked.", CHALLENGE)
        return found

    async def _by_password(self, request: Request, encoded: str) -> JudgeVisitor:
        try:
            name, _, password = base64.b64decode(encoded, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise HTTPException(400, "The Authorization header is no name and password in base64.") from None
        if password.startswith(ACCOUNTS.token_prefix):
            found = visitor(await self._sessions.of_token(password))
            if found is None or found.name != name:
                raise HTTPException(401, "Name or token is wrong.", CHALLENGE)
            return found
        digest = hashlib.sha256(f"{name}:{password}".encode()).digest()
        return await self._of_session(digest) or await self._log_in(request, digest, name, password)

    async def _of_session(self, digest: bytes) -> JudgeVisitor | None:
        session = self._known.get(digest)
        if session is None:
            return None
        idle_seconds = self._policy.idle_minutes * 60
        found = visitor(await self._fp.run(ACCOUNTS.use_session(session, idle_seconds=idle_seconds)))
        if found is None:
            self._known.pop(digest, None)
        return found

    async def _log_in(self, request: Request, digest: bytes, given: str, password: str) -> JudgeVisitor:
        await self._sessions.open()
        try:
            name = await self._logins.check(request, given, password)
        except LoginRefused as refused:
            status = 401 if refused.status == 403 else refused.status
            raise HTTPException(status, refused.reason, CHALLENGE if status == 401 else None) from None
        session = new_secret()
        await self._fp.run(
            ACCOUNTS.begin_session(
                session,
                name,
                lifetime_seconds=self._policy.lifetime_seconds,
                address=address_of(request),
                agent=readable(request.headers.get("user-agent", "")),
            )
        )
        self._known[digest] = session
        while len(self._known) > SESSIONS_MAX:
            self._known.popitem(last=False)
        found = await self._of_session(digest)
        if found is None:
            raise HTTPException(401, "This account has no role in the judge.", CHALLENGE)
        return found
