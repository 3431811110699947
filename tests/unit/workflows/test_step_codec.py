"""What a step stores, and what comes back."""

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from fencepost.errors import InvalidInput
from fencepost.workflows._step_codec import arguments_digest, codec_of, step_name


@dataclass
class Line:
    item: str
    price: Decimal


def lines() -> list[Line]: ...  # type: ignore[empty-body]


def when() -> datetime: ...  # type: ignore[empty-body]


def anything(): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (lines, [Line("lamp", Decimal("1.50"))]),
        (when, datetime(2030, 1, 1, tzinfo=UTC)),
        (anything, {"a": [1, None]}),
        (anything, None),
    ],
)
def test_a_result_comes_back_as_what_it_was(function: Any, value: Any) -> None:
    codec = codec_of(function)

    assert codec.decode(codec.encode(value)) == value


def test_a_result_that_does_not_fit_its_type_any_more_is_named() -> None:
    with pytest.raises(InvalidInput, match="does not fit its type any more"):
        codec_of(lines).decode([{"other": 1}])


def test_the_digest_tells_arguments_apart() -> None:
    told = [
        arguments_digest(args, kwargs)
        for args, kwargs in (
            ((), {}),
            ((1,), {}),
            (("1",), {}),
            ((), {"a": 1, "b": 2}),
            ((Line("lamp", Decimal(1)),), {}),
        )
    ]
    assert len(set(told)) == len(told)
    assert arguments_digest((), {"b": 2, "a": 1}) == told[3]
    with pytest.raises(InvalidInput, match="is no JSON value"):
        arguments_digest((object(),), {})


def test_a_lambda_has_no_name() -> None:
    assert step_name(lines) == "lines"
    with pytest.raises(InvalidInput, match="options\\(name"):
        step_name(lambda: None)
