"""Cookies: signed (itsdangerous), HttpOnly, and Secure where the request came by HTTPS.

A session's cookie carries a random secret. The database has its digest; the signature keeps invented secrets
from reaching the database. The token that protects forms against requests from other sites is derived from
the secret too.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from fastapi import Request, Response
from itsdangerous import BadData, Signer, URLSafeTimedSerializer

from fencepost_server.accounts.secret import new_secret
from fencepost_server.web.forms import readable

NOTICE_SECONDS = 60.0
NOTICE_MAX = 500
KNOWN_SECONDS = 90 * 86_400.0
_DERIVATION = "hmac"


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies of one service. Their names begin with `prefix`; no cookie can be used as another one."""

    key: bytes
    prefix: str
    secure: bool = False

    def keep(self, request: Request, response: Response, name: str, text: str, seconds: float) -> None:
        """Set a cookie with any text. It cannot be forged, and is accepted for so many seconds."""
        response.set_cookie(
            f"{self.prefix}_{name}",
            self.signed(name, text),
            max_age=int(seconds),
            path="/",
            httponly=True,
            samesite="lax",
            secure=self._is_secure(request),
        )

    def kept(self, request: Request, name: str, seconds: float) -> str | None:
        return self.opened(name, request.cookies.get(f"{self.prefix}_{name}", ""), seconds)

    def delete(self, request: Request, response: Response, name: str) -> None:
        response.delete_cookie(
            f"{self.prefix}_{name}",
            path="/",
            httponly=True,
            samesite="lax",
            secure=self._is_secure(request),
        )

    def signed(self, name: str, text: str) -> str:
        return str(self._serializer(name).dumps(text))

    def opened(self, name: str, value: str, seconds: float) -> str | None:
        """The text, or None when the signature is not ours or is older than so many seconds."""
        try:
            text = self._serializer(name).loads(value, max_age=int(seconds))
        except (BadData, ValueError):
            return None
        return text if isinstance(text, str) else None

    def form_token(self, secret: str) -> str:
        """The token in every form of this session; another site can neither read nor compute it."""
        return self._form().get_signature(secret).decode()

    def is_form_token(self, given: str, secret: str) -> bool:
        return self._form().verify_signature(secret, given.encode(errors="replace"))

    def remember(self, request: Request, response: Response, user: str) -> None:
        """Remember that this browser has logged in as the user. It stays known after the session has
        ended."""
        known = self.known(request, user) or new_secret()
        self.keep(request, response, "known", f"{known} {user}", KNOWN_SECONDS)

    def known(self, request: Request, user: str) -> str | None:
        """The id of this browser if it has logged in as this user before; None otherwise."""
        known, _, name = (self.kept(request, "known", KNOWN_SECONDS) or "").partition(" ")
        return known if name == user and known else None

    def leave_notice(self, request: Request, response: Response, text: str) -> None:
        """Store one message for the next page. It is signed; otherwise a link could make our pages show any
        text."""
        self.keep(request, response, "notice", readable(text)[:NOTICE_MAX], NOTICE_SECONDS)

    def notice(self, request: Request) -> str | None:
        return self.kept(request, "notice", NOTICE_SECONDS)

    def take_notice(self, request: Request, response: Response) -> None:
        """Delete the notice once a page shows it."""
        if f"{self.prefix}_notice" in request.cookies:
            self.delete(request, response, "notice")

    def _is_secure(self, request: Request) -> bool:
        return self.secure or request.url.scheme == "https"

    def _serializer(self, name: str) -> URLSafeTimedSerializer:
        return URLSafeTimedSerializer(
            self.key,
            salt=f"{self.prefix}_{name}",
            signer_kwargs={"key_derivation": _DERIVATION, "digest_method": hashlib.sha256},
        )

    def _form(self) -> Signer:
        return Signer(
            self.key,
            salt=f"{self.prefix}_form",
            key_derivation=_DERIVATION,
            digest_method=hashlib.sha256,
        )
