"""Rewrites a statement in HTML: only the elements below, with no attributes but the size of cells.

What runs, loads or leads to a page of another kind is left out with its content. Formulas between dollars, as
Polygon writes them, become MathML.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from html.parser import HTMLParser

from markupsafe import Markup

from fencepost_judge.pages._statement import KEPT_STATEMENTS, formula

KEPT = frozenset(
    [
        "p",
        "br",
        "hr",
        "ul",
        "ol",
        "li",
        "table",
        "thead",
        "tbody",
        "tfoot",
        "tr",
        "td",
        "th",
        "pre",
        "code",
        "b",
        "strong",
        "i",
        "em",
        "u",
        "s",
        "sub",
        "sup",
        "blockquote",
        "dl",
        "dt",
        "dd",
        "div",
        "span",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ]
)
EMPTY = frozenset(["br", "hr"])
LEFT_OUT = frozenset(
    [
        "script",
        "style",
        "head",
        "title",
        "iframe",
        "object",
        "embed",
        "svg",
        "math",
        "form",
        "template",
        "noscript",
    ]
)
"""With everything in them."""
WITHOUT = frozenset(["header", "sample-tests"])
"""Classes of what the page shows itself: the title with the limits, and the samples."""
SPANS = ("colspan", "rowspan")
DEPTH_MAX = 100
_FORMULA = re.compile(
    r"\$\$\$\$\$\$(.+?)\$\$\$\$\$\$|\$\$\$(.+?)\$\$\$|\$\$(.+?)\$\$|\$([^$\n]+?)\$", re.DOTALL
)


def render_html(text: str) -> Markup:
    """The statement as HTML without active content."""
    return Markup(_rendered(text))  # noqa: S704 - Made by us, from names on a list and escaped text.


@lru_cache(KEPT_STATEMENTS)
def _rendered(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return reader.written()


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._parts: list[str] = []
        self._open: list[str] = []
        self._hidden = 0
        """How deep within something that is left out."""

    def written(self) -> str:
        return "".join([*self._parts, *(f"</{name}>" for name in reversed(self._open))])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = dict(attrs)
        if tag in ("img", "br", "hr", "input", "meta", "link", "wbr", "source", "col"):
            self._empty(tag, said)
            return
        classes = set((said.get("class") or "").split())
        if self._hidden or tag in LEFT_OUT or classes & WITHOUT:
            self._hidden += 1
            return
        if tag in KEPT and len(self._open) < DEPTH_MAX:
            name = "h2" if tag == "h1" or "section-title" in classes else tag
            sizes = "".join(
                f' {key}="{int(value)}"'
                for key in SPANS
                if (value := said.get(key) or "").isdecimal() and len(value) < 3
            )
            self._parts.append(f"<{name}{sizes}>")
            self._open.append(name)

    def _empty(self, tag: str, said: dict[str, str | None]) -> None:
        if self._hidden:
            return
        if tag in EMPTY:
            self._parts.append(f"<{tag}>")
        elif tag == "img":
            words = html.escape((said.get("alt") or "picture")[:200])
            self._parts.append(f'<span class="picture">{words}</span>')

    def handle_endtag(self, tag: str) -> None:
        if self._hidden:
            self._hidden -= tag not in EMPTY
            return
        names = ("h2", tag) if tag in ("h1", "div") else (tag,)
        place = next((i for i in range(len(self._open) - 1, -1, -1) if self._open[i] in names), None)
        if place is not None:
            self._parts += [f"</{name}>" for name in reversed(self._open[place:])]
            del self._open[place:]

    def handle_data(self, data: str) -> None:
        if self._hidden:
            return
        if "pre" in self._open or "code" in self._open:
            self._parts.append(html.escape(data, quote=False))
            return
        at = 0
        for found in _FORMULA.finditer(data):
            self._parts.append(html.escape(data[at : found.start()], quote=False))
            block = found[1] or found[3]
            source = block or found[2] or found[4]
            self._parts.append(formula(source, display=bool(block)))
            at = found.end()
        self._parts.append(html.escape(data[at:], quote=False))
