"""Whose word counts when a program has failed in a conversation."""

import pytest

from fencepost_judge._conversation import decides
from fencepost_judge._validating import Opinion


@pytest.mark.parametrize(
    ("verdict", "told", "counts"),
    [
        ("WA", False, True),
        ("PE", False, True),
        ("JE", False, True),
        ("AC", False, False),
        ("PA", False, False),
        ("WA", True, False),
        ("JE", True, False),
        ("AC", True, False),
    ],
)
def test_a_validator_that_did_not_know_of_the_failure_decides(verdict: str, told: bool, counts: bool) -> None:
    assert decides(Opinion(verdict), told=told) is counts
