"""Renders statements: Markdown with formulas, as HTML without active content.

Tags in a statement are text. From a formula only the elements and attributes below are kept: links, styles
and classes from LaTeX are removed. A formula that cannot be parsed is shown as it was written.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup
from mdit_py_plugins.dollarmath import dollarmath_plugin

FORMULA_MAX = 2000
KEPT_STATEMENTS = 128
# A definition that uses another one twice, nested ten deep, would exhaust the memory.
MACROS = (r"\def", r"\newcommand", r"\renewcommand", r"\let")
ELEMENTS = frozenset(
    [
        "math",
        "mrow",
        "mi",
        "mn",
        "mo",
        "mtext",
        "mspace",
        "msub",
        "msup",
        "msubsup",
        "munder",
        "mover",
        "munderover",
        "mfrac",
        "msqrt",
        "mroot",
        "mstyle",
        "mtable",
        "mtr",
        "mtd",
        "mpadded",
        "mphantom",
        "menclose",
        "mmultiscripts",
        "mprescripts",
        "none",
        "merror",
        "semantics",
    ]
)
ATTRIBUTES = frozenset(
    [
        "display",
        "mathvariant",
        "stretchy",
        "fence",
        "form",
        "separator",
        "accent",
        "accentunder",
        "movablelimits",
        "largeop",
        "symmetric",
        "lspace",
        "rspace",
        "width",
        "height",
        "depth",
        "minsize",
        "maxsize",
        "linethickness",
        "columnalign",
        "rowalign",
        "columnspacing",
        "rowspacing",
        "displaystyle",
        "scriptlevel",
        "linebreak",
        "notation",
    ]
)


def render(statement: str, title: str) -> Markup:
    """The statement as HTML. A heading that repeats the page's title is removed; other headings of level 1
    become level 2."""
    return Markup(_rendered(statement, title))  # noqa: S704 - Made by us, from what the parser has escaped.


def render_report(text: str) -> Markup:
    """A text of ours in Markdown, which may be long and is not kept."""
    return Markup(_parser().render(text, {"title": ""}))  # noqa: S704 - As above.


@lru_cache(KEPT_STATEMENTS)
def _rendered(statement: str, title: str) -> str:
    return str(_parser().render(statement, {"title": title}))


@lru_cache(1)
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.use(dollarmath_plugin, allow_labels=False, allow_digits=False, renderer=_formula)
    parser.core.ruler.push("below_the_title", _below_the_title)
    parser.add_render_rule("image", _described)
    parser.add_render_rule("link_open", _link)
    parser.add_render_rule("table_open", _scrolling)
    parser.add_render_rule("table_close", _scrolled)
    return parser


def _below_the_title(state: StateCore) -> None:
    tokens = state.tokens
    if len(tokens) > 2 and tokens[0].type == "heading_open" and tokens[1].content == state.env["title"]:
        del tokens[:3]
    for token in tokens:
        if token.tag == "h1":
            token.tag = "h2"


def _described(
    self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType
) -> str:
    """The text of an image: packages contain no images here, and none are loaded from other hosts."""
    words = self.renderInlineAsText(tokens[index].children, options, env)
    return f'<span class="picture">{html.escape(words or "picture")}</span>'


def _link(self: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: EnvType) -> str:
    tokens[index].attrSet("rel", "noopener noreferrer nofollow")
    return str(self.renderToken(tokens, index, options, env))


def _scrolling(*_: Any) -> str:
    """A wide table scrolls inside its own frame, also with the keyboard."""
    return '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>\n'


def _scrolled(*_: Any) -> str:
    return "</table></div>\n"


def _formula(source: str, options: Mapping[str, Any]) -> str:
    if len(source) > FORMULA_MAX or any(macro in source for macro in MACROS):
        return _as_written(source)
    try:
        tree = convert_to_element(source, display="block" if options["display_mode"] else "inline")
        return _written(tree)
    except Exception:
        # An untrusted formula can raise anything in the library.
        return _as_written(source)


def formula(source: str, *, display: bool) -> str:
    """A formula alone, as MathML."""
    return _formula(source, {"display_mode": display})


def _as_written(source: str) -> str:
    return f'<code class="tex">{html.escape(source)}</code>'


def _written(element: Element) -> str:
    inside = "".join(_written(child) + _words(child.tail) for child in element)
    if element.tag not in ELEMENTS:
        return inside
    attributes = "".join(
        f' {name}="{html.escape(value)}"' for name, value in element.attrib.items() if name in ATTRIBUTES
    )
    return f"<{element.tag}{attributes}>{_words(element.text)}{inside}</{element.tag}>"


def _words(text: str | None) -> str:
    """The library writes characters as references; a reference in the statement itself is only text."""
    return html.escape(html.unescape(text or ""), quote=False)
