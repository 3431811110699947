"""Figures for people."""

import pytest

from fencepost_server.web.formatting import rate


@pytest.mark.parametrize(
    ("per_second", "told"),
    [
        (None, "0"),
        (0.0, "0"),
        (1234.6, "1,235/s"),
        (3.21, "3.21/s"),
        (0.75, "45/min"),
        (1 / 3600, "1/h"),
        (1e-5, "0.036/h"),
    ],
)
def test_a_rate_is_told_in_the_unit_that_makes_it_one_or_more(per_second: float | None, told: str) -> None:
    assert rate(per_second) == told
