"""How often a system is asked."""

import threading
from typing import Any, cast

from fencepost_torture._load_generator import LoadGenerator
from fencepost_torture._system_environment import Account, System, SystemEnvironment


class Eager:
    """Does at once whatever it is asked for, and tells when it was asked for the second time."""

    name = "eager"

    def __init__(self) -> None:
        self.asked = 0
        self.first, self.second = threading.Event(), threading.Event()

    def ask(self, _env: object, turn: int) -> None:
        self.asked += 1
        (self.second if turn else self.first).set()

    def account(self, _env: object) -> Account:
        return Account(self.asked, self.asked)


class Empty:
    """A stage on which nothing was refused."""

    def rows(self, _query: str) -> list[tuple[str, int]]:
        return []

    def hang_up(self) -> None:
        pass


def load_generator_of(system: Eager, **pace: float) -> LoadGenerator:
    return LoadGenerator(
        cast("System", cast("Any", system)),
        cast("SystemEnvironment", cast("Any", Empty())),
        **cast("Any", pace),
    )


def test_a_system_that_does_everything_at_once_is_asked_again_at_once() -> None:
    system = Eager()
    load_generator = load_generator_of(system)
    load_generator.start()
    assert system.second.wait(60)
    load_generator.stop()
    load_generator.join()


def test_a_system_with_a_pace_is_asked_no_more_often() -> None:
    system = Eager()
    load_generator = load_generator_of(system, helpings_per_second=0.001)
    load_generator.start()
    assert system.first.wait(60)
    # The stop wakes it from its wait, and it asks no more.
    load_generator.stop()
    load_generator.join()
    assert system.asked == 1
