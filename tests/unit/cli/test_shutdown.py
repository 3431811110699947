from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from fencepost.cli.exit_codes import ExitCode
from fencepost.cli.shutdown import POLITE, Shutdown, SignalEvent


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


AT_EVERY_LINE = """
import faulthandler, os, signal, sys
from fencepost.cli.shutdown import Shutdown

faulthandler.dump_traceback_later(60, exit=True)

def signalled_at(line):
    ending, passed = Shutdown(), 0

    def trace(frame, event, argument):
        nonlocal passed
        if event == "line":
            passed += 1
            if passed == line:
                os.kill(os.getpid(), signal.SIGINT)
        return trace

    with ending.listening():
        sys.settrace(trace)
        seen = ending.wait(0.01)
        sys.settrace(None)
        assert passed < line or ending.wait(60)
    return passed >= line

print(next(line for line in range(1, 1000) if not signalled_at(line)))
"""


def test_a_signal_that_comes_between_any_two_lines_of_the_wait_is_heard() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EVERY_LINE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 3


def test_every_thread_that_waits_is_woken() -> None:
    event = SignalEvent()
    woken: list[bool] = []
    threads = [threading.Thread(target=lambda: woken.append(event.wait(60))) for _ in range(3)]
    for thread in threads:
        thread.start()
    event.set()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3
    assert event.is_set()
    assert event.wait(0)
