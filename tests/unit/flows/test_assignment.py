"""How long a task waits that has failed."""

from typing import Any, cast

from fencepost.flows._worker import RETRIES, Assignment

FIRST, MOST = RETRIES.first_seconds, RETRIES.most_seconds


def test_each_failure_waits_twice_as_long_up_to_a_bound() -> None:
    post = Assignment(cast("Any", None), cast("Any", None))
    waits = [post.failed(OSError("away"), ran_seconds=0.1) for _ in range(20)]

    assert waits[:3] == [FIRST, FIRST * 2, FIRST * 4]
    assert waits[-1] == MOST
    assert post.failures == 20


def test_one_that_went_well_for_long_begins_anew() -> None:
    post = Assignment(cast("Any", None), cast("Any", None))
    for _ in range(20):
        post.failed(OSError("away"), ran_seconds=0.1)

    assert post.failed(OSError("away\0"), ran_seconds=MOST + 1) == FIRST
    assert (post.failures, post.error) == (1, "OSError: away")
