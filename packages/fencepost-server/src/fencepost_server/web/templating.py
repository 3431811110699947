"""Templates with every value escaped, and the security headers of pages."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fencepost_server.web.formatting import link, moment, number, quoted, rate, span
from fencepost_server.web.words import (
    Catalogue,
    TemplateWords,
    Words,
    script_messages,
    script_words,
    shown_word,
    use,
)

HERE = Path(__file__).parent
HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}


def policy(nonce: str) -> str:
    """The Content-Security-Policy: scripts only with this answer's nonce, the rest only from this host,
    nothing inline."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedPage:
    """What the pages of a service have in common: where they are, and their header."""

    home: str
    name: str
    script: str
    sheets: Sequence[str] = ("app.css",)
    themes: bool = False
    """Whether it has an action that keeps the chosen theme."""
    palette: bool = False
    """Whether its script opens a palette of commands."""


THEME_COOKIE = "theme"
THEMES = ("auto", "light", "dark")


def theme_of(request: Request) -> str:
    """What the visitor chose to see: as the system says, light or dark."""
    chosen = request.cookies.get(THEME_COOKIE, "auto")
    return chosen if chosen in THEMES else "auto"


def readdress(request: Request, **changes: Any) -> str:
    """The address of this page with other parameters; None removes one."""
    kept = [(name, value) for name, value in request.query_params.multi_items() if name not in changes]
    return link(quote(request.url.path, safe="/"), **{**dict(kept), **changes})


class Templates:
    """`folder` has the service's own templates and files; those of this package are available to every
    service."""

    def __init__(
        self,
        paper: RenderedPage,
        folder: Path,
        *,
        filters: Mapping[str, Callable[..., Any]],
        catalogue: Catalogue | None = None,
        more: Sequence[Path] = (),
        **names: Any,
    ) -> None:
        self._home = paper.home
        self._catalogue = catalogue
        self._environment = Environment(
            loader=FileSystemLoader([folder / "templates", *more, HERE / "templates"]),
            autoescape=True,
            undefined=StrictUndefined,
            extensions=[TemplateWords],
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            moment=moment, span=span, number=number, rate=rate, quoted=quoted, **filters
        )
        cast("dict[str, Any]", self._environment.globals).update(
            paper=paper, link=link, say=shown_word, **names
        )
        self._files = {
            path.name: path
            for place in (HERE / "static", folder / "static")
            for path in place.iterdir()
            if path.suffix in _TYPES
        }
        scripts = [path for path in self._files.values() if path.suffix == ".js"]
        self._script_messages = frozenset(
            message for path in scripts for message in script_messages(path.read_text("utf-8"))
        )

    def speak(self, request: Request) -> Words:
        """Answer this request in the language that its visitor reads."""
        accepted = request.headers.get("accept-language", "")
        words = self._catalogue.words_for(accepted) if self._catalogue is not None else Words()
        use(words)
        return words

    def page(
        self,
        request: Request,
        template: str,
        facts: Mapping[str, Any],
        *,
        visitor: object | None,
        navigation: Sequence[tuple[str, str, str]],
        form_token: str = "",
        notice: str | None = None,
        status: int = 200,
    ) -> HTMLResponse:
        """Render a template as an answer, with the headers that every page has."""
        nonce, words = secrets.token_urlsafe(16), self.speak(request)
        told = script_words(words, self._script_messages) if words.messages else ""
        body = self._environment.get_template(template).render(
            facts,
            visitor=visitor,
            form_token=form_token,
            notice=notice,
            nonce=nonce,
            here=request.url.path,
            query=request.url.query,
            navigation=navigation,
            theme=theme_of(request),
            language=words.language,
            script_words=Markup(told),  # noqa: S704 - JSON in which no element can end.
            stays_at=self._stays_at(request),
            now=datetime.now(UTC),
            again=partial(readdress, request),
        )
        return HTMLResponse(body, status, headers={**HEADERS, "Content-Security-Policy": policy(nonce)})

    def _stays_at(self, request: Request) -> str:
        """Where a form of the frame returns to: this page, or the first one where this answers a form."""
        if request.method != "GET":
            return self._home
        return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path

    def file(self, name: str) -> Response | None:
        """A style sheet, a script or a picture; only by an existing name."""
        path = self._files.get(name)
        if path is None:
            return None
        return Response(path.read_bytes(), media_type=_TYPES[path.suffix], headers=dict(HEADERS))
