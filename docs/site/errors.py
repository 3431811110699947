"""The page of errors: the tree, and one row for each code."""

from __future__ import annotations

import inspect
import textwrap

from fencepost import errors
from fencepost.errors import REFUSALS, FencepostError

REFUSED = """\
A refusal carries `reason`, `noun`, `subject`, `attempted` (what the caller presented) and `seen` (the row
that the database judged). [The kernel](../reference/kernel.md) says what each function refuses."""


def page() -> str:
    tree = (inspect.getdoc(errors) or "").split("\n\n")[1]
    lines = [
        "# Errors and reasons of refusals",
        "",
        "Each error is importable from `fencepost`. Codes and reasons are stable.",
        "",
        "```text",
        textwrap.dedent(tree),
        "```",
        "",
        "## Refusals",
        "",
        REFUSED,
        "",
        "| SQLSTATE | reason | class | meaning |",
        "|---|---|---|---|",
    ]
    for reason, refusal in sorted(REFUSALS.items(), key=lambda item: item[1].sqlstate):
        lines.append(f"| {refusal.sqlstate} | `{reason}` | `{refusal.__name__}` | {_first(refusal)} |")
    lines += ["", "## Other errors", "", "| SQLSTATE | class | meaning |", "|---|---|---|"]
    for name in errors_beside():
        cls: type[FencepostError] = getattr(errors, name)
        lines.append(f"| {getattr(cls, 'sqlstate', '')} | `{name}` | {_first(cls)} |")
    return "\n".join(lines) + "\n"


def errors_beside() -> list[str]:
    """Errors that are no refusal, in the order of their definition."""
    return [
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value)
        and issubclass(value, FencepostError)
        and not issubclass(value, errors.Refusal)
        and value is not FencepostError
    ]


def _first(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
