"""Arrays of numbers and text are written as PostgreSQL reads them; anything else is left alone."""

from datetime import timedelta
from typing import Any

import pytest

from fencepost.kernel._array_literal import as_literals


@pytest.mark.parametrize(
    ("values", "literal"),
    [
        ([], "{}"),
        ([1, -2, 2**62], "{1,-2,4611686018427387904}"),
        (["a", ""], '{"a",""}'),
        ([None, "NULL"], '{NULL,"NULL"}'),
        ([1, None], "{1,NULL}"),
        (['a"b\\c,{d}'], '{"a\\"b\\\\c,{d}"}'),
        ([""], '{""}'),
        # PostgreSQL refuses the first; two elements out of one it would take.
        (["a\0b", "c"], '{"a\0b","c"}'),
    ],
)
def test_numbers_and_text_become_a_literal(values: list[Any], literal: str) -> None:
    assert as_literals((values,)) == (literal,)


@pytest.mark.parametrize("values", [[True], [1.5], [timedelta(seconds=1)], [b"x"], [["nested"]]])
def test_what_is_no_number_and_no_text_is_left_to_the_driver(values: list[Any]) -> None:
    assert as_literals((values,)) == (values,)


def test_arguments_that_are_no_lists_stay_as_they_are() -> None:
    assert as_literals(("text", 7, None, ("tuple",))) == ("text", 7, None, ("tuple",))
