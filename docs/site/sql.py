"""The page of SQL functions: the signature and the header of each that an application may call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PACKAGES = Path(__file__).parents[2] / "packages"
FUNCTION = re.compile(r"^create or replace function (fencepost\.\w+)", re.MULTILINE)
BODY = re.compile(r"\s*\n?(language|security|as) ", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SqlFunction:
    """One function: its name, its signature without the body, and the comment above it."""

    name: str
    signature: str
    header: str


INTRODUCTION = """\
Every function of the schema `fencepost` whose name has no underscore in front, with the comment that stands
above it in the source: what it promises, which lock it takes, which index serves it.
[The kernel](../reference/kernel.md) explains how they belong together."""


def page() -> str:
    lines = ["# SQL functions", "", INTRODUCTION]
    for path in files():
        if found := [one for one in functions(path.read_text(encoding="utf-8")) if "._" not in one.name]:
            lines += ["", f"## {path.relative_to(PACKAGES).parts[0]}: {path.name}"]
            for one in found:
                lines += [
                    "",
                    f"**{one.name.removeprefix('fencepost.')}**",
                    "",
                    "```sql",
                    one.signature,
                    "```",
                    "",
                    one.header,
                ]
    return "\n".join(lines) + "\n"


def files() -> list[Path]:
    """The library's first, in the order of their names."""
    return sorted(
        PACKAGES.glob("*/src/**/functions/*.sql"), key=lambda path: path.relative_to(PACKAGES).parts
    )


def functions(text: str) -> Iterator[SqlFunction]:
    for found in FUNCTION.finditer(text):
        yield SqlFunction(found[1], _signature(text[found.start() :]), _header(text[: found.start()]))


def _signature(text: str) -> str:
    """Up to the closing bracket of the arguments, and what it returns."""
    depth = 0
    for place, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ")" and depth == 0:
            rest = BODY.split(text[place + 1 :].partition("$$")[0], maxsplit=1)[0]
            whole = text[len("create or replace function ") : place + 1] + " " + " ".join(rest.split())
            return re.sub(r"[ \t]*--[^\n]*", "", whole).strip()
    raise ValueError(f"A function without an end of its arguments: {text[:80]}")


def _header(before: str) -> str:
    """The comment right above, as prose: a comment's indented lines stay as they are."""
    lines: list[str] = []
    for line in reversed(before.splitlines()):
        if not line.startswith("--"):
            break
        lines.append(line.removeprefix("--").removeprefix(" "))
    return "\n".join(reversed(lines)).strip()
