"""What a page answers: facts, which become a page, JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from datetime import datetime, timedelta
from typing import Any, cast

# A spreadsheet takes what begins with one of these for a formula, and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True)
class Sheet:
    """The facts of one page. `rows` names the list among them that is its table; `more`, further ones."""

    facts: Mapping[str, Any]
    rows: str | None = None
    more: Sequence[str] = ()

    @property
    def tables(self) -> Sequence[str]:
        """The lists among the facts that can be taken home as tables, the page's own first."""
        return () if self.rows is None else (self.rows, *self.more)


@dataclass(frozen=True, slots=True)
class Done:
    """What an action did, in a sentence, and the page to go on from."""

    message: str
    back: str
    facts: Mapping[str, Any] | None = None
    # Shown to a person once, and nowhere else: a new token.
    secret: str | None = None


_PLAIN = (str, int, float, bool, type(None))
_TOLD: Sequence[tuple[type, Callable[[Any], Any]]] = (
    (datetime, datetime.isoformat),
    (timedelta, timedelta.total_seconds),
    (bytes, bytes.hex),
)


def jsonable(value: Any) -> Any:
    """Facts as values that JSON knows. Moments are ISO 8601, durations are seconds, decimals stay exact."""
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
    return json.dumps(jsonable(facts), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def as_csv(rows: Sequence[Any]) -> str:
    """A table, with a line of names. Documents inside stay JSON."""
    rows = [cast("dict[str, Any]", jsonable(row)) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return value
