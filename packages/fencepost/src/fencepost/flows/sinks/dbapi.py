"""Rows in any database that has a driver of the DB-API (PEP 249): the rows and the frontier are one
transaction there.

The values are stored in the checkpoint before they are written, so that a repeat writes the same ones; and
that database stores the number of the last checkpoint that it took from each task, in its table
fencepost_frontier, so that neither a repeat nor a zombie writes anything.
"""

# ruff: noqa: S608 - Names are quoted, and values are parameters. No library of SQL knows every dialect.
from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

from fencepost.errors import InvalidInput
from fencepost.flows._errors import FlowError, GraphRefused, StartRefused
from fencepost.flows._guarantee import EXACTLY_ONCE, Promise
from fencepost.flows.sinks._rejecting import (
    STOP,
    UNFIT,
    OnReject,
    Rejected,
    Rejection,
    Rejections,
    converted,
    halves,
    rejection,
)
from fencepost.flows.sinks._sink import CheckpointId, FlowContext
from fencepost.flows.sinks._sink_types import StagedSink
from fencepost.flows.sinks.postgres import RowOf, as_row

T = TypeVar("T")
OnConflict = Literal["update", "ignore"]
FRONTIER, REJECTED = "fencepost_frontier", "fencepost_rejected"
_DIALECTS = {
    "sqlite3": "on-conflict",
    "pysqlite3": "on-conflict",
    "psycopg": "on-conflict",
    "psycopg2": "on-conflict",
    "pg8000": "on-conflict",
    "pymysql": "on-duplicate-key",
    "MySQLdb": "on-duplicate-key",
    "mysql": "on-duplicate-key",
    "mariadb": "on-duplicate-key",
}
_ENGINE = """
    select engine from information_schema.tables where table_schema = database() and table_name = {}"""
_UNIQUE = """
    select group_concat(column_name order by column_name separator ',') from information_schema.statistics
    where table_schema = database() and table_name = {} and non_unique = 0 group by index_name"""


@dataclass(frozen=True, slots=True)
class _Language:
    """The statements of one database: how parameters and names are written, and how a row is replaced."""

    style: str
    dialect: str
    """on-conflict, on-duplicate-key, or standard: then it is asked first whether there is such a row."""

    def names(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self.name, columns))

    def name(self, name: str) -> str:
        mark = "`" if self.dialect == "on-duplicate-key" else '"'
        if mark in name or "\0" in name or "%" in name:
            raise GraphRefused(f"{name!r} is no name of a table or column that can be quoted.")
        return ".".join(f"{mark}{part}{mark}" for part in name.split("."))

    def places(self, count: int, first: int = 0) -> str:
        return ", ".join(self.place(first + number) for number in range(count))

    def place(self, number: int) -> str:
        match self.style:
            case "qmark":
                return "?"
            case "numeric":
                return f":{number + 1}"
            case "named":
                return f":p{number}"
            case _:
                return "%s"

    def values(self, values: Sequence[Any]) -> Any:
        if self.style == "named":
            return {f"p{number}": value for number, value in enumerate(values)}
        return tuple(values)

    def insert(self, table: str, columns: Sequence[str]) -> str:
        return f"insert into {self.name(table)} ({self.names(columns)}) values ({self.places(len(columns))})"

    def merge(self, table: str, key: Sequence[str], columns: Sequence[str], change: bool) -> str:
        """Insert a row, or replace the one of its key, or leave that as it is."""
        insert = self.insert(table, [*key, *columns])
        if self.dialect == "on-duplicate-key":
            kept = f"{self.name(key[0])} = {self.name(key[0])}"
            new = ", ".join(f"{self.name(column)} = values({self.name(column)})" for column in columns)
            return f"{insert} on duplicate key update {new if change and columns else kept}"
        new = ", ".join(f"{self.name(column)} = excluded.{self.name(column)}" for column in columns)
        action = f"update set {new}" if change and columns else "nothing"
        return f"{insert} on conflict ({self.names(key)}) do {action}"

    def found(self, table: str, key: Sequence[str]) -> str:
        return f"select 1 from {self.name(table)} where {self._where(key, 0)}"

    def update(self, table: str, key: Sequence[str], columns: Sequence[str]) -> str:
        new = ", ".join(f"{self.name(column)} = {self.place(n)}" for n, column in enumerate(columns))
        return f"update {self.name(table)} set {new} where {self._where(key, len(columns))}"

    def _where(self, key: Sequence[str], first: int) -> str:
        return " and ".join(f"{self.name(column)} = {self.place(first + n)}" for n, column in enumerate(key))


class DbApiTable(StagedSink):
    """Writes rows of a table by a DB-API driver: `DbApiTable(sqlite3, {"database": path}, "total", ...)`.

    `driver` is the module, and `connect` are the arguments of its `connect`. With `key`, which must be unique
    in the table, a row that is there is replaced, or with `on_conflict="ignore"` left as it is; without it
    rows are appended. A dict or a list in a cell is written as JSON. The login must be allowed to create the
    table fencepost_frontier (and fencepost_rejected, where rejected values are kept), or the table must
    exist. A worker has one connection.
    """

    numbered = True
    promise = Promise(EXACTLY_ONCE, "rows and frontier are one transaction of that database")

    def __init__(
        self,
        driver: Any,
        connect: Mapping[str, Any],
        table: str,
        columns: Sequence[str],
        *,
        key: Sequence[str] = (),
        on_conflict: OnConflict = "update",
        row: RowOf = as_row,
        on_reject: OnReject = STOP,
    ) -> None:
        if on_conflict not in ("update", "ignore"):
            raise GraphRefused(f"on_conflict is {on_conflict!r}; allowed: 'update' or 'ignore'.")
        if not key and not columns:
            raise GraphRefused(f"The sink in {table} has no columns.")
        if not (hasattr(driver, "connect") and hasattr(driver, "paramstyle")):
            raise GraphRefused(
                "DbApiTable takes a driver of the DB-API: a module with connect and paramstyle."
            )
        self._driver = driver
        self._arguments = dict(connect)
        self._table = table
        self._columns = list(columns)
        self._key = list(key)
        self._updates = on_conflict == "update"
        self._row = row
        self.on_reject = on_reject
        root = str(driver.__name__).partition(".")[0]
        self._language = _Language(driver.paramstyle, _DIALECTS.get(root, "standard"))
        self._connection: Any = None
        self._thread: ThreadPoolExecutor | None = None
        self._users = 0
        # Names are checked where the flow is made.
        self._language.names([table, *key, *columns])

    @property
    def keyed(self) -> bool:  # type: ignore[override]
        """Whether a later value of a key replaces an earlier one."""
        return bool(self._key) and self._updates

    async def open(self, context: FlowContext) -> None:
        """Refuse a table that cannot be written, and a connection that commits by itself."""
        self._users += 1
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "fencepost-dbapi")
        await self._called(self._examine)

    async def close(self) -> None:
        """Close the connection after the last user has closed."""
        self._users = max(0, self._users - 1)
        thread = self._thread
        if self._users == 0 and thread is not None:
            self._thread = None
            await asyncio.get_running_loop().run_in_executor(thread, self._part)
            thread.shutdown(wait=False)

    async def deliver(self, checkpoint: CheckpointId, values: Sequence[Any]) -> Rejections:
        """Write the rows of a checkpoint, unless this one or a newer one was written."""
        return await self._called(self._deliver, checkpoint.resource, checkpoint.number, values)

    async def position(self, resource: str) -> int | None:
        """The newest checkpoint that the database took from a task."""
        return await self._called(self._position, resource)

    async def restored(self, resource: str, number: int) -> None:
        """The database has everything up to this checkpoint, also after a rewind, which gives it a new
        number."""
        await self._called(self._deliver, resource, number, ())

    async def _called(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call in the one thread that has the connection. A call that is cancelled is waited for."""
        if self._thread is None:
            raise FlowError(f"The sink in {self._table} is closed.")
        call = asyncio.get_running_loop().run_in_executor(
            self._thread, self._in_transaction, function, *arguments
        )
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call])
            raise

    def _in_transaction(self, function: Callable[..., T], *arguments: Any) -> T:
        """Commit what a function wrote, or roll it back; after an error there is a new connection."""
        try:
            if self._connection is None:
                self._connection = self._driver.connect(**self._arguments)
            answer = function(*arguments)
            self._connection.commit()
        except BaseException:
            self._part()
            raise
        return answer

    def _part(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.rollback()
                connection.close()
            except self._driver.Error:
                return  # It is gone, and what was open with it.

    def _deliver(self, resource: str, number: int, values: Sequence[Any]) -> Rejections:
        if not self._advanced(resource, number):
            return self._rejected_before(resource, number, values)
        if not values:
            return None
        rows, rejected = converted(values, self._cells)
        if self.on_reject == STOP:
            if rejected:
                self._connection.rollback()
                return rejected
            self._write(rows)
            return None
        unfit = {id(each.value) for each in rejected}
        rejected += self._sifted([value for value in values if id(value) not in unfit], rows)
        places = {id(value): at for at, value in enumerate(values)}
        found = json.dumps([(places[id(each.value)], each.error) for each in rejected])
        self._forget(resource)
        self._run(
            self._language.insert(REJECTED, ["resource", "number", "rejected"]), (resource, number, found)
        )
        return rejected

    def _advanced(self, resource: str, number: int) -> bool:
        """Move the frontier; False if it stands there or further. The row's lock makes a zombie wait."""
        language = self._language
        statement = (
            f"update {FRONTIER} set number = {language.place(0)} "
            f"where resource = {language.place(1)} and number < {language.place(2)}"
        )
        if self._run(statement, (number, resource, number)).rowcount == 1:
            return True
        if self._stands(resource) is not None:
            return False
        self._run(language.insert(FRONTIER, ["resource", "number"]), (resource, number))
        return True

    def _stands(self, resource: str) -> int | None:
        statement = f"select number from {FRONTIER} where resource = {self._language.place(0)}"
        row = self._run(statement, (resource,)).fetchone()
        return None if row is None else int(row[0])

    def _position(self, resource: str) -> int | None:
        """Makes the task's row: to make it in the first commit would lock what other tasks make then."""
        stands = self._stands(resource)
        if stands is None:
            self._run(self._language.insert(FRONTIER, ["resource", "number"]), (resource, 0))
        return stands or None

    def _rejected_before(self, resource: str, number: int, values: Sequence[Any]) -> Rejections:
        if self.on_reject == STOP:
            return None
        language = self._language
        statement = (
            f"select rejected from {REJECTED} "
            f"where resource = {language.place(0)} and number = {language.place(1)}"
        )
        row = self._run(statement, (resource, number)).fetchone()
        if row is None:
            return None
        return [Rejection(values[at], error) for at, error in json.loads(row[0]) if at < len(values)]

    def _forget(self, resource: str) -> None:
        self._run(f"delete from {REJECTED} where resource = {self._language.place(0)}", (resource,))

    def _sifted(self, values: Sequence[Any], rows: Sequence[Sequence[Any]]) -> list[Rejection]:
        """Write what the database takes: rows that fail are halved until one is left."""
        rejected: list[Rejection] = []
        waiting: list[Sequence[tuple[Any, Sequence[Any]]]] = [list(zip(values, rows, strict=True))]
        while waiting:
            part = waiting.pop()
            if not part:
                continue
            self._run("savepoint fencepost_part", ())
            try:
                self._write([row for _, row in part])
            except Exception as error:
                if not self._is_rejection(error):
                    raise
                self._run("rollback to savepoint fencepost_part", ())
                if len(part) == 1:
                    rejected.append(rejection(part[0][0], error))
                else:
                    first, second = halves(part)
                    waiting += [second, first]
        return rejected

    def _is_rejection(self, error: Exception) -> bool:
        driver = self._driver
        if isinstance(error, (driver.DataError, driver.IntegrityError, Rejected, InvalidInput, *UNFIT)):
            return True
        # A driver that has no type for a value tells so in one of these, which also say other things.
        return isinstance(error, (driver.InterfaceError, driver.ProgrammingError)) and "bind" in str(error)

    def _cells(self, value: Any) -> Sequence[Any]:
        row = [json.dumps(cell) if isinstance(cell, dict | list) else cell for cell in self._row(value)]
        wanted = len(self._key) + len(self._columns)
        if len(row) != wanted:
            raise Rejected(f"A row of {len(row)} cells does not fit {wanted} columns.")
        return row

    def _write(self, rows: Sequence[Sequence[Any]]) -> None:
        language, key, columns = self._language, self._key, self._columns
        if not key:
            self._many(language.insert(self._table, columns), rows)
            return
        # Of several values of one key in a commit the last counts, or the first where rows are left.
        ordered = rows if self._updates else rows[::-1]
        by_key = {tuple(row[: len(key)]): row for row in ordered}
        if language.dialect != "standard":
            self._many(language.merge(self._table, key, columns, self._updates), list(by_key.values()))
            return
        for named, row in by_key.items():
            if self._run(language.found(self._table, key), named).fetchone() is None:
                self._run(language.insert(self._table, [*key, *columns]), row)
            elif self._updates and columns:
                self._run(language.update(self._table, key, columns), [*row[len(key) :], *named])

    def _run(self, statement: str, values: Sequence[Any]) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement, self._language.values(values))
        return cursor

    def _many(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        self._connection.cursor().executemany(statement, [self._language.values(row) for row in rows])

    def _examine(self) -> None:
        """Everything that a commit needs, before the first record."""
        columns = [*self._key, *self._columns]
        # Under a name for the table: SQLite takes a bare name that it does not know for a text.
        names = ", ".join(f"t.{self._language.name(column)}" for column in columns)
        try:
            self._run(f"select {names} from {self._language.name(self._table)} t where 1 = 0", ()).fetchall()
        except self._driver.Error as error:
            raise StartRefused(
                f"DbApiTable cannot read {self._table}: {error} It needs the columns {', '.join(columns)}."
            ) from error
        number, text = ("bigint", "longtext") if self._is_mysql else ("bigint", "text")
        engine = " engine = InnoDB" if self._is_mysql else ""
        self._make(
            FRONTIER, f"(resource varchar(512) not null primary key, number {number} not null){engine}"
        )
        if self.on_reject != STOP:
            self._make(
                REJECTED,
                f"(resource varchar(512) not null primary key, number {number} not null, "
                f"rejected {text} not null){engine}",
            )
        self._check_rollback()
        if self._language.dialect == "on-conflict" and self._key:
            merge = self._language.merge(self._table, self._key, self._columns, self._updates)
            self._explain(merge, len(columns))
        if self._is_mysql:
            self._check_mysql()

    @cached_property
    def _is_mysql(self) -> bool:
        return self._language.dialect == "on-duplicate-key"

    def _make(self, name: str, definition: str) -> None:
        """Create a table of the sink, unless it exists: not every database has `if not exists`."""
        try:
            self._run(f"select number from {name} where 1 = 0", ()).fetchall()
        except self._driver.Error:
            self._connection.rollback()
        else:
            return
        try:
            self._run(f"create table {name} {definition}", ())
            self._connection.commit()
        except self._driver.Error as error:
            raise StartRefused(
                f"The sink needs its table {name}, and it cannot be made: {error} Run as its owner: create "
                f"table {name} {definition}; and let the login select, insert, update and delete."
            ) from error

    def _check_rollback(self) -> None:
        """Raise for a connection that commits each statement, or a table that keeps what is rolled back."""
        name = "fencepost/rehearsal"
        self._run(self._language.insert(FRONTIER, ["resource", "number"]), (name, 0))
        self._connection.rollback()
        if self._stands(name) is not None:
            self._run(f"delete from {FRONTIER} where resource = {self._language.place(0)}", (name,))
            raise StartRefused(
                f"The connection of the sink in {self._table} cannot roll back: it commits each statement, "
                f"or {FRONTIER} is of an engine without transactions. Leave autocommit out of its arguments."
            )

    def _explain(self, statement: str, count: int) -> None:
        try:
            self._run(f"explain {statement}", [None] * count).fetchall()
        except self._driver.IntegrityError:
            return
        except self._driver.Error as error:
            key = ", ".join(self._key)
            raise StartRefused(
                f"DbApiTable cannot replace rows of {self._table} by ({key}): {error} Make it unique."
            ) from error

    def _check_mysql(self) -> None:
        """Without a unique index a row would be inserted each time, and without transactions each repeat
        would show."""
        bare = (self._table.rpartition(".")[2],)
        place = self._language.place(0)
        row = self._run(_ENGINE.format(place), bare).fetchone()
        if row is not None and row[0] is not None and row[0].lower() not in ("innodb", "rocksdb"):
            raise StartRefused(
                f"{self._table} is of the engine {row[0]}, which has no transactions. Run: alter table "
                f"{self._language.name(self._table)} engine = InnoDB;"
            )
        if not self._key or "." in self._table:
            return
        wanted = sorted(self._key)
        unique = [sorted(found[0].split(",")) for found in self._run(_UNIQUE.format(place), bare).fetchall()]
        if wanted not in unique:
            raise StartRefused(
                f"Nothing makes ({', '.join(self._key)}) unique in {self._table}, so no row can be "
                f"replaced by it. Run: alter table {self._language.name(self._table)} add unique "
                f"({self._language.names(self._key)});"
            )
