"""Places for jobs."""

from fencepost.jobs.capacity import Capacity


def test_a_place_that_one_loop_has_asked_for_is_not_the_others() -> None:
    used: list[str] = []
    capacity = Capacity(10, lambda: len(used), lambda: None)
    with capacity.reserved(6) as first, capacity.reserved(100) as second:
        assert (first, second, capacity.free) == (6, 4, 0)
    assert capacity.free == 10


def test_what_is_begun_inside_the_reservation_is_not_counted_twice_afterwards() -> None:
    used: list[str] = []
    capacity = Capacity(3, lambda: len(used), lambda: None)
    with capacity.reserved(2):
        used += ["a", "b"]
        assert capacity.free == 0
    assert capacity.free == 1


def test_there_is_never_less_than_nothing() -> None:
    assert Capacity(1, lambda: 5, lambda: None).free == 0


def test_whoever_waits_for_a_place_is_told_when_a_reservation_ends() -> None:
    """The reservation may have come to nothing: no job ends, and nobody else would tell him."""
    told: list[int] = []
    capacity = Capacity(1, lambda: 0, lambda: told.append(capacity.free))
    with capacity.reserved(1):
        assert told == []
    assert told == [1]
