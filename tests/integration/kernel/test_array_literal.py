"""What is written as a literal is read back as it was."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencepost.embedded import Database
from fencepost.kernel._array_literal import as_literals

# Everything but NUL and lone surrogates, which PostgreSQL has no place for.
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
FEW = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(params=[psycopg.Cursor, psycopg.ClientCursor])
def cursor(request: pytest.FixtureRequest, database: Database) -> Iterator[psycopg.Cursor[Any]]:
    with database.connect() as connection:
        connection.cursor_factory = request.param
        yield connection.cursor()


@FEW
@given(values=st.lists(st.none() | TEXT))
def test_text_comes_back_as_it_was(cursor: psycopg.Cursor[Any], values: list[str | None]) -> None:
    assert cursor.execute("select %s::text[]", as_literals((values,))).fetchall() == [(values,)]


@FEW
@given(values=st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)))
def test_numbers_come_back_as_they_were(cursor: psycopg.Cursor[Any], values: list[int | None]) -> None:
    assert cursor.execute("select %s::bigint[]", as_literals((values,))).fetchall() == [(values,)]
