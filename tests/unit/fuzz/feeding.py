"""A row of a table of parsers, and how it is fed."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.fuzz.hostile import fuzzed

QUICK, LONG = 30, 3000


@dataclass(frozen=True)
class Parser:
    """What it is fed with, and the errors that are its answer."""

    read: Callable[[Any], object]
    fed: st.SearchStrategy[Any]
    refuses_with: tuple[type[Exception], ...] = ()


def feed(parser: Parser, examples: int) -> None:
    @fuzzed(examples)
    @given(parser.fed)
    def swallow(food: Any) -> None:
        assert "hunter2" not in refusal(lambda: parser.read(food), parser.refuses_with)

    swallow()


def refusal(read: Callable[[], object], refuses_with: tuple[type[Exception], ...]) -> str:
    """What was said instead of an answer."""
    try:
        read()
    except refuses_with as error:
        return str(error)
    return ""
