"""The statements of a package: Markdown, TeX, HTML and PDF, in several languages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fencepost.errors import InvalidInput
from fencepost_judge._problem import StatementFile
from fencepost_judge._store import Store
from fencepost_judge.packages._tex import markdown_of

FORMATS: dict[str, Literal["markdown", "html", "tex", "pdf"]] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".tex": "tex",
    ".pdf": "pdf",
}
TEXT_BYTES_MAX = 500_000
PDF_BYTES_MAX = 64 << 20
STATEMENTS_MAX = 60
ORDER = ("markdown", "tex", "html", "pdf")
"""What is shown where one language has several forms."""
_NAME = re.compile(r"problem(?:\.([A-Za-z][A-Za-z0-9_-]{0,39}))?")


@dataclass(frozen=True, slots=True)
class Statements:
    """`markdown` is the text that is shown first; empty when there is only HTML or a PDF."""

    markdown: str
    files: Sequence[StatementFile]


def found_in(folder: Path) -> list[tuple[str, Path]]:
    """Languages and files of a folder in the ICPC format: `problem.LANGUAGE.EXTENSION`; English if none."""
    found: list[tuple[str, Path]] = []
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            named = _NAME.fullmatch(path.stem)
            if named is not None and path.suffix in FORMATS and path.is_file():
                found.append((named[1] or "en", path))
    return found


def read_statements(
    places: Sequence[tuple[str, Path]], store: Store, fill: Callable[[str], str] = str
) -> Statements:
    """Puts the files into the store. `fill` changes the texts that are Markdown or TeX."""
    if len(places) > STATEMENTS_MAX:
        raise InvalidInput(f"The package has more than {STATEMENTS_MAX} statements.", field="statement")
    ranked = sorted(places, key=_rank)
    files: list[StatementFile] = []
    texts: dict[str, str] = {}
    for language, path in ranked:
        kind = FORMATS[path.suffix]
        if path.stat().st_size > (PDF_BYTES_MAX if kind == "pdf" else TEXT_BYTES_MAX):
            raise InvalidInput(f"{path.name} is too large for a statement.", field=path.name)
        content = path.read_bytes()
        if kind == "pdf":
            if not content.startswith(b"%PDF-"):
                raise InvalidInput(f"{path.name} is no PDF.", field=path.name)
        else:
            text = content.decode("utf-8-sig", "replace")
            text = text if kind == "html" else fill(text)
            texts.setdefault(f"{language}/{kind}", text)
            content = text.encode()
        files.append(StatementFile(language=language, format=kind, content=store.put(content)))
    return Statements(_shown(files, texts), [one for one in files if not _is_plain(one, files)])


def _rank(place: tuple[str, Path]) -> tuple[bool, str, int, str]:
    language, path = place
    return language != "en", language, ORDER.index(FORMATS[path.suffix]), path.name


def _shown(files: Sequence[StatementFile], texts: dict[str, str]) -> str:
    """Of the first language: as it is, or from TeX."""
    first = files[0].language if files else ""
    if f"{first}/markdown" in texts:
        return texts[f"{first}/markdown"]
    return markdown_of(texts[f"{first}/tex"]) if f"{first}/tex" in texts else ""


def _is_plain(one: StatementFile, files: Sequence[StatementFile]) -> bool:
    """Markdown of the only language is stored with the problem, and nowhere else."""
    return one.format == "markdown" and len(files) == 1
