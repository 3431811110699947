"""The error for a feature of a package that the judge does not support."""

from __future__ import annotations

from fencepost.errors import InvalidInput


def unsupported(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: {what} is not supported, and verdicts would be wrong without it. Nothing was imported.",
        field=name.rpartition("/")[2],
    )
