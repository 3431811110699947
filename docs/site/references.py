"""`make references`: the pages that are written from code and from other pages.

indexes     README.md of each folder, from the titles of its pages: committed, and a test compares them
generated/  API, commands, settings, metrics, errors and SQL functions, from the code: written before each
            build of the site and not committed, so that they are never older than the code
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from docs.site import api, commands, errors, index, metrics, settings, sql

DOCS = Path(__file__).parents[1]
NOTICE = "<!-- Written by `make references`. -->\n\n"
OVERVIEW = """# Generated reference

What the code says of itself, written anew by `make references` and by each build of the site.

- [API](api/README.md)
- [Commands](commands.md)
- [Settings](settings.md)
- [Metrics](metrics.md)
- [Errors and reasons of refusals](errors.md)
- [SQL functions](sql-functions.md)
"""


def generated() -> dict[str, str]:
    """Path below docs/ to text: pages that are not committed."""
    made = {
        "README.md": OVERVIEW,
        **api.pages(),
        "commands.md": commands.page(),
        "settings.md": settings.page(),
        "metrics.md": metrics.page(),
        "errors.md": errors.page(),
        "sql-functions.md": sql.page(),
    }
    return {f"generated/{path}": NOTICE + _tidy(text) for path, text in made.items()}


def indexes(docs: Path = DOCS) -> dict[str, str]:
    """Path below docs/ to text: pages that are committed."""
    return {path: NOTICE + text for path, text in index.pages(docs).items()}


def differing(made: Mapping[str, str], docs: Path = DOCS) -> list[str]:
    """Pages whose text on the disk is another."""
    return sorted(path for path, text in made.items() if _read(docs / path) != text)


def write(made: Mapping[str, str], docs: Path = DOCS) -> None:
    """Write what differs: the build of the site reads unchanged pages from its cache."""
    for path in differing(made, docs):
        (docs / path).parent.mkdir(parents=True, exist_ok=True)
        (docs / path).write_text(made[path], encoding="utf-8")


def _tidy(text: str) -> str:
    """Without the spaces at the ends of lines that an empty cell or a docstring leaves."""
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> int:
    write(generated() | indexes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
