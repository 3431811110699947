"""The read pool: a few connections of the read-only role. They write nothing, and every statement has a time
limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import errors as pg
from psycopg.rows import dict_row
from psycopg_pool import PoolTimeout

from fencepost.errors import FencepostError, SchemaMissing, ServerUnavailable, from_sqlstate
from fencepost.kernel._lineage import ReadAge
from fencepost.pool import Pool

Row = dict[str, Any]
_TERMS: LiteralString = (
    "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', %s, true)"
)


class TooSlow(FencepostError):
    """A page asked for more than may be read at once."""


class ReadPool:
    """The console's reads. Each statement is its own read-only transaction, and is cancelled when it takes
    too long."""

    def __init__(self, url: str, *, pool_max: int, statement_seconds: float, connect_seconds: float) -> None:
        self._seconds = statement_seconds
        self._pool = Pool(
            url,
            name="console",
            open=False,
            min_size=1,
            max_size=pool_max,
            timeout=connect_seconds,
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "application_name": "fencepost-console",
                "connect_timeout": max(1, round(connect_seconds)),
                # Behind a pooler the next statement may go to another backend, where nothing is prepared.
                "prepare_threshold": None,
            },
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        async with self._pool:
            yield

    async def rows(self, query: LiteralString, *arguments: Any) -> Sequence[Row]:
        return await self._read(query, arguments or None)

    async def named_rows(self, query: LiteralString, arguments: Mapping[str, Any]) -> Sequence[Row]:
        """As `rows`, with `%(name)s` for each argument."""
        return await self._read(query, arguments)

    async def _read(
        self, query: LiteralString, arguments: Sequence[Any] | Mapping[str, Any] | None
    ) -> Sequence[Row]:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                # Local to the transaction: a pooler would lose, or keep, a setting of the session.
                await connection.execute(_TERMS, (f"{round(self._seconds * 1000)}ms",))
                cursor = await connection.execute(query, arguments)
                found: list[Row] = await cursor.fetchall()
                return found
        except pg.SerializationFailure:
            # A standby cancels reads that are in the way of what its primary did.
            raise ServerUnavailable(
                "The standby cancelled this read to follow its primary. Load the page again."
            ) from None
        except pg.QueryCanceled:
            raise TooSlow(
                f"This took longer than {self._seconds:g} s and was cancelled (CONSOLE_STATEMENT_SEC). "
                "Narrow the filter."
            ) from None
        except (pg.UndefinedTable, pg.UndefinedFunction, pg.InvalidSchemaName, pg.UndefinedColumn) as error:
            raise SchemaMissing(
                f"The database lacks what this page reads: {error.diag.message_primary}. "
                "Run `fencepost migrate`."
            ) from None
        except PoolTimeout:
            raise ServerUnavailable("PostgreSQL does not answer, or every connection is busy.") from None
        except psycopg.Error as error:
            ours = from_sqlstate(error.sqlstate or "", str(error), error.diag.message_detail)
            if ours is not None:
                raise ours from None
            if isinstance(error, psycopg.OperationalError):
                raise ServerUnavailable(
                    "The connection to PostgreSQL was lost while this was read."
                ) from None
            raise

    async def age(self) -> ReadAge:
        """Whether a standby is read, and how old its answers may be: of what is read after this."""
        found = await self.row("select is_standby, age_seconds from fencepost.read_age()")
        assert found is not None, "a function that returns one row"
        return ReadAge(**found)

    async def row(self, query: LiteralString, *arguments: Any) -> Row | None:
        found = await self.rows(query, *arguments)
        return found[0] if found else None

    async def page(self, query: LiteralString, *arguments: Any) -> tuple[list[int], int | None]:
        """The ids of one page of a list, and where the next one begins, from a `console_..._page`
        function."""
        found = await self.row(query, *arguments)
        assert found is not None, "a function that returns one row"
        return found["ids"], found["next_before"]
