"""The queries that runbooks print are answered by a real database, to the role that a person has."""

import re
from pathlib import Path

import psycopg
import pytest

from fencepost.embedded import Database

RUNBOOKS = Path(__file__).parents[3] / "docs" / "runbooks"
QUERY = re.compile(r'`fencepost psql -- -c "([^"]+)"`')
QUERIES = {
    f"{page.stem}-{place}": query
    for page in sorted(RUNBOOKS.glob("*.md"))
    for place, query in enumerate(QUERY.findall(page.read_text()))
}
DECIDES = "outbox_resolve"


def test_there_are_queries() -> None:
    assert len(QUERIES) >= 8


@pytest.mark.parametrize("name", [name for name, query in QUERIES.items() if DECIDES not in query])
def test_a_query_is_answered(database: Database, name: str) -> None:
    with database.connect() as connection:
        connection.execute(QUERIES[name].encode())


def test_the_decision_about_a_parked_message_is_understood(database: Database) -> None:
    [query] = [query for query in QUERIES.values() if DECIDES in query]
    with database.connect() as connection, pytest.raises(psycopg.Error) as refused:
        connection.execute(query.replace("ID", "7").encode())
    assert refused.value.sqlstate == "ZF006", "there is no such message; a wrong call would be 42883"
