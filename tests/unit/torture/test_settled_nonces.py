"""Calls that were repeated by their ids count as the one call that they are."""

import math
from typing import Any

from fencepost.torture.chronicle import Operation
from fencepost.torture.linearizability import linearize
from fencepost.torture.models import NonceModel
from fencepost.torture.systems.nonces import settled


def reserve(begun: float, ended: float, request: str, nonce: int | None, hold: int = 1) -> Operation:
    answer = None if nonce is None else {"nonce": nonce, "hold": hold}
    return Operation("reserve", "s", begun, ended, {"request": request}, answer)


def release(begun: float, ended: float, nonce: int, answer: Any, hold: int = 1) -> Operation:
    return Operation("release", "s", begun, ended, {"nonce": nonce, "hold": hold}, answer)


def holds(*operations: Operation) -> bool:
    return linearize(settled(operations), NonceModel()).holds


def test_a_repeat_is_answered_with_what_was_reserved_long_before() -> None:
    assert holds(
        reserve(0, math.inf, "a", None),
        reserve(1, 2, "b", 1),
        reserve(3, 4, "a", 0),
        reserve(5, 6, "a", 0),
        reserve(7, 8, "c", 2),
    )


def test_a_release_that_nobody_heard_of_may_have_made_the_gap() -> None:
    assert holds(
        reserve(0, 1, "a", 0),
        release(2, math.inf, 0, None),
        reserve(3, 4, "a", 0, hold=2),
        reserve(5, 6, "b", 1),
    )


def test_two_requests_with_one_nonce_are_seen() -> None:
    assert not holds(reserve(0, 1, "a", 0), reserve(2, 3, "b", 0, hold=2))


def test_a_nonce_that_was_left_out_is_seen() -> None:
    assert not holds(reserve(0, 1, "a", 0), reserve(2, 3, "b", 2))
