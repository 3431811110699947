"""Facts as JSON and as a table."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from fencepost.console.sheet import as_csv, as_json


def test_every_kind_of_fact_becomes_json() -> None:
    facts = {
        "at": datetime(2030, 1, 1, tzinfo=UTC),
        "ttl": timedelta(seconds=90),
        "wei": Decimal("1000000000000000000000"),
        "bytes": b"\x01\xff",
        "rows": ({"a": None}, [1, 2.5, True]),
    }
    assert json.loads(as_json(facts)) == {
        "at": "2030-01-01T00:00:00+00:00",
        "ttl": 90.0,
        "wei": "1000000000000000000000",
        "bytes": "01ff",
        "rows": [{"a": None}, [1, 2.5, True]],
    }


def test_a_table_has_every_column_and_no_formula() -> None:
    rows = [{"a": "=cmd()", "n": -5}, {"a": "fine, with a comma", "d": {"x": [1]}}, {"a": "@x"}]
    table = list(csv.reader(io.StringIO(as_csv(rows))))
    assert table == [
        ["a", "n", "d"],
        ["'=cmd()", "-5", ""],
        ["fine, with a comma", "", '{"x": [1]}'],
        ["'@x", "", ""],
    ]
