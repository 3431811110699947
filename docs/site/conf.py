"""How Sphinx builds the site: the repository's own Markdown, with every broken link an error.

The source is the root of the repository, so that a link means the same here as in a folder of plain files.
The navigation is not written twice: each `README.md` below `docs/` lists its pages: that list is the tree.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]

project = "Fencepost"
version = release = tomllib.loads((ROOT / "packages/fencepost/pyproject.toml").read_text())["project"][
    "version"
]
author = "the Fencepost developers"
language = "en"

extensions = ["myst_parser"]
root_doc = "docs/README"
include_patterns = [
    "docs/**",
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "deploy/chart/README.md",
    "examples/coupons/README.md",
    "specs/README.md",
]
exclude_patterns = [".*", "dist", "packages", "bench", "tests", "docs/site"]

myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = ["misc.highlighting_failure"]  # A prompt and two lines of input are no valid shell.

html_theme = "furo"
html_title = f"Fencepost {release}"
html_static_path = ["static"]
html_js_files = ["versions.js"]
html_css_files = ["versions.css"]
templates_path = ["templates"]
html_copy_source = False
html_show_copyright = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

LISTED = re.compile(r"^- \[[^\]]+\]\(([^)#]+)\.md\)")


def tree_of(text: str) -> str:
    """The hidden toctrees of an index page: one for each heading, of the pages that its list begins with."""
    trees: list[str] = []
    heading, pages = "", list[str]()
    for line in [*text.splitlines(), "## end"]:
        if line.startswith("## "):
            if pages:
                caption = [f":caption: {heading}"] if heading else []
                trees.append("\n".join(["```{toctree}", ":hidden:", *caption, "", *pages, "```"]))
            heading, pages = line.removeprefix("## "), []
        elif found := LISTED.match(line):
            pages.append(found[1])
    return "\n\n".join(trees)


def add_tree(_app: Sphinx, docname: str, source: list[str]) -> None:
    if docname.startswith("docs/") and docname.endswith("README"):
        source[0] += f"\n\n{tree_of(source[0])}\n"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("source-read", add_tree)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
