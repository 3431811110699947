"""The messages of pgoutput, PostgreSQL's own plugin of logical decoding, in version 1 of its protocol.

A slot sends a transaction when it has committed: BEGIN, its changes, COMMIT. Before the first change of a
table, and again when the table has changed, it describes the table's columns.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

Kind = Literal["snapshot", "insert", "update", "delete", "truncate"]
Load = Callable[[int, bytes], Any]
"""Makes a value of a column's type and its text."""
EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_UNCHANGED = object()


class Change(NamedTuple):
    """A change of one row, or a row of the first copy (`snapshot`)."""

    table: str
    """With its schema: `public.orders`."""
    kind: Kind
    row: dict[str, Any] | None
    """The row by now; None for `delete` and `truncate`."""
    old: dict[str, Any] | None
    """What the replica identity keeps of the row before: its key where that changed or the row was deleted,
    or the whole row."""
    lsn: int
    """Where its transaction committed; 0 in the first copy."""
    at: datetime | None
    """When its transaction committed; None in the first copy."""
    unchanged: tuple[str, ...] = ()
    """Columns that `row` lacks: long values that did not change, which PostgreSQL does not send."""


class Relation(NamedTuple):
    table: str
    names: tuple[str, ...]
    types: tuple[int, ...]
    keys: tuple[bool, ...]
    """Whether a column is part of the replica identity."""


class Placed(NamedTuple):
    """A change with its offset."""

    offset: str
    change: Change


@dataclass
class Decoder:
    """Changes of the messages of one slot, from the beginning of a transaction."""

    load: Load
    relations: dict[int, Relation] = field(default_factory=dict[int, Relation])
    rows: int = 0
    """How many messages the open transaction has so far."""
    committed: tuple[int, int] | None = None
    """The newest whole transaction: where it committed, and how many messages it has."""
    _lsn: int = 0
    _at: datetime | None = None
    _count: int = 0
    _held: Change | None = None
    """The last change so far: the one before COMMIT has the offset behind the transaction."""

    def feed(self, message: bytes) -> Iterator[Placed]:
        """The changes that are known to be whole after a message."""
        self.rows += 1
        body = _Body(message)
        match body.byte():
            case b"B":
                self._lsn, microseconds, _ = body.take("!qqi")
                self._at = EPOCH + timedelta(microseconds=microseconds)
                self._count, self.rows = 0, 1
            case b"C":
                yield from self._next(None)
                self.committed = self._lsn, self.rows
            case b"R":
                number, relation = _relation(body)
                self.relations[number] = relation
            case b"I" | b"U" | b"D" | b"T" as kind:
                for change in self._changes(kind, body):
                    yield from self._next(change)
            case _:
                pass  # An origin, or a type: its columns are read as texts.

    def _next(self, change: Change | None) -> Iterator[Placed]:
        """The change before this one; None for the end of the transaction."""
        if self._held is not None:
            self._count += 1
            offset = f"{self._lsn + 1}-0" if change is None else f"{self._lsn}-{self._count}"
            yield Placed(offset, self._held)
        self._held = change

    def _changes(self, kind: bytes, body: _Body) -> Iterator[Change]:
        if kind == b"T":
            count, _ = body.take("!ib")
            for number in body.take(f"!{count}i"):
                yield Change(self.relations[number].table, "truncate", None, None, self._lsn, self._at)
            return
        relation = self.relations[body.take("!i")[0]]
        old: dict[str, Any] | None = None
        tag = body.byte()
        if tag in (b"K", b"O"):
            whole = self._values(relation, body)
            old = {
                name: value
                for name, value, is_key in zip(relation.names, whole, relation.keys, strict=True)
                if value is not _UNCHANGED and (tag == b"O" or is_key)
            }
            tag = body.byte() if kind == b"U" else tag
        if kind == b"D":
            yield Change(relation.table, "delete", None, old, self._lsn, self._at)
            return
        assert tag == b"N", "a new row follows"
        row = dict(zip(relation.names, self._values(relation, body), strict=True))
        missing = [name for name, value in row.items() if value is _UNCHANGED]
        for name in missing:
            # With the replica identity FULL the row before has it.
            if old is not None and name in old:
                row[name] = old[name]
            else:
                del row[name]
        unchanged = tuple(name for name in missing if name not in row)
        changed: Kind = "insert" if kind == b"I" else "update"
        yield Change(relation.table, changed, row, old, self._lsn, self._at, unchanged)

    def _values(self, relation: Relation, body: _Body) -> list[Any]:
        values: list[Any] = []
        (count,) = body.take("!h")
        for place in range(count):
            match body.byte():
                case b"n":
                    values.append(None)
                case b"u":
                    values.append(_UNCHANGED)
                case _:
                    (size,) = body.take("!i")
                    values.append(self.load(relation.types[place], body.part(size)))
        return values


def copied(table: str, columns: list[tuple[str, int]], texts: list[str | None], load: Load) -> Change:
    """A row of the first copy, as its columns' texts."""
    row = {
        name: None if value is None else load(kind, value.encode())
        for (name, kind), value in zip(columns, texts, strict=True)
    }
    return Change(table, "snapshot", row, None, 0, None)


class _Body:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def part(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken

    def byte(self) -> bytes:
        return self.part(1)

    def take(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(form, self._data, self._at)
        self._at += struct.calcsize(form)
        return values

    def text(self) -> str:
        end = self._data.index(b"\0", self._at)
        taken = self.part(end - self._at)
        self._at += 1
        return taken.decode()


def _relation(body: _Body) -> tuple[int, Relation]:
    (number,) = body.take("!i")
    schema, table = body.text(), body.text()
    _, count = body.take("!bh")
    columns: list[tuple[bool, str, int]] = []
    for _ in range(count):
        (flags,) = body.take("!b")
        name = body.text()
        kind, _ = body.take("!Ii")
        columns.append((bool(flags & 1), name, kind))
    # A schema without a name is pg_catalog.
    names = f"{schema or 'pg_catalog'}.{table}"
    return number, Relation(
        names,
        tuple(name for _, name, _ in columns),
        tuple(kind for _, _, kind in columns),
        tuple(is_key for is_key, _, _ in columns),
    )
