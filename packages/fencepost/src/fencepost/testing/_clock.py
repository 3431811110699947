"""The clock of a test's database, set by the test."""

from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from importlib.resources import files
from types import TracebackType
from typing import Any, LiteralString, Self, cast

import psycopg

from fencepost.testing._errors import NotATestDatabase

# Tables whose rows show that the database is in use.
_WORK: LiteralString = """
    select noun from (values
      ('jobs', exists (select from fencepost.job)),
      ('leases', exists (select from fencepost.lease)),
      ('idempotency keys', exists (select from fencepost.idempotency_key)
        or exists (select from fencepost.idempotency_ring)),
      ('messages', exists (select from fencepost.outbox) or exists (select from fencepost.outbox_settled)),
      ('checkpoints', exists (select from fencepost.checkpoint))
    ) found (noun, there) where there
"""

# A migration may have installed its own clock already, which is newer than the one we stored.
_ORIGINAL_IF_REPLACED: LiteralString = """
    select c.original from fencepost_testing.clock c
    where pg_get_functiondef('fencepost.clock()'::regprocedure) like '%fencepost_testing%'
"""


class Clock:
    """Replaces `fencepost.clock()` for every session of one database, at once, until it is restored.

        with Clock(admin_url) as clock:
            clock.advance(61)          # the lease of 60 s has expired

    It needs the role that migrates. A database that contains any work is refused, unless `database`
    repeats its name: a wrong URL alone must never move the time of a production system. A test that was
    killed leaves its clock behind; the next `Clock` or the next migration restores it.
    """

    def __init__(self, admin_url: str, *, database: str | None = None) -> None:
        self._url = admin_url
        self._database = database

    def install(self) -> Self:
        """Replace the clock of this test's database. Raises NotATestDatabase for any other."""
        with self._connect() as connection, connection.transaction():
            self._refuse_production(connection)
            _put_back(connection)
            connection.execute(files("fencepost.testing").joinpath("clock.sql").read_text().encode())
        return self

    def advance(self, seconds: float) -> None:
        """Move the clock forward by `seconds`, running or frozen."""
        with self._connect() as connection:
            connection.execute(
                "update fencepost_testing.clock set ahead = ahead + %s", (timedelta(seconds=seconds),)
            )

    def freeze(self, at: datetime | None = None) -> None:
        """Freeze the clock at a time, by default the current one. `advance` still moves it."""
        assert at is None or at.tzinfo is not None, "a moment needs its time zone"
        with self._connect() as connection:
            connection.execute(
                """update fencepost_testing.clock
                   set fixed_at = coalesce(%s::timestamptz, fencepost.clock()), ahead = '0'""",
                (at,),
            )

    def now(self) -> datetime:
        """The database's current time."""
        with self._connect() as connection:
            row = connection.execute("select fencepost.clock()").fetchone()
        assert row is not None
        return cast("datetime", row[0])

    def restore(self) -> None:
        """Restore the database's own clock. May be called repeatedly."""
        with self._connect() as connection, connection.transaction():
            _put_back(connection)

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.restore()

    def _connect(self) -> AbstractContextManager[psycopg.Connection[tuple[Any, ...]]]:
        return psycopg.connect(self._url, autocommit=True)

    def _refuse_production(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        name = connection.info.dbname
        if self._database is not None and self._database != name:
            raise NotATestDatabase(f"The URL leads to the database {name}, not to {self._database}.")
        if self._database is None and not _is_marked(connection):
            work = [str(noun) for (noun,) in connection.execute(_WORK)]
            if work:
                raise NotATestDatabase(
                    f"The database {name} has {', '.join(work)}; its clock was not changed. Use a fresh "
                    f'database, or declare that this one is for tests: Clock(url, database="{name}").'
                )


def _is_marked(connection: psycopg.Connection[tuple[Any, ...]]) -> bool:
    """Whether an earlier clock was left behind: that one passed this check."""
    row = connection.execute("select to_regclass('fencepost_testing.clock') is not null").fetchone()
    return row is not None and bool(row[0])


def _put_back(connection: psycopg.Connection[tuple[Any, ...]]) -> None:
    if not _is_marked(connection):
        return
    row = connection.execute(_ORIGINAL_IF_REPLACED).fetchone()
    if row is not None:
        # The definition that the database itself returned.
        connection.execute(cast("LiteralString", row[0]))
    connection.execute("drop schema fencepost_testing cascade")
