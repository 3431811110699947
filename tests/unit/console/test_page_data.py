"""Facts as JSON and as a table."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from fencepost_server.console.listing import ListState
from fencepost_server.console.page_data import PageData, Table, as_json


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
    table = list(csv.reader(io.StringIO(Table().lines(rows))))
    assert table == [
        ["a", "n", "d"],
        ["'=cmd()", "-5", ""],
        ["fine, with a comma", "", '{"x": [1]}'],
        ["'@x", "", ""],
    ]


def test_the_names_of_a_table_stand_once_before_the_first_of_its_rows() -> None:
    table = Table()
    told = [table.lines(rows) for rows in ([], [{"a": 1, "b": 2}], [{"b": 4, "a": 3}])]
    assert told == ["", "a,b\r\n1,2\r\n", "3,4\r\n"]


def test_a_sheet_says_how_each_of_its_tables_goes_on() -> None:
    lists = {
        "tasks": ListState((), onward={"before": 7}),
        "dead": ListState((), onward={"dead_after": 9}),
        "saved": ListState(()),
        "signers": ListState((), onward={"chain": 1, "after": "x"}),
    }
    sheet = PageData({}, "tasks", ("dead", "saved", "signers", "edges"), lists)
    assert [sheet.onward(name) for name in sheet.tables] == [
        {"before": 7},
        {"dead_after": 9},
        None,
        {"chain": 1, "after": "x"},
        None,
    ]
