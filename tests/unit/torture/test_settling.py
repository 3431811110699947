"""A run settles when everything that was asked for is done, and nothing is asked for any more."""

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost_torture import _run as run
from fencepost_torture._load_generator import LoadGenerator
from fencepost_torture._plan import RunPlan
from fencepost_torture._system_environment import Account
from fencepost_torture._system_run import SystemRun

LOOKS_BEFORE_IT_ASKS = 3


class LateAsker:
    """A batch is on its way when the faults end. It arrives in the moment after an account was read, and is
    done one look later."""

    name = "late"

    def __init__(self) -> None:
        self.asked = self.done = self.looks = 0
        self.entered, self.may_ask = threading.Event(), threading.Event()
        self.asker: LoadGenerator | None = None

    def ask(self, _env: object, turn: int) -> None:
        self.entered.set()
        assert self.may_ask.wait(60)
        self.asked += 1

    def account(self, _env: object) -> Account:
        if threading.current_thread() is not threading.main_thread():
            return Account(self.asked, self.done)
        self.looks += 1
        account = Account(self.asked, self.done)
        self.done = self.asked
        if self.looks == LOOKS_BEFORE_IT_ASKS:
            self.let_it_ask()
        return account

    def let_it_ask(self) -> None:
        self.may_ask.set()
        assert self.asker is not None
        self.asker.join()


class Empty:
    """A stage on which nothing was refused."""

    def rows(self, _query: str) -> list[tuple[str, int]]:
        return []

    def hang_up(self) -> None:
        pass


class Joined(LoadGenerator):
    """A run that settles waits for the asker's thread: the batch is asked for at the latest then."""

    def join(self) -> None:
        cast("LateAsker", cast("Any", self._system)).may_ask.set()
        super().join()


class Settling(run._Run):  # pyright: ignore[reportPrivateUsage]
    """The phase alone, with one system and no processes."""

    def __init__(self, load_generator: LoadGenerator) -> None:
        self._plan = RunPlan(seed=1, seconds=1.0, systems=["late"], kinds=[])
        self._parts = {"late": cast("SystemRun", cast("Any", SimpleNamespace(load_generator=load_generator)))}
        self._breaches = []

    def _tend(self) -> None:
        pass

    def settle(self) -> None:
        self._settle(1.0)


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch) -> LateAsker:
    monkeypatch.setattr(run, "TICK_SECONDS", 0.0)
    return LateAsker()


def settle(system: LateAsker) -> None:
    load_generator = Joined(cast("Any", system), cast("Any", Empty()))
    system.asker = load_generator
    load_generator.start()
    assert system.entered.wait(60)
    load_generator.stop()
    Settling(load_generator).settle()


def test_a_run_does_not_settle_while_a_batch_is_being_asked_for(system: LateAsker) -> None:
    settle(system)

    assert system.looks > LOOKS_BEFORE_IT_ASKS, "all accounts were equal from the first look on"
    assert (system.asked, system.done) == (1, 1)


def test_a_run_that_looks_at_accounts_alone_settles_too_early(
    system: LateAsker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted bug: what the test above would see."""
    monkeypatch.setattr(LoadGenerator, "is_asking", False)

    settle(system)

    assert (system.asked, system.done) == (1, 0), "the last batch is called lost"
