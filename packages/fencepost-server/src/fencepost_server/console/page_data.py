"""What a page function returns: facts, which become a page, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from fencepost_server.console.listing import ListState

# A spreadsheet treats a cell that begins with one of these as a formula, and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class PageData:
    """The facts of one page. `rows` names the list among them that is its table; `more`, further ones.

    A list that continues has a fact `next_PARAMETER`: the value of that query parameter for the rows that
    follow. `lists` has what the mechanism of lists says of them; a table without an entry is read whole.
    """

    facts: Mapping[str, Any]
    rows: str | None = None
    more: Sequence[str] = ()
    lists: Mapping[str, ListState] = field(default_factory=dict[str, ListState])

    @property
    def tables(self) -> Sequence[str]:
        """The lists among the facts that can be downloaded as tables, the page's own first."""
        return () if self.rows is None else (self.rows, *self.more)

    def onward(self, table: str) -> Mapping[str, Any] | None:
        """The query parameters for the rows that follow in a table, or None after its last."""
        state = self.lists.get(table)
        return state.onward or None if state is not None else None


@dataclass(frozen=True, slots=True)
class ActionDone:
    """What an action did, in a sentence, and the page to continue on."""

    message: str
    back: str
    facts: Mapping[str, Any] | None = None
    # Shown once, and nowhere else: a new token.
    secret: str | None = None


_PLAIN = (str, int, float, bool, type(None))
_TOLD: Sequence[tuple[type, Callable[[Any], Any]]] = (
    (datetime, datetime.isoformat),
    (timedelta, timedelta.total_seconds),
    (bytes, bytes.hex),
)


def jsonable(value: Any) -> Any:
    """Facts as JSON values. Times are ISO 8601, durations are seconds, decimals stay exact."""
    if isinstance(value, _PLAIN):
        return value
    for kind, tell in _TOLD:
        if isinstance(value, kind):
            return tell(value)
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(asdict(value))
    if isinstance(value, Mapping):
        facts = cast("Mapping[Any, Any]", cast("object", value))
        return {str(name): jsonable(one) for name, one in facts.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [jsonable(one) for one in cast("Sequence[Any]", value)]
    return str(value)


def as_json(facts: Mapping[str, Any]) -> str:
    """The facts as compact JSON; NaN and infinity are refused."""
    return json.dumps(jsonable(facts), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class Table:
    """Rows as CSV, streamed: a line of names before the first; nested documents stay JSON."""

    def __init__(self) -> None:
        self._names: list[str] = []

    def lines(self, rows: Sequence[Any]) -> str:
        """The rows as CSV; the first call writes the names of the columns."""
        told = [cast("dict[str, Any]", jsonable(row)) for row in rows]
        text = io.StringIO()
        writer = csv.writer(text)
        if told and not self._names:
            self._names = list(dict.fromkeys(name for row in told for name in row))
            writer.writerow(self._names)
        writer.writerows([_cell(row.get(name)) for name in self._names] for row in told)
        return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
