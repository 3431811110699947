"""A job that ends its process is found and dies alone: the jobs beside it finish, and none is charged."""

import os
from pathlib import Path

import pytest

from tests.acceptance.jobs.poison_storm import PoisonStorm, poison_storm


def expect(storm: PoisonStorm, rounds: int) -> None:
    figures = storm.figures()
    assert figures["poison_dead_within_its_tries"] == rounds, storm.rounds
    assert (figures["innocent_not_finished"], figures["innocent_charged"]) == (0, 0), storm.rounds
    assert figures["innocent_lost"] > 0, "no job ran beside a poison: nothing was tried"


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "redis", [True, pytest.param(False, marks=pytest.mark.full)], ids=["redis", "postgresql alone"]
)
def test_one_poison_among_many_dies_alone(tmp_path: Path, redis: bool) -> None:
    with poison_storm(6, tmp_path / "workers.log", redis=redis) as storm:
        storm.rage(rounds=1, jobs=100, seed=2 + redis)
        expect(storm, 1)


@pytest.mark.full
@pytest.mark.timeout(7200)
def test_one_poison_among_five_hundred_a_hundred_times() -> None:
    with poison_storm(6, Path(os.devnull)) as storm:
        storm.rage(rounds=100, jobs=500, seed=1, at_once=5)
        expect(storm, 100)
