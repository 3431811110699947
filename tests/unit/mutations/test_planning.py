"""Seeds and plans: the same from the same seed, and no plan but one that was made."""

import pytest

from fencepost_players.mutations.planning import Planned, Rng, make_plan


def test_the_same_seed_throws_the_same() -> None:
    def throws(rng: Rng) -> list[object]:
        return [rng.below(100), rng.pick([("a", 1), ("b", 2)]), rng.identity()]

    assert throws(Rng(7)) == throws(Rng(7))
    assert throws(Rng(7)) != throws(Rng(8))


def test_a_choice_comes_by_its_weight() -> None:
    rng = Rng(1)
    picks = [rng.pick([("often", 9), ("seldom", 1)]) for _ in range(10_000)]
    assert 800 < picks.count("seldom") < 1200


def test_the_server_throws_anew_for_each_plan() -> None:
    assert len({make_plan(lambda rng: rng.seed).plan for _ in range(10)}) == 10


def test_a_plan_cannot_be_put_together_by_hand() -> None:
    with pytest.raises(TypeError, match="must come from make_plan"):
        Planned("steal everything", 1, False, object())


def test_a_plan_that_is_made_again_has_the_same_dice_from_their_beginning() -> None:
    rng = Rng.throw()
    first, second = (make_plan(lambda thrown: [thrown.below(1000) for _ in range(9)], rng) for _ in range(2))
    assert (first.plan, first.seed) == (second.plan, second.seed)


def test_it_is_known_whether_a_plan_left_anything_to_chance() -> None:
    assert make_plan(lambda rng: rng.below(2)).is_by_chance
    assert not make_plan(lambda rng: rng.seed).is_by_chance
