"""Cookies: signed, for the server alone, and only over HTTPS where there is HTTPS."""

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
    """Those of one part; `notice` names the one that carries a sentence to the next page."""

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
        """Any text. It cannot be made up, nor taken for another cookie."""
        self.set(request, response, name, self.signer.signed(text.encode().hex(), purpose=name), seconds)

    def kept(self, request: Request, name: str) -> str | None:
        value = self.signer.opened(request.cookies.get(name, ""), purpose=name)
        return None if value is None else bytes.fromhex(value).decode()

    def remember(self, request: Request, response: Response, cookie: str, user: str) -> None:
        """This browser was let in as the user. It stays one that is known when the session has ended."""
        known = self.known(request, cookie, user) or new_secret()
        self.keep(request, response, cookie, f"{known} {user}", KNOWN_SECONDS)

    def known(self, request: Request, cookie: str, user: str) -> str | None:
        """Which of the browsers it is that were let in as this user; None when it is none of them."""
        known, _, name = (self.kept(request, cookie) or "").partition(" ")
        return known if name == user and known else None

    def leave_notice(self, request: Request, response: Response, text: str) -> None:
        """One sentence for the next page. Signed, or a link could put words into our mouth."""
        self.keep(request, response, self.notice, readable(text)[:NOTICE_MAX], NOTICE_SECONDS)

    def take_notice(self, request: Request, response: Response) -> None:
        """The page that shows it takes it away."""
        if self.notice in request.cookies:
            response.delete_cookie(self.notice, path="/")
