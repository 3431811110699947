from __future__ import annotations

import os
import signal

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.shutdown import POLITE, Shutdown


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("polite", POLITE)
def test_the_first_wish_is_remembered_and_interrupts_nothing(polite: signal.Signals) -> None:
    ending = Shutdown()
    with ending.listening():
        assert not ending.wait(0)
        os.kill(os.getpid(), polite)
        assert ending.wait(60)


def test_two_signals_at_once_are_one_wish_and_a_later_one_leaves() -> None:
    clock, left = Hand(), list[int]()
    ending = Shutdown(clock=clock, leave=left.append)
    with ending.listening():
        os.kill(os.getpid(), signal.SIGINT)
        clock.now = 0.5
        os.kill(os.getpid(), signal.SIGINT)
        assert left == []
        clock.now = 1.5
        os.kill(os.getpid(), signal.SIGINT)
    assert left == [ExitCode.INTERRUPTED]


def test_a_caller_that_listened_before_listens_again_after() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Shutdown().listening():
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before
