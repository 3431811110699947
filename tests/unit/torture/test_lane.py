"""A lane strikes what is due, waits until work goes on again, and sleeps while it waits."""

from collections.abc import Iterator
from itertools import repeat

from fencepost.torture.faults import Faults
from fencepost.torture.lane import TICK_SECONDS, Lane
from fencepost.torture.schedule import Blow


class Struck(Faults):
    """Remembers blows; nobody feels them."""

    def __init__(self) -> None:
        self.blows: list[int] = []
        self.heals = True

    def begin(self) -> None: ...

    def strike(self, blow: Blow) -> None:
        self.blows.append(blow.number)

    def heal_due(self) -> None: ...

    def give_orders(self) -> None: ...

    @property
    def is_over(self) -> bool:
        return self.heals


def blows(*gaps: float) -> Iterator[Blow]:
    for number, gap in enumerate(gaps or repeat(0.0)):
        yield Blow(number, gap, "kill", "jobs", 0, "", nth=1, leases=1.0, at_redis=False)


def test_the_next_blow_waits_until_something_was_done_after_the_last() -> None:
    faults, done = Struck(), [0]
    faults.heals = False
    lane = Lane(faults, blows(), lambda: done[0])
    lane.begin()

    lane.turn()
    done[0] = 5
    lane.turn()
    assert faults.blows == [0]

    faults.heals = True
    lane.turn()
    assert faults.blows == [0]
    done[0] = 6
    lane.turn()
    assert faults.blows == [0, 1]


def test_a_lane_that_rests_sleeps_a_tick_although_its_blow_is_due() -> None:
    lane = Lane(Struck(), blows(), lambda: 0)
    lane.begin()
    assert lane.seconds_left == 0.0

    lane.turn()

    assert lane.seconds_left == TICK_SECONDS


def test_without_a_count_of_what_was_done_nothing_rests() -> None:
    faults = Struck()
    lane = Lane(faults, blows(0.0, 0.0, 60.0))
    lane.begin()

    lane.turn()

    assert faults.blows == [0, 1]
    assert lane.seconds_left == TICK_SECONDS
