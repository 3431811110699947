"""An executor strikes what is due, waits until work goes on again, and sleeps while it waits."""

from collections.abc import Iterator
from itertools import repeat

from fencepost_torture._fault_executor import TICK_SECONDS, FaultExecutor
from fencepost_torture._faults import FaultInjector
from fencepost_torture._schedule import Fault


class Struck(FaultInjector):
    """Remembers faults, and injects none."""

    def __init__(self) -> None:
        self.planned_faults: list[int] = []
        self.heals = True

    def begin(self) -> None: ...

    def strike(self, fault: Fault) -> None:
        self.planned_faults.append(fault.number)

    def heal_due(self) -> None: ...

    def give_orders(self) -> None: ...

    @property
    def is_over(self) -> bool:
        return self.heals


def planned_faults(*gaps: float) -> Iterator[Fault]:
    for number, gap in enumerate(gaps or repeat(0.0)):
        yield Fault(number, gap, "kill", "jobs", 0, "", nth=1, leases=1.0, at_redis=False)


def test_the_next_blow_waits_until_every_caller_did_something_after_the_last() -> None:
    faults, done = Struck(), {"jobs": 0, "players": 0}
    faults.heals = False
    executor = FaultExecutor(faults, planned_faults(), lambda: dict(done))
    executor.begin()

    executor.turn()
    done["jobs"], done["players"] = 5, 1
    executor.turn()
    assert faults.planned_faults == [0]

    faults.heals = True
    executor.turn()
    done["jobs"] = 6
    executor.turn()
    assert faults.planned_faults == [0]

    done["players"] = 2
    executor.turn()
    assert faults.planned_faults == [0, 1]


def test_an_executor_that_rests_sleeps_a_tick_although_its_blow_is_due() -> None:
    executor = FaultExecutor(Struck(), planned_faults(), lambda: {"jobs": 0})
    executor.begin()
    assert executor.seconds_left == 0.0

    executor.turn()

    assert executor.seconds_left == TICK_SECONDS


def test_without_a_count_of_what_was_done_nothing_rests() -> None:
    faults = Struck()
    executor = FaultExecutor(faults, planned_faults(0.0, 0.0, 60.0))
    executor.begin()

    executor.turn()

    assert faults.planned_faults == [0, 1]
    assert executor.seconds_left == TICK_SECONDS
