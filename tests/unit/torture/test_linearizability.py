"""The checker accepts what one thing after another can have answered, and nothing else."""

import itertools
import math
import random
from typing import Any

import pytest

from fencepost_torture import _linearizability as linearizability
from fencepost_torture._effects import UNDECIDED
from fencepost_torture._linearizability import linearizable, linearize
from fencepost_torture._models import Held, LeaseModel, NonceModel, Run, Sequence, united
from fencepost_torture._operation_log import Operation


def acquire(begun: float, ended: float, owner: str, answer: Any) -> Operation:
    return Operation("acquire", "r", begun, ended, {"owner": owner}, answer)


def write(begun: float, ended: float, owner: str, token: int, answer: Any) -> Operation:
    return Operation("write", "r", begun, ended, {"owner": owner, "token": token}, answer)


def release(begun: float, ended: float, owner: str, token: int, answer: Any) -> Operation:
    return Operation("release", "r", begun, ended, {"owner": owner, "token": token}, answer)


def reserve(begun: float, ended: float, *answer: Run, count: int = 1) -> Operation:
    """`answer` is nothing where it is not known."""
    return Operation("reserve", "s", begun, ended, {"count": count}, answer or None)


def give_back(begun: float, ended: float, *runs: Run) -> Operation:
    given_back = [[first, count, 1] for first, count in runs]
    return Operation("release", "s", begun, ended, {"runs": given_back}, "released")


FINE = {
    "one after another": [
        acquire(0, 1, "a", 1),
        write(2, 3, "a", 1, 1),
        release(4, 5, "a", 1, "released"),
        acquire(6, 7, "b", 2),
        write(8, 9, "b", 2, 2),
    ],
    "a takeover at the same time as the last write": [
        acquire(0, 1, "a", 1),
        write(2, 6, "a", 1, 1),
        acquire(3, 5, "b", 2),
        write(7, 8, "b", 2, 2),
    ],
    "a late write that is refused": [
        acquire(0, 1, "a", 1),
        acquire(2, 3, "b", 2),
        write(4, 5, "a", 1, "not_owner"),
        write(6, 7, "b", 2, 1),
    ],
    "an unknown write that happened": [
        acquire(0, 1, "a", 1),
        write(2, math.inf, "a", 1, None),
        acquire(4, 5, "b", 2),
        write(6, 7, "b", 2, 2),
    ],
    "an unknown write that did not": [
        acquire(0, 1, "a", 1),
        write(2, math.inf, "a", 1, None),
        acquire(4, 5, "b", 2),
        write(6, 7, "b", 2, 1),
    ],
    "an unknown acquisition that took a token": [
        acquire(0, math.inf, "a", None),
        acquire(1, 2, "b", 2),
    ],
    "an expired lease": [
        acquire(0, 1, "a", 1),
        write(2, 3, "a", 1, "lease_expired"),
        release(4, 5, "a", 1, "lease_expired"),
    ],
}
BROKEN = {
    "a zombie writes after its successor": [
        acquire(0, 1, "a", 1),
        acquire(2, 3, "b", 2),
        write(4, 5, "b", 2, 1),
        write(6, 7, "a", 1, 2),
    ],
    "two writes see the same value": [
        acquire(0, 1, "a", 1),
        write(2, 3, "a", 1, 1),
        write(4, 5, "a", 1, 1),
    ],
    "a token comes back": [acquire(0, 1, "a", 1), acquire(2, 3, "b", 1)],
    "a token is left out": [acquire(0, 1, "a", 1), acquire(2, 3, "b", 3)],
    "the holder is refused as a stranger": [acquire(0, 1, "a", 1), write(2, 3, "a", 1, "not_owner")],
    "a free lease is refused as held": [acquire(0, 1, "a", "not_owner")],
    "an unknown write happens before it began": [
        acquire(0, 1, "a", 1),
        write(2, 3, "a", 1, 2),
        write(4, math.inf, "a", 1, None),
    ],
}


@pytest.mark.parametrize("history", FINE.values(), ids=FINE)
def test_a_history_that_one_lease_can_have_is_accepted(history: list[Operation]) -> None:
    assert linearize(history, LeaseModel()).holds


@pytest.mark.parametrize("history", BROKEN.values(), ids=BROKEN)
def test_a_history_that_no_lease_can_have_is_refused(history: list[Operation]) -> None:
    finding = linearize(history, LeaseModel())

    assert not finding.holds
    assert "none of these can follow" in finding.explanation


def holds(*history: Operation) -> bool:
    return linearize(history, NonceModel()).holds


def test_nonces_fill_gaps_first_and_go_on_behind_the_last() -> None:
    first = [reserve(0, 1, (0, 1)), reserve(2, 3, (1, 1)), give_back(4, 5, (0, 1))]

    assert holds(*first, reserve(6, 7, (0, 1)), reserve(8, 9, (2, 1)))
    assert not holds(*first, reserve(6, 7, (2, 1)))
    assert not holds(*first, reserve(6, 7, (0, 1)), reserve(8, 9, (0, 1)))
    assert holds(reserve(0, math.inf), reserve(1, 2, (1, 1)))
    assert holds(*first, give_back(5, math.inf, (0, 1)), reserve(6, 7, (0, 1)), reserve(8, 9, (2, 1)))
    assert not holds(reserve(0, 1, (1, 1)))


def test_many_nonces_at_once_fill_all_gaps_from_the_lowest_and_then_are_new_ones() -> None:
    first = [reserve(0, 1, (0, 100), count=100), give_back(2, 3, (10, 20), (50, 5)), give_back(4, 5, (30, 2))]

    assert holds(*first, reserve(6, 7, (10, 22), (50, 5), (100, 3), count=30), reserve(8, 9, (103, 1)))
    assert holds(*first, reserve(6, 7, (10, 8), count=8), reserve(8, 9, (18, 14), (50, 1), count=15))
    assert holds(*first, reserve(6, 7, (10, 22), count=22), reserve(8, 9, (50, 1)))
    # New ones before a gap; one too few; one too many; from the middle; one that is held.
    assert not holds(*first, reserve(6, 7, (100, 30), count=30))
    assert not holds(*first, reserve(6, 7, (10, 22), (50, 5), (100, 2), count=30))
    assert not holds(*first, reserve(6, 7, (10, 22), (50, 5), (100, 4), count=30))
    assert not holds(*first, reserve(6, 7, (11, 8), count=8))
    assert not holds(*first, reserve(6, 7, (10, 23), (50, 5), (100, 2), count=30))


def test_calls_for_many_that_are_unknown_happened_whole_or_not_at_all() -> None:
    unknown = reserve(0, math.inf, count=1000)

    assert holds(unknown, reserve(1, 2, (1000, 5), count=5))
    assert holds(unknown, reserve(1, 2, (0, 5), count=5))
    assert not holds(unknown, reserve(1, 2, (500, 5), count=5))


def test_no_caller_gives_back_what_was_never_given_out() -> None:
    assert not holds(reserve(0, 1, (0, 10), count=10), give_back(2, 3, (5, 6)))


def test_numbers_are_kept_in_as_few_runs_as_there_can_be() -> None:
    assert united([(7, 0), (5, 2), (0, 2), (2, 3), (9, 1), (6, 1)]) == ((0, 7), (9, 1))


def everything_tried(history: list[Operation]) -> bool:
    """The definition itself: some order of the answered calls that keeps to real time and to the model."""
    for order in itertools.permutations(history):
        if any(later.ended < earlier.begun for earlier, later in itertools.combinations(order, 2)):
            continue
        states = [LeaseModel().start()]
        for operation in order:
            states = [after for state in states for after in LeaseModel().after(state, operation)]
        if states:
            return True
    return False


def some_history(chance: random.Random) -> list[Operation]:
    """Six calls at once, answered by chance: right often enough, wrong often enough."""
    history: list[Operation] = []
    for _ in range(6):
        begun = chance.uniform(0, 6)
        ended = begun + chance.uniform(0.1, 3)
        owner = chance.choice("ab")
        token = chance.choice([1, 1, 2])
        history.append(
            chance.choice(
                [
                    acquire(begun, ended, owner, chance.choice([1, 2, "not_owner"])),
                    write(begun, ended, owner, token, chance.choice([1, 2, "not_owner"])),
                    release(begun, ended, owner, token, chance.choice(["released", "not_owner"])),
                ]
            )
        )
    return history


def test_the_search_agrees_with_trying_every_order() -> None:
    chance = random.Random(7)  # noqa: S311
    verdicts = [
        (linearize(history, LeaseModel()).holds, everything_tried(history))
        for history in (some_history(chance) for _ in range(150))
    ]

    assert [found for found, truth in verdicts if found != truth] == []
    assert {truth for _, truth in verdicts} == {True, False}


def test_a_long_history_with_many_unknown_calls_is_decided() -> None:
    history: list[Operation] = []
    value, now = 0, 0.0
    for token in range(1, 1501):
        owner = f"o{token}"
        if token % 3 == 1:
            history.append(acquire(now, math.inf, owner, None))
        else:
            value += 1
            history += [acquire(now, now + 1, owner, token), write(now + 2, now + 3, owner, token, value)]
        now += 4

    finding = linearize(history, LeaseModel())
    assert finding.holds
    assert finding.decided
    # The order has every call that was answered, and each that must have happened.
    assert len(finding.order) == len(history)
    history.append(write(now, now + 1, "o2", 2, value + 1))
    finding = linearize(history, LeaseModel())
    assert finding.decided
    assert not finding.holds


def gave_up(begun: float, at: float) -> Operation:
    """A question whose answer proves nothing."""
    return Operation("reserve", "s", begun, math.inf, {"count": 1}, gave_up=at)


def test_a_call_may_come_after_its_caller_gave_up() -> None:
    late, never = gave_up(0, 1), gave_up(2, 3)
    history = [late, never, reserve(4, 5, (0, 1)), reserve(6, 7, (2, 1)), reserve(8, 9, (3, 1))]

    finding = linearize(history, NonceModel())

    assert (finding.holds, finding.decided) == (True, True)
    assert [operation for operation in finding.order if operation.is_unknown] == [late]
    assert not holds(late, reserve(4, 5, (2, 1)))


def test_a_call_that_came_before_its_caller_gave_up_is_found_at_once() -> None:
    history = [reserve(0, 1, (0, 1)), gave_up(2, 6), reserve(3, 5, (2, 1)), reserve(7, 8, (3, 1))]

    assert linearize(history, NonceModel(), configurations_max=5).decided


def test_callers_that_gave_up_do_not_make_the_search_longer() -> None:
    """Each gap is given back while another reserves behind it: taken in the wrong order, it could have been
    taken by any of those who gave up long ago, and that is found out only when a caller is told it."""
    gaps = 12
    history: list[Operation] = [gave_up(0.01 * n, 0.01 * n + 0.005) for n in range(gaps)]
    history += [reserve(1 + n, 1.5 + n, (n, 1)) for n in range(gaps)]
    for n in range(gaps):
        now = 100 + 10 * n
        history += [give_back(now, now + 1, (n, 1)), reserve(now, now + 2, (gaps + n, 1))]
        history.append(reserve(now + 4, now + 5, (n, 1)))

    finding = linearize(history, NonceModel(), configurations_max=len(history) + 2 * gaps)

    assert (finding.holds, finding.decided) == (True, True)


def test_a_search_that_gives_up_says_so() -> None:
    history = [acquire(n, n + 1, f"o{n}", n + 1) for n in range(10)]

    finding = linearize(history, LeaseModel(), configurations_max=3)

    assert (finding.holds, finding.decided) == (True, False)
    [found] = linearizable("r", history, LeaseModel(), configurations_max=3)
    assert (found.rule, found.key) == (UNDECIDED, "r")
    assert list(linearizable("r", history, LeaseModel())) == []
    [found] = linearizable("r", [acquire(0, 1, "a", 2)], LeaseModel())
    assert found.rule == "linearizable"


def test_a_history_is_not_too_long_to_be_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call is a configuration, and none of them is a wrong guess."""
    monkeypatch.setattr(linearizability, "CONFIGURATIONS_MAX", 50)
    history = [acquire(n, n + 0.5, f"o{n}", n + 1) for n in range(51)]

    assert linearize(history, LeaseModel()).decided


def test_the_state_of_a_lease_is_what_the_model_says() -> None:
    [held] = LeaseModel().after(Held(1, None, 4), acquire(0, 1, "b", 2))

    assert held == Held(2, "b", 4)


def test_calls_that_touch_may_have_come_in_either_order() -> None:
    """One that ends when another begins may have come after it: no clock tells them apart."""
    assert linearize([acquire(0, 1, "a", 2), acquire(1, 2, "b", 1)], LeaseModel()).holds
    assert not linearize([acquire(0, 1, "a", 2), acquire(1.1, 2, "b", 1)], LeaseModel()).holds
    assert linearize([acquire(0, 1, "a", 2), acquire(1, math.inf, "b", None)], LeaseModel()).holds
    assert not linearize([acquire(0, 1, "a", 2), acquire(1.1, math.inf, "b", None)], LeaseModel()).holds


def test_what_cannot_follow_is_told_from_where_the_search_came_furthest() -> None:
    first = [acquire(0, 1, "a", 1), write(2, 3, "a", 1, 1)]
    wrong = [write(4, 9, "a", 1, number) for number in (11, 12, 13, 14, 15)]

    finding = linearize([*first, *wrong], LeaseModel())

    calls = "; ".join(f"write(owner=a, token=1) -> {number}" for number in (11, 12, 13, 14))
    assert finding.explanation == (
        f"after 2 calls the state is {Held(1, 'a', 1)}, and none of these can follow: {calls}"
    )
    beyond = linearize([acquire(0, 9, "a", 7), acquire(1, 2, "b", 1), write(3, 4, "b", 1, 1)], LeaseModel())
    assert beyond.explanation.startswith(f"after 2 calls the state is {Held(1, 'b', 1)}")


HELD, FREE = Held(3, "a", 7), Held(3, None, 7)
WRITTEN, LET_GO = Held(3, "a", 8), Held(3, None, 7)


@pytest.mark.parametrize(
    ("state", "operation", "after"),
    [
        (HELD, acquire(0, math.inf, "b", None), [Held(4, "a caller that does not know it", 7)]),
        (HELD, acquire(0, 1, "b", "not_owner"), [HELD]),
        (HELD, acquire(0, 1, "a", "not_owner"), []),
        (FREE, acquire(0, 1, "a", "not_owner"), []),
        (HELD, acquire(0, 1, "a", 3), [HELD]),
        (HELD, acquire(0, 1, "b", 3), []),
        (HELD, acquire(0, 1, "b", 4), [Held(4, "b", 7)]),
        (HELD, acquire(0, 1, "a", 4), [Held(4, "a", 7)]),
        (FREE, acquire(0, 1, "b", 5), []),
        (HELD, write(0, 1, "a", 3, None), [WRITTEN]),
        (HELD, write(0, 1, "a", 2, None), []),
        (HELD, write(0, 1, "b", 3, None), []),
        (HELD, write(0, 1, "a", 3, "lease_expired"), [HELD]),
        (HELD, write(0, 1, "b", 3, "lease_expired"), [HELD]),
        (HELD, write(0, 1, "a", 3, "not_owner"), []),
        (HELD, write(0, 1, "b", 3, "not_owner"), [HELD]),
        (HELD, write(0, 1, "a", 2, "not_owner"), [HELD]),
        (HELD, write(0, 1, "a", 3, 8), [WRITTEN]),
        (HELD, write(0, 1, "a", 3, 7), []),
        (HELD, write(0, 1, "a", 4, 8), []),
        (HELD, release(0, 1, "a", 3, "released"), [LET_GO]),
        (HELD, release(0, 1, "a", 3, None), [LET_GO]),
        (HELD, release(0, 1, "b", 3, "released"), []),
        (HELD, release(0, 1, "a", 2, None), []),
        (HELD, release(0, 1, "b", 3, "lease_expired"), [HELD]),
        (HELD, release(0, 1, "a", 3, "not_owner"), []),
        (HELD, release(0, 1, "b", 3, "not_owner"), [HELD]),
    ],
)
def test_what_a_call_leaves_of_a_lease(state: Held, operation: Operation, after: list[Held]) -> None:
    assert list(LeaseModel().after(state, operation)) == after


def test_unknown_calls_are_alike_if_they_would_do_the_same() -> None:
    lease, nonces = LeaseModel(), NonceModel()
    assert lease.alike(acquire(0, 1, "a", None)) == lease.alike(acquire(2, 3, "b", None))
    assert lease.alike(write(0, 1, "a", 1, None)) == lease.alike(write(2, 3, "a", 1, None))
    different = [write(0, 1, "a", 1, None), write(0, 1, "b", 1, None), write(0, 1, "a", 2, None)]
    assert len({lease.alike(one) for one in [*different, release(0, 1, "a", 1, None)]}) == 4
    assert nonces.alike(reserve(0, 1, count=2)) == nonces.alike(reserve(2, 3, count=2))
    assert nonces.alike(reserve(0, 1, count=2)) != nonces.alike(reserve(0, 1, count=3))
    assert nonces.alike(give_back(0, 1, (0, 1))) != nonces.alike(give_back(0, 1, (0, 2)))


@pytest.mark.parametrize(
    ("count", "answer", "after"),
    [
        (1, ((2, 1),), Sequence(20, ((3, 2), (9, 1)))),
        (3, ((2, 3),), Sequence(20, ((9, 1),))),
        (4, ((2, 3), (9, 1)), Sequence(20, ())),
        (5, ((2, 3), (9, 1), (20, 1)), Sequence(21, ())),
    ],
)
def test_what_a_reservation_leaves_of_the_gaps(count: int, answer: tuple[Run, ...], after: Sequence) -> None:
    state = Sequence(20, ((2, 3), (9, 1)))

    assert list(NonceModel().after(state, reserve(0, 1, *answer, count=count))) == [after]
    assert list(NonceModel().after(state, reserve(0, math.inf, count=count))) == [after]
    assert list(NonceModel().after(state, reserve(0, 1, (30, count), count=count))) == []
