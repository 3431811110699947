"""Calls that were repeated by their ids count as the one call that they are; answers are kept as runs."""

import math
from datetime import UTC, datetime
from typing import Any

from fencepost_nonces._nonce_calls import Reservation
from fencepost_torture._linearizability import linearize
from fencepost_torture._models import NonceModel
from fencepost_torture._nonce_checker import REFUSED, doubted, runs_of, settled
from fencepost_torture._operation_log import Operation


def reserve(begun: float, ended: float, request: str, *runs: list[int], count: int = 1) -> Operation:
    """`runs` are nothing where the answer is not known."""
    question = {"request": request, "count": count}
    return Operation("reserve", "s", begun, ended, question, [*runs] or None)


def release(begun: float, ended: float, answer: Any, *runs: list[int]) -> Operation:
    return Operation("release", "s", begun, ended, {"runs": [*runs]}, answer)


def holds(*operations: Operation) -> bool:
    return linearize(settled(operations), NonceModel()).holds


def test_a_repeat_is_answered_with_what_was_reserved_long_before() -> None:
    assert holds(
        reserve(0, math.inf, "a"),
        reserve(1, 2, "b", [1, 1, 1]),
        reserve(3, 4, "a", [0, 1, 1]),
        reserve(5, 6, "a", [0, 1, 1]),
        reserve(7, 8, "c", [2, 1, 1]),
    )


def test_a_repeat_for_many_is_too() -> None:
    assert holds(
        reserve(0, math.inf, "0", count=1000),
        reserve(1, 2, "1000", [1000, 1000, 1], count=1000),
        reserve(3, 4, "0", [0, 1000, 1], count=1000),
        reserve(5, 6, "0", [0, 1000, 1], count=1000),
        reserve(7, 8, "2000", [2000, 1000, 1], count=1000),
    )


def test_a_release_that_no_caller_heard_of_may_have_made_the_gap() -> None:
    assert holds(
        reserve(0, 1, "a", [0, 1, 1]),
        release(2, math.inf, None, [0, 1, 1]),
        reserve(3, 4, "a", [0, 1, 2]),
        reserve(5, 6, "b", [1, 1, 1]),
    )


def test_a_refusal_of_the_last_try_proves_nothing_of_the_tries_before_it() -> None:
    first = reserve(0, 1, "a", [0, 3, 1], count=3)
    refused, after = release(2, 3, REFUSED, [0, 3, 1]), reserve(4, 5, "b", [0, 3, 2], count=3)

    assert doubted(first) == first
    assert holds(first, doubted(refused), after)


def test_asking_again_for_what_one_has_does_not_explain_a_gap_that_was_left() -> None:
    """The second `a` was never answered: as another call it would have taken the gap."""
    history = [
        reserve(0, 1, "a", [0, 1, 1]),
        reserve(2, 3, "b.0", [1, 1, 1]),
        release(4, 5, "released", [1, 1, 1]),
        reserve(6, math.inf, "a"),
    ]

    assert holds(*history, reserve(7, 8, "c", [1, 1, 2]))
    assert not holds(*history, reserve(7, 8, "c", [2, 1, 1]))


def test_asking_again_for_what_was_given_back_may_have_taken_the_gap() -> None:
    history = [
        reserve(0, 1, "a.0", [0, 1, 1]),
        release(2, 3, "released", [0, 1, 1]),
        reserve(4, math.inf, "a.0"),
    ]

    assert holds(*history, reserve(5, 6, "b", [1, 1, 1]))
    assert holds(*history, reserve(5, 6, "b", [0, 1, 2]))


def test_gaps_of_different_holds_are_one_run_for_the_model() -> None:
    assert holds(
        reserve(0, 1, "a", [0, 4, 1], count=4),
        release(2, 3, "released", [0, 4, 1]),
        reserve(4, 5, "b", [0, 2, 2], count=2),
        release(6, 7, "released", [0, 2, 2]),
        reserve(8, 9, "c", [0, 2, 3], [2, 2, 2], [4, 1, 1], count=5),
    )


def test_two_requests_with_one_nonce_are_seen() -> None:
    assert not holds(reserve(0, 1, "a", [0, 1, 1]), reserve(2, 3, "b", [0, 1, 2]))
    assert not holds(
        reserve(0, 1, "0", [0, 1000, 1], count=1000), reserve(2, 3, "1000", [999, 1000, 1], count=1000)
    )


def test_a_nonce_that_was_left_out_is_seen() -> None:
    assert not holds(reserve(0, 1, "a", [0, 1, 1]), reserve(2, 3, "b", [2, 1, 1]))
    assert not holds(reserve(0, 1, "0", [0, 500, 1], [501, 500, 1], count=1000))


def test_answers_out_of_the_order_of_their_requests_are_seen() -> None:
    assert not holds(reserve(0, 1, "0", [1, 1, 1], [0, 1, 1], count=2))


def told(nonce: int, hold: int) -> Reservation:
    return Reservation(f"r{nonce}", nonce, hold, "HELD", 1, datetime.now(UTC), None)


def test_what_follows_in_one_hold_is_written_down_as_one_run() -> None:
    answers = [told(5, 1), told(6, 1), told(7, 2), told(8, 2), told(10, 2), told(9, 2)]

    assert runs_of(answers) == [[5, 2, 1], [7, 2, 2], [10, 1, 2], [9, 1, 2]]
    assert runs_of([]) == []
