"""Lists: one mechanism that pages, sorts and searches every list of the console.

A list has a natural order, which an index serves, and is paged by its key. Another order, and a search for a
part of a text, look at the window that the filters select: the first `CONSOLE_SCAN_MAX` rows in natural
order, however long the list is. The window is sorted in the database and paged by the value and the key of
the last row that was shown. A page says when there are rows behind the window. A list that a page reads whole
is sorted here. docs/decisions/0024-a-list-sorts-a-window.md has the reasons.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, LiteralString, cast

from psycopg import errors as pg
from pydantic import BaseModel, Field

from fencepost.errors import InvalidInput
from fencepost_server.console._read_pool import ReadPool, Row

Type = Literal["text", "bigint", "numeric", "double precision", "boolean", "timestamptz", "interval", "jsonb"]
Ids = Callable[[int | None, int], Awaitable[tuple[Sequence[int], int | None]]]
"""The ids of one page: below a position, at most so many; and where the next page begins."""
Gather = Callable[[Any, int], Awaitable[Sequence[Any]]]
"""The rows behind a position, so many at most."""
GATHERED_MAX = 2000
"""The most rows that are sorted or searched outside the database."""
_KEYS: Sequence[LiteralString] = ("_key0", "_key1")
"""The parameters of a position: no key has more columns."""
_NO_PLACE = "onward is no place in this list."
_SORT = r"^-?[a-z_]+\.[a-z0-9_]+$"


class ListQuery(BaseModel):
    """What every list understands beside its filters and its position."""

    sort: Annotated[
        str | None,
        Field(max_length=100, pattern=_SORT, description="TABLE.COLUMN; with - before it, descending."),
    ] = None
    onward: Annotated[
        str | None, Field(max_length=6000, description="Where a page of a sorted list begins.")
    ] = None
    part: Annotated[
        str | None, Field(max_length=1200, pattern=r"^[^\x00]*$", description="A part of a row's texts.")
    ] = None


@dataclass(frozen=True, slots=True)
class ListState:
    """How a list is shown: what it may be sorted by, what it is sorted by, and where it continues."""

    columns: Collection[str]
    sort: str | None = None
    """A column; with `-` before it, descending."""
    window: int | None = None
    """Only so many rows were looked at; there are more."""
    onward: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The query parameters of the next page; none when this is the last."""
    positions: Sequence[str] = ()
    """The query parameters of its position in natural order."""


@dataclass(frozen=True, slots=True)
class ListPage:
    """The rows of one page of a list."""

    rows: Sequence[Any]
    state: ListState

    @property
    def next(self) -> dict[str, Any]:
        """The facts that say where the next page begins."""
        told = {**dict.fromkeys(self.state.positions), **self.state.onward}
        return {f"next_{name}": value for name, value in told.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A list that is longer than a page.

    `sql`, which a list that `gather` reads has not, selects rows in natural order: `%(limit)s` of them,
    behind the position. `positions` names its parameters, one for each column of `key`. With `ids`, given to
    `read`, it selects the rows `%(ids)s` instead.
    """

    table: str
    sql: LiteralString = ""
    key: Sequence[LiteralString]
    positions: Sequence[str]
    is_descending: bool
    """Whether the natural order is descending by the key."""
    columns: Mapping[LiteralString, Type]
    """What it can be sorted by, and the key."""
    searched: Sequence[LiteralString] = ()
    """The columns in which a part of a text is looked for."""
    weight: int = 1
    """How much more a row costs than one of a plain table: the window has so many times fewer rows."""

    def state(self, sort: str | None) -> str | None:
        """The column that a request sorts this list by, or None for its natural order."""
        table, _, column = (sort or "").removeprefix("-").partition(".")
        if not sort or table != self.table:
            return None
        if column not in self.columns:
            raise _unknown(column, self.columns)
        descending = sort.startswith("-")
        if (column,) == tuple(self.key)[:1] and descending == self.is_descending:
            return None
        return f"-{column}" if descending else column


class Lists:
    """Reads lists with the console's read pool. `window` is the most rows that are sorted or searched."""

    def __init__(self, reading: ReadPool, window: int) -> None:
        self._reading = reading
        self._window = window

    async def read(
        self,
        listing: Listing,
        query: ListQuery,
        limit: int,
        arguments: Mapping[str, Any] | None = None,
        *,
        ids: Ids | None = None,
    ) -> ListPage:
        """One page of a list: in its natural order, sorted, or searched."""
        sort = listing.state(query.sort)
        part = (query.part or None) if listing.searched else None
        positions = {name: getattr(query, name) for name in listing.positions}
        given = {**(arguments or {}), **(positions if sort is None else dict.fromkeys(positions))}
        if sort is None and part is None:
            return await self._natural(listing, given, limit, ids)
        return await self._windowed(listing, given, limit, ids, _Order(listing, sort, part, query.onward))

    async def gather(self, listing: Listing, query: ListQuery, limit: int, read: Gather) -> ListPage:
        """As `read`, of a list that another role than the read pool's reads: its window is sorted here."""
        sort = listing.state(query.sort)
        part = (query.part or "").lower()
        position, key = listing.positions[0], listing.key[0]
        natural = getattr(query, position)
        if sort is None and not part:
            rows = await read(natural, limit)
            onward = {position: getattr(rows[-1], key)} if len(rows) == limit else {}
            return ListPage(rows, ListState(listing.columns, onward=onward, positions=listing.positions))
        most = min(self._window, GATHERED_MAX)
        looked = await read(None if sort else natural, most)
        is_cut = len(looked) >= most
        rows = [
            row
            for row in looked
            if part in " ".join(str(getattr(row, name) or "") for name in listing.searched).lower()
        ]
        if sort is None:
            shown = rows[:limit]
            last = shown[-1] if len(shown) == limit else looked[-1] if is_cut else None
            onward = {} if last is None else {position: getattr(last, key)}
        else:
            ordered, _ = whole(rows, listing.table, query.sort)
            begin = _counted(query.onward)
            shown = list(ordered[begin : begin + limit])
            onward = {"onward": str(begin + limit)} if len(ordered) > begin + limit else {}
        window = most if is_cut else None
        return ListPage(shown, ListState(listing.columns, sort, window, onward, positions=listing.positions))

    async def _natural(
        self, listing: Listing, given: dict[str, Any], limit: int, ids: Ids | None
    ) -> ListPage:
        if ids is None:
            rows = await self._reading.named_rows(listing.sql, {**given, "limit": limit})
            onward = _behind(listing, rows[-1]) if len(rows) == limit else {}
        else:
            position = listing.positions[0]
            found, following = await ids(given[position], limit)
            rows = await self._reading.named_rows(listing.sql, {**given, "ids": list(found)})
            onward = {} if following is None else {position: following}
        return ListPage(rows, ListState(listing.columns, onward=onward, positions=listing.positions))

    async def _windowed(
        self, listing: Listing, given: dict[str, Any], limit: int, ids: Ids | None, order: _Order
    ) -> ListPage:
        is_cut, following = False, None
        most = max(limit, self._window // listing.weight)
        if ids is not None:
            found, following = await ids(given[listing.positions[0]], most)
            given, is_cut = {**given, "ids": list(found)}, following is not None
        statement, values = order.statement()
        try:
            found_rows = await self._reading.named_rows(
                statement, {**given, **values, "limit": most, "_rows": limit}
            )
        except pg.DataError:
            # A value of `onward` that is none of its column's type.
            raise InvalidInput(_NO_PLACE, field="onward") from None
        if ids is None:
            is_cut = found_rows[0]["_looked"] >= most
        last = found_rows[0]["_last"]
        rows = [
            {name: value for name, value in row.items() if name not in ("_looked", "_last", "_is_row")}
            for row in found_rows
            if row["_is_row"]
        ]
        onward: dict[str, Any]
        if order.sort is not None:
            onward = {"onward": order.place(rows[-1])} if len(rows) == limit else {}
        elif len(rows) == limit:
            onward = _behind(listing, rows[-1])
        elif not is_cut:
            onward = {}
        elif ids is not None:
            onward = {listing.positions[0]: following}
        else:
            onward = dict(zip(listing.positions, json.loads(last), strict=True))
        window = most if is_cut else None
        return ListPage(
            rows, ListState(listing.columns, order.sort, window, onward, positions=listing.positions)
        )


@dataclass(frozen=True, slots=True)
class _Order:
    """The order of a window: the statement that sorts and searches it."""

    listing: Listing
    sort: str | None
    part: str | None
    onward: str | None

    def statement(self) -> tuple[LiteralString, dict[str, Any]]:
        """The statement, made of texts of ours alone, and its parameters."""
        listing = self.listing
        ways: LiteralString = "desc" if listing.is_descending else "asc"
        keys: LiteralString = ", ".join(f"{name} {ways}" for name in listing.key)
        conditions: list[LiteralString] = ["true"]
        values: dict[str, Any] = {}
        order: LiteralString = keys
        if self.part is not None:
            texts: LiteralString = ", ".join(f"l.{name}" for name in listing.searched)
            conditions.append(f"position(lower(%(_part)s::text) in lower(concat_ws(' ', {texts}))) > 0")
            values["_part"] = self.part
        if self.sort is not None:
            column = _declared(listing, self.sort.removeprefix("-"))
            way: LiteralString = "desc" if self.sort.startswith("-") else "asc"
            order = f"{column} {way} nulls last, {keys}"
            if self.onward is not None:
                condition, more = self._behind(column, way)
                conditions.append(condition)
                values.update(more)
        where: LiteralString = " and ".join(conditions)
        pair: LiteralString = ", ".join(f"{name}::text" for name in listing.key)
        turned: LiteralString = "asc" if listing.is_descending else "desc"
        against: LiteralString = ", ".join(f"{name} {turned}" for name in listing.key)
        # Only texts of ours: the columns are those that the listing declares.
        statement: LiteralString = (
            f"with listed as materialized ({listing.sql}),"  # noqa: S608
            " looked as (select (select count(*) from listed) as _looked,"
            f" (select jsonb_build_array({pair})::text from listed order by {against} limit 1) as _last),"
            f" shown as (select l.*, true as _is_row from listed l where {where}"
            f" order by {order} limit %(_rows)s)"
            f" select * from looked left join shown on true order by {order}"
        )
        return statement, values

    def _behind(self, column: LiteralString, way: LiteralString) -> tuple[LiteralString, dict[str, Any]]:
        """The condition for the rows behind the one that `onward` names; null is behind every value."""
        listing = self.listing
        value, keys = self._told()
        types = listing.columns
        row: LiteralString = ", ".join(f"l.{name}" for name in listing.key)
        told: LiteralString = ", ".join(
            f"%({place})s::text::{types[name]}" for place, name in zip(_KEYS, listing.key, strict=False)
        )
        smaller: LiteralString = "<" if listing.is_descending else ">"
        beyond: LiteralString = f"({row}) {smaller} ({told})"
        values: dict[str, Any] = dict(zip(_KEYS, keys, strict=False))
        if value is None:
            return f"(l.{column} is null and {beyond})", values
        past: LiteralString = "<" if way == "desc" else ">"
        at: LiteralString = f"%(_value)s::text::{types[column]}"
        return (
            f"(l.{column} is null or l.{column} {past} {at} or (l.{column} = {at} and {beyond}))",
            {**values, "_value": value},
        )

    def _told(self) -> tuple[str | None, Sequence[str]]:
        try:
            value, *keys = cast("list[Any]", json.loads(self.onward or ""))
        except (ValueError, TypeError):
            raise InvalidInput(_NO_PLACE, field="onward") from None
        texts = [one for one in (value, *keys) if one is not None]
        if len(keys) != len(self.listing.key) or not all(isinstance(one, str) for one in texts):
            raise InvalidInput(_NO_PLACE, field="onward")
        return value, keys

    def place(self, row: Row) -> str:
        """Where the page after this row begins: the value that is sorted by, and the key."""
        assert self.sort is not None, "only a sorted list has such a place"
        names = (self.sort.removeprefix("-"), *self.listing.key)
        return json.dumps([_as_text(row[name]) for name in names], ensure_ascii=False)


def _declared(listing: Listing, column: str) -> LiteralString:
    """The column as the listing declares it: a text of ours."""
    names: Sequence[LiteralString] = tuple(listing.columns)
    return names[names.index(column)]


def whole(rows: Sequence[Any], table: str, sort: str | None) -> tuple[Sequence[Any], ListState]:
    """A list that is read whole, sorted by a column of its rows."""
    columns = _columns(rows)
    named, _, column = (sort or "").removeprefix("-").partition(".")
    if not sort or named != table or not rows:
        return rows, ListState(columns)
    if column not in columns:
        raise _unknown(column, columns)
    present = [row for row in rows if _value(row, column) is not None]
    absent = [row for row in rows if _value(row, column) is None]
    try:
        present.sort(key=lambda row: _value(row, column), reverse=sort.startswith("-"))
    except TypeError:
        present.sort(key=lambda row: str(_value(row, column)), reverse=sort.startswith("-"))
    return [*present, *absent], ListState(columns, f"-{column}" if sort.startswith("-") else column)


def with_states(
    tables: Sequence[str], facts: Mapping[str, Any], states: Mapping[str, ListState], sort: str | None
) -> tuple[Mapping[str, Any], Mapping[str, ListState]]:
    """The facts with the tables sorted that are read whole, and the state of every table."""
    sorted_facts, all_states = dict(facts), dict(states)
    for table in tables:
        rows = facts.get(table)
        if table not in all_states and isinstance(rows, list | tuple):
            sorted_facts[table], all_states[table] = whole(cast("Sequence[Any]", rows), table, sort)
    known = {table: replace(state, columns=tuple(state.columns)) for table, state in all_states.items()}
    return sorted_facts, known


def _columns(rows: Sequence[Any]) -> Sequence[str]:
    """The columns of rows that can be compared: no documents and no lists."""
    if not rows:
        return ()
    first = rows[0]
    if isinstance(first, Mapping):
        names = list(cast("Mapping[str, Any]", first))
    else:
        names = [one.name for one in fields(first)]
    return [
        name
        for name in names
        if not any(isinstance(_value(row, name), Mapping | list | tuple) for row in rows)
    ]


def _value(row: Any, column: str) -> Any:
    # A row may lack a figure: a minute that was not counted.
    if isinstance(row, Mapping):
        return cast("Mapping[str, Any]", row).get(column)
    return getattr(row, column)


def _counted(onward: str | None) -> int:
    if onward is None:
        return 0
    if not (onward.isdecimal() and len(onward) < 8):
        raise InvalidInput(_NO_PLACE, field="onward")
    return int(onward)


def _behind(listing: Listing, row: Row) -> dict[str, Any]:
    return {name: row[key] for name, key in zip(listing.positions, listing.key, strict=True)}


def _as_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds()} seconds"
    return str(value)


def _unknown(column: str, columns: Collection[str]) -> InvalidInput:
    there = ", ".join(columns) or "none"
    return InvalidInput(f"There is no column {column!r} to sort by. Available: {there}.", field="sort")
