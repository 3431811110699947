"""The site is built from plain Markdown, fails on a broken link, and loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site.conf import tree_of

CONFIGURATION = Path(__file__).parents[3] / "docs/site"


def build(pages: dict[str, str], place: Path) -> "subprocess.CompletedProcess[str]":
    for name, text in pages.items():
        (place / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (place / "docs" / name).write_text(text)
    options = ["--fail-on-warning", "--keep-going", "--quiet", "--conf-dir", str(CONFIGURATION)]
    command = [sys.executable, "-m", "sphinx", *options, str(place), str(place / "site")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_listed_page_is_in_the_navigation_and_no_asset_comes_from_elsewhere(tmp_path: Path) -> None:
    index = "# Index\n\n## Pages\n\n- [Other](how-to/other.md): with [a part](how-to/other.md#part-two)\n"
    run = build({"README.md": index, "how-to/other.md": "# Other\n\n## Part two\n"}, tmp_path)

    assert run.returncode == 0, run.stderr
    page = (tmp_path / "site/docs/README.html").read_text()
    assert '<p class="caption" role="heading"><span class="caption-text">Pages</span></p>' in page
    assert 'class="versions"' in page
    for file in [*(tmp_path / "site").rglob("*.html"), *(tmp_path / "site").rglob("*.css")]:
        loaded = re.findall(r"""(?:src=|<link[^>]*href=|url\(|@import )["']?(https?:)?//""", file.read_text())
        assert loaded == [], file


def test_a_broken_link_a_broken_anchor_and_a_page_outside_of_the_navigation_are_errors(
    tmp_path: Path,
) -> None:
    index = "# Index\n\n## Pages\n\n- [Other](other.md#nowhere)\n- [Other](other.md)\n- [Gone](gone.md)\n"
    run = build({"README.md": index, "other.md": "# Other\n", "lost.md": "# Lost\n"}, tmp_path)

    assert run.returncode != 0
    assert "'nowhere'" in run.stderr
    assert "docs/gone" in run.stderr
    assert re.search(
        r"lost\.md.*not included in any toctree|lost\.md.*isn't included in any toctree", run.stderr
    )


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("# Title\n\nNo [list](a.md).\n", ""),
        ("- [A](a.md)\n", "```{toctree}\n:hidden:\n\na\n```"),
        ("## Part\n\n- [A](a.md), [B](b.md)\n", "```{toctree}\n:hidden:\n:caption: Part\n\na\n```"),
    ],
)
def test_what_an_index_lists_is_the_tree(text: str, tree: str) -> None:
    assert tree_of(text) == tree
