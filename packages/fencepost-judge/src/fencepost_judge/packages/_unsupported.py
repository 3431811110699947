"""The errors for what a package asks and the judge does not support, and for a limit that it cannot keep."""

from __future__ import annotations

from pydantic import ValidationError

from fencepost.errors import InvalidInput


def unsupported(name: str, what: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: {what} is not supported, and verdicts would be wrong without it. Nothing was imported.",
        field=name.rpartition("/")[2],
    )


def out_of_range(name: str, error: Exception) -> InvalidInput:
    """Names the limit in the unit in which it is stored, which its own name says."""
    said = str(error)
    if isinstance(error, ValidationError):
        detail = error.errors(include_url=False)[0]
        said = f"{detail['loc'][0]} of {detail['input']}: {detail['msg']}"
    return InvalidInput(f"{name}: a limit is out of its range: {said}.", field="limits")
