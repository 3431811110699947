"""What is written on an error on its way up, and what helps against it."""

from typing import Any

import psycopg
import pytest
import redis

from fencepost.flows._errors import StartRefused
from fencepost.flows._failing import blame, facts_of, reading, told, within


def test_the_innermost_knows_best() -> None:
    with pytest.raises(ValueError, match="no") as caught, within("outer"), within("inner"):
        raise ValueError("no")
    assert facts_of(caught.value) == {"step": "inner"}


def raised(error: Exception, **facts: Any) -> None:
    blame(error, **facts)
    raise error


def test_a_record_is_found_by_its_place_among_those_that_were_read() -> None:
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), reading("in:0", ["1-0", "2-0", "3-0"]):
        raised(error, step="map-1", at=1)
    shown = told(error)
    assert (shown["step"], shown["stream"], shown["offset"]) == ("map-1", "in:0", "2-0")


@pytest.mark.parametrize(("exactly", "at"), [(False, 1), (True, 9), (True, None)])
def test_where_the_place_says_nothing_it_is_one_of_them(exactly: bool, at: int | None) -> None:
    error = ValueError("no")
    with pytest.raises(ValueError, match="no"), reading("in:0", [1, 2, 3], exactly=exactly):
        raised(error, at=at)
    assert told(error)["offset"] == "1 to 3"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (psycopg.OperationalError("gone"), "restarts by itself"),
        (redis.ConnectionError("gone"), "restarts by itself"),
        (ConnectionRefusedError("gone"), "restarts by itself"),
        (psycopg.errors.UndefinedTable("spent"), "Restart the worker"),
        (psycopg.errors.InsufficientPrivilege("spent"), "Restart the worker"),
        (psycopg.errors.CheckViolation("spent"), "on_reject=DeadLetters"),
    ],
)
def test_what_helps(error: Exception, words: str) -> None:
    assert words in told(error)["remedy"]


def test_what_says_its_remedy_itself_gets_no_second_one() -> None:
    assert told(StartRefused("Do this.")) == {}


def test_of_an_unknown_error_a_remedy_is_told() -> None:
    assert told(RuntimeError("why")).keys() == {"remedy"}
    blame(error := RuntimeError("why"), step="sum-1", at=0)
    assert "Fix the function of sum-1" in told(error)["remedy"]
