"""Cookies: signed, for the server alone, and only over HTTPS where there is HTTPS."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response

from fencepost.web.forms import readable
from fencepost.web.seal import Seal

NOTICE_SECONDS = 60.0
NOTICE_MAX = 500


@dataclass(frozen=True, slots=True)
class Cookies:
    """Those of one part; `notice` names the one that carries a sentence to the next page."""

    seal: Seal
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
        self.set(request, response, name, self.seal.signed(text.encode().hex(), purpose=name), seconds)

    def kept(self, request: Request, name: str) -> str | None:
        value = self.seal.opened(request.cookies.get(name, ""), purpose=name)
        return None if value is None else bytes.fromhex(value).decode()

    def leave_notice(self, request: Request, response: Response, text: str) -> None:
        """One sentence for the next page. Signed, or a link could put words into our mouth."""
        self.keep(request, response, self.notice, readable(text)[:NOTICE_MAX], NOTICE_SECONDS)

    def take_notice(self, request: Request, response: Response) -> None:
        """The page that shows it takes it away."""
        if self.notice in request.cookies:
            response.delete_cookie(self.notice, path="/")
