"""What is stored and logged of a handler's exception: bounded, storable, without secrets."""

from __future__ import annotations

import re
import signal
import traceback
from collections.abc import Iterator

from fencepost.redaction import redact_text

ERROR_CHARACTERS_MAX = 2000
TRACEBACK_CHARACTERS_MAX = 8192
_NO_PRIVILEGE = "42501"
_DENIED = re.compile(r"permission denied for (table|view|relation|sequence) (\S+)")
_READ_MAX = 8 * TRACEBACK_CHARACTERS_MAX
"""More than is kept: a secret that begins before the kept part must be found by its name."""


def error_text(error: BaseException) -> str:
    try:
        text = f"{type(error).__name__}: {error}{_remedy(error)}"
    except Exception:
        text = f"{type(error).__name__}, whose message cannot be read"
    return stored_text(text)


def _remedy(error: BaseException) -> str:
    """What to do when the application role may not use a table of the user's: whatever driver says so."""
    told = next((one for one in _causes(error) if getattr(one, "sqlstate", None) == _NO_PRIVILEGE), None)
    denied = _DENIED.search(str(told)) if told is not None else None
    if denied is None:
        return ""
    what, name = denied.groups()
    table = name if what != "sequence" else "TABLE"
    return f"\nJobs run as a role that owns no tables. Grant it yours: fencepost grant {table}"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and what its library wraps in it: SQLAlchemy in `orig`, Django as the cause."""
    seen = 0
    one: BaseException | None = error
    while one is not None and seen < 10:
        yield one
        one, seen = getattr(one, "orig", None) or one.__cause__, seen + 1


def stored_text(text: str) -> str:
    """The text as PostgreSQL can store it: bounded, and without secrets."""
    return _storable(redact_text(text[:_READ_MAX])[:ERROR_CHARACTERS_MAX])


def process_end_text(exit_code: int) -> str:
    """How a process ended, by its exit code as Python reports it: negative for a signal."""
    if exit_code >= 0:
        return f"its process ended with exit code {exit_code}"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    memory = " (the system ends a process like this when memory runs out)"
    return f"its process was killed by {name}{memory if -exit_code == signal.SIGKILL else ''}"


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
