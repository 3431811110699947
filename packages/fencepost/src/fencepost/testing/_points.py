"""The crash points and announcements of a package, read from its source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HOOKS = ("crash_point", "announce")


@dataclass(frozen=True)
class Point:
    """One name in one place. `*` stands for a part that is filled in at run time, None for an unreadable
    name."""

    hook: str
    name: str | None
    file: Path
    line: int


def points_in(folder: Path) -> Iterator[Point]:
    """Every point in the Python files below a folder."""
    for file in sorted(folder.rglob("*.py")):
        text = file.read_text()
        # Most files have none, and parsing those too takes six times as long.
        if not any(hook in text for hook in HOOKS):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and (hook := _hook(node)) is not None:
                for name in _names(node):
                    yield Point(hook, name, file.relative_to(folder), node.lineno)


def _hook(call: ast.Call) -> str | None:
    """Matches only the bare name: a method of that name is unrelated."""
    return call.func.id if isinstance(call.func, ast.Name) and call.func.id in HOOKS else None


def _names(call: ast.Call) -> Iterator[str | None]:
    match call.args:
        case [ast.IfExp(body=first, orelse=second)]:
            yield _name(first)
            yield _name(second)
        case [argument]:
            yield _name(argument)
        case _:
            yield None


def _name(node: ast.expr) -> str | None:
    match node:
        case ast.Constant(value=str(name)):
            return name
        case ast.JoinedStr(values=parts):
            return "".join(_name(part) or "*" for part in parts)
        case _:
            return None
