"""What is stored and logged of a handler's exception: bounded, storable, without secrets."""

from __future__ import annotations

import traceback

from fencepost.redaction import redact_text

ERROR_CHARACTERS_MAX = 2000
TRACEBACK_CHARACTERS_MAX = 8192
_READ_MAX = 8 * TRACEBACK_CHARACTERS_MAX
"""More than is kept: a secret that begins before the kept part must be found by its name."""


def error_text(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = f"{type(error).__name__}, whose message cannot be read"
    return stored_text(text)


def stored_text(text: str) -> str:
    """The text as PostgreSQL can store it: bounded, and without secrets."""
    return _storable(redact_text(text[:_READ_MAX])[:ERROR_CHARACTERS_MAX])


def traceback_text(error: BaseException) -> str:
    """The traceback from the handler's own frame on, its causes first. Its end is kept: it has the exception.

    Never raises: an exception may be of any class, and may fail when it is shown.
    """
    try:
        frames = error.__traceback__
        while frames and str(frames.tb_frame.f_globals.get("__name__")).startswith("fencepost.jobs."):
            frames = frames.tb_next
        text = "".join(traceback.format_exception(type(error), error, frames)).rstrip()
    except Exception as failure:
        text = f"the traceback of {type(error).__name__} cannot be shown: {type(failure).__name__}"
    return _storable(redact_text(text[-_READ_MAX:])[-TRACEBACK_CHARACTERS_MAX:])


def _storable(text: str) -> str:
    return text.replace("\0", "").encode(errors="replace").decode()
