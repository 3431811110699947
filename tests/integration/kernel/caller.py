"""One caller of the kernel: a connection that shows answers as dictionaries and refusals as values."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, Self, cast

import psycopg
import pytest
from psycopg.rows import dict_row

from fencepost.errors import REFUSALS, Backpressure, InvalidInput, WrongIsolation


@dataclass(frozen=True)
class Refused:
    """What a refusal carries in its DETAIL."""

    reason: str
    noun: str
    subject: str
    attempted: dict[str, Any]
    seen: dict[str, Any]


def connect(url: str) -> psycopg.Connection[dict[str, Any]]:
    return psycopg.Connection[dict[str, Any]].connect(
        url,
        autocommit=True,
        row_factory=dict_row,
        # A pooler in transaction mode gives the next statement to another backend.
        prepare_threshold=None,
    )


class Caller:
    """Each statement is a transaction of its own, unless it stands in a `transaction` block."""

    def __init__(self, url: str, connection: psycopg.Connection[dict[str, Any]] | None = None) -> None:
        self.url = url
        self.connection = connection or connect(url)
        self.pid = self.connection.info.backend_pid

    def rows(self, query: LiteralString, *values: Any) -> list[dict[str, Any]]:
        return self.connection.execute(query, values).fetchall()

    def row(self, query: LiteralString, *values: Any) -> dict[str, Any]:
        (row,) = self.rows(query, *values)
        return row

    def value(self, query: LiteralString, *values: Any) -> Any:
        (value,) = self.row(query, *values).values()
        return value

    def column(self, query: LiteralString, *values: Any) -> list[Any]:
        return [next(iter(row.values())) for row in self.rows(query, *values)]

    def execute(self, query: LiteralString, *values: Any) -> None:
        self.connection.execute(query, values)

    @contextmanager
    def transaction(self) -> Generator[Self]:
        with self.connection.transaction():
            yield self

    def refused(self, reason: str, query: LiteralString, *values: Any) -> Refused:
        """The call is refused for this reason; answers what the refusal says."""
        error = self.failed(REFUSALS[reason].sqlstate, query, *values)
        refused = Refused(**json.loads(error.diag.message_detail or "{}"))
        assert refused.reason == reason
        assert error.diag.message_hint, "a refusal says what to do"
        return refused

    def invalid(self, field: str, query: LiteralString, *values: Any) -> None:
        """The call is turned away because this argument is wrong, and its message names it."""
        error = self.failed(InvalidInput.sqlstate, query, *values)
        assert json.loads(error.diag.message_detail or "{}") == {"field": field}
        assert field in (error.diag.message_primary or "")

    def wrong_isolation(self, query: LiteralString, *values: Any) -> None:
        self.failed(WrongIsolation.sqlstate, query, *values)

    def held_back(self, query: LiteralString, *values: Any) -> str:
        """The call meets a full queue; answers the message."""
        return self.failed(Backpressure.sqlstate, query, *values).diag.message_primary or ""

    def failed(self, sqlstate: str, query: LiteralString, *values: Any) -> psycopg.Error:
        with pytest.raises(psycopg.Error) as caught:
            self.connection.execute(query, values)
        assert caught.value.sqlstate == sqlstate, caught.value
        return caught.value

    def close(self) -> None:
        self.connection.close()


def refusal_counts(caller: Caller) -> dict[str, int]:
    """How often each reason was given, without those that never were."""
    rows = caller.rows("select reason, refused from fencepost.refusal_counts() where refused > 0")
    return cast("dict[str, int]", {row["reason"]: row["refused"] for row in rows})
