"""Child processes: real ones, in the test's hand, and none is left."""

import os
import signal
import sys
from pathlib import Path

import pytest

from fencepost.crashpoints import EXIT_CODE
from fencepost.embedded._deadline import Deadline
from fencepost.testing import Child, ChildFailed, Signals
from tests.unit.testing import actors


def test_a_function_runs_in_a_process_of_its_own() -> None:
    with Child(actors.greet, "world", 2) as child:
        child.succeed()
        assert child.line("hello") == "hello world"
        assert child.pid != os.getpid()


def test_an_async_function_runs_to_its_end() -> None:
    with Child(actors.greet_later, "world") as child:
        child.succeed()
        assert child.line("hello") == "hello world"


def test_a_module_runs_with_its_arguments() -> None:
    with Child("platform", "--terse") as child:
        child.succeed()
        assert child.output


def test_the_test_talks_with_its_child() -> None:
    with Child(actors.echo) as child:
        child.say("one")
        assert child.line("heard") == "heard one"


def test_a_line_that_never_comes_fails_with_the_child_s_own_words() -> None:
    with Child(actors.fail) as child, pytest.raises(ChildFailed, match=r"(?s)starts with 'done'.*the reason"):
        child.line("done")


def test_a_bad_end_fails_with_the_child_s_own_words() -> None:
    with Child(actors.fail) as child, pytest.raises(ChildFailed, match=r"(?s)ended with 1.*the reason"):
        child.succeed()


def test_killed_at_the_second_turn_it_has_done_two(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child(actors.three_turns, str(log), crash="actor.turn:kill@2") as child:
        child.be_killed()
    assert log.read_text() == "0\n1\n"


def test_stopped_at_a_point_it_stands_still_and_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Child(actors.three_turns, str(log), crash="actor.turn:stop") as child:
        child.wait_until_stopped()
        assert log.read_text() == "0\n"
        child.resume()
        child.succeed()
    assert log.read_text() == "0\n1\n2\n"


@pytest.mark.parametrize(("action", "code"), [("raise", 1), ("exit", EXIT_CODE)])
def test_it_ends_by_an_exception_or_at_once(tmp_path: Path, action: str, code: int) -> None:
    with Child(actors.three_turns, str(tmp_path / "log"), crash=f"actor.turn:{action}") as child:
        assert child.wait() == code


def test_a_crash_that_did_not_come_is_no_success(tmp_path: Path) -> None:
    child = Child(actors.three_turns, str(tmp_path / "log"), crash="actor.turn:kill@9")
    with child, pytest.raises(ChildFailed, match="was the crash point reached"):
        child.be_killed()


def test_a_child_that_ended_cannot_be_waited_for_to_stop(tmp_path: Path) -> None:
    with Child(actors.three_turns, str(tmp_path / "log")) as child, pytest.raises(ChildFailed, match="ended"):
        child.wait_until_stopped()


def test_a_wrong_order_is_refused_before_the_child_starts() -> None:
    with pytest.raises(ValueError, match="FENCEPOST_CRASH"):
        Child(actors.echo, crash="actor.turn:explode")


def test_a_function_inside_another_cannot_be_a_child() -> None:
    def inner() -> None: ...

    with pytest.raises(AssertionError, match="top of its file"):
        Child(inner)


async def test_announcements_of_a_child_are_heard(tmp_path: Path) -> None:
    with Signals() as signals, Child(actors.three_turns, str(tmp_path / "log"), signals=signals):
        await signals.wait("actor.turned", count=3, within=60)


def test_announcements_of_a_grandchild_are_heard() -> None:
    with Signals() as signals, Child(actors.start_another_that_announces, signals=signals) as child:
        signals.expect("grandchild.spoke", within=60)
        child.succeed()


def test_a_child_finds_the_process_of_now_and_nothing_of_the_child_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    for name in ("here", "there"):
        place = tmp_path / name
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setenv("TRACE", f"set {name}")
        monkeypatch.setattr(sys, "path", [name, *sys.path])
        with Child(actors.leave_traces) as child:
            child.succeed()
            found.append(child.line("found"))

    assert found == [f"found {[name, f'set {name}', None, name]}" for name in ("here", "there")]


def test_a_thread_that_outlives_the_function_keeps_the_child_alive_and_has_its_crash_points() -> None:
    with Child(actors.end_with_a_thread, crash="actor.turn:kill") as child:
        child.line("done")
        assert child.is_alive
        child.say("go on")
        child.be_killed()
        assert not child.is_alive


def test_a_child_is_gone_after_the_block_even_when_it_stood_still() -> None:
    with Child(actors.wait_for_ever) as child:
        child.line("waiting")
        child.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_stopped_child_does_not_outlive_a_parent_that_was_killed() -> None:
    with Child(actors.parent_of_a_sleeper) as parent:
        sleeper = int(parent.line("sleeper").split()[1])
        os.kill(parent.pid, signal.SIGKILL)
        Deadline(60, "the sleeper is gone").wait(lambda: not _is_alive(sleeper))


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
