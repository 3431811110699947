"""A short-lived PostgreSQL connection for a command. Its errors become messages that say what to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg

from fencepost.cli.exit_codes import UserError
from fencepost.errors import SchemaMissing, ServerUnavailable
from fencepost.redaction import redact_text, redact_url
from fencepost.server_addresses import CHECK_THE_URL

Reader = psycopg.Connection[tuple[Any, ...]]


@contextmanager
def reading(url: str, *, seconds: float = 5.0, remedy: str = CHECK_THE_URL) -> Generator[Reader]:
    """A connection in autocommit mode. `remedy` ends the error message when the server cannot be reached."""
    with _connect(url, seconds, remedy) as connection, _explained(url):
        yield connection


def _connect(url: str, seconds: float, remedy: str) -> Reader:
    try:
        return psycopg.connect(
            url,
            autocommit=True,
            connect_timeout=max(1, round(seconds)),
            application_name="fencepost-cli",
            prepare_threshold=None,  # A watching command may connect through a pooler.
        )
    except psycopg.OperationalError as error:
        raise ServerUnavailable(
            f"PostgreSQL cannot be reached at {redact_url(url)}: {first_line(error)}\n{remedy}"
        ) from None


@contextmanager
def _explained(url: str) -> Generator[None]:
    try:
        yield
    except (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn) as error:
        raise SchemaMissing(
            f"{redact_url(url)} has no Fencepost schema, or an older one: {first_line(error)}\n"
            "Run `fencepost migrate`."
        ) from None
    except pg.InsufficientPrivilege as error:
        raise UserError(
            f"This role may not read: {first_line(error)}\n"
            "Grant it fencepost_read (to look) or fencepost_app (to work)."
        ) from None
    except psycopg.OperationalError as error:
        raise ServerUnavailable(f"PostgreSQL at {redact_url(url)} went away: {first_line(error)}") from None


def first_line(error: BaseException) -> str:
    """The first line of an error, which says what happened; the others say where."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return redact_text(lines[0]) if lines else type(error).__name__
