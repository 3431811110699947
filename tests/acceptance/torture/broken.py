"""Systems of somebody's own: one that loses an effect, to be seen, and nothing else."""

import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from fencepost.testing import Breach
from fencepost.torture.effects import exactly_once
from fencepost.torture.manners import until_told_to_end
from fencepost.torture.stage import Account, Errand, Stage


class Forgetful:
    """Asks for three things; its process does nothing, and two of them are said to be done."""

    name = "forgetful"
    processes = 1
    points = ()
    uses_redis = False
    bears_clock_jumps = True

    def load(self) -> None: ...

    @contextmanager
    def open(self, stage: Stage) -> Generator[Mapping[str, Any]]:
        yield {}

    def serve(self, errand: Errand) -> None:
        until_told_to_end().wait()

    def ask(self, stage: Stage, turn: int) -> None:
        threading.Event().wait(0.05)

    def account(self, stage: Stage) -> Account:
        return Account(3, 3)

    def judge(self, stage: Stage) -> Iterable[Breach]:
        return exactly_once(["a", "b", "c"], ["a", "c"])

    def remains(self, stage: Stage) -> Iterable[Breach]:
        return ()
