"""Cookies: signed, HttpOnly, and Secure where the request came by HTTPS."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from fencepost_server.web.forms import readable
from fencepost_server.web.signing import Signer, new_secret

NOTICE_SECONDS = 60.0
NOTICE_MAX = 500
KNOWN_SECONDS = 90 * 86_400.0


@dataclass(frozen=True, slots=True)
class Cookies:
    """The cookies of one service; `notice` names the one that carries a message to the next page."""

    signer: Signer
    notice: str
    secure: bool = False

    def set(self, request: Request, response: Response, name: str, value: str, seconds: float) -> None:
        response.set_cookie(
            name,
            value,
            max_age=int(seconds),
            path="/",
            httponly=True,
            samesite="lax",
            secure=self.secure or request.url.scheme == "https",
        )

    def keep(self, request: Request, response: Response, name: str, text: str, seconds: float) -> None:
        """Set a cookie with any text. It cannot be forged, nor used as another cookie."""
        self.set(request, response, name, self.signer.signed(text.encode().hex(), purpose=name), seconds)

    def kept(self, request: Request, name: str) -> str | None:
        value = self.signer.opened(request.cookies.get(name, ""), purpose=name)
        return None if value is None else bytes.fromhex(value).decode()

    def remember(self, request: Request, response: Response, cookie: str, user: str) -> None:
        """Remember that this browser has logged in as the user. It stays known after the session has
        ended."""
        known = self.known(request, cookie, user) or new_secret()
        self.keep(request, response, cookie, f"{known} {user}", KNOWN_SECONDS)

    def known(self, request: Request, cookie: str, user: str) -> str | None:
        """The id of this browser if it has logged in as this user before; None otherwise."""
        known, _, name = (self.kept(request, cookie) or "").partition(" ")
        return known if name == user and known else None

    def leave_notice(self, request: Request, response: Response, text: str) -> None:
        """Store one message for the next page. It is signed; otherwise a link could make our pages show any
        text."""
        self.keep(request, response, self.notice, readable(text)[:NOTICE_MAX], NOTICE_SECONDS)

    def take_notice(self, request: Request, response: Response) -> None:
        """Delete the notice once a page shows it."""
        if self.notice in request.cookies:
            response.delete_cookie(self.notice, path="/")
