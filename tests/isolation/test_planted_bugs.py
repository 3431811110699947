"""The interleavings have teeth: each bug of the gallery is noticed by the scenario that it names.

A few of every noun are planted in each run, all of them with --full.
"""

import re
from typing import Any

import pytest

from fencepost.embedded import Database
from tests.isolation.env import IsolationEnv, prepare_pauses
from tests.isolation.gallery import GALLERY, INSIDE
from tests.isolation.inside import explore_inside
from tests.isolation.planted_bug import PlantedBug
from tests.isolation.scenario import Violation
from tests.isolation.scenarios import pairs, scenarios

# A bug that merely breaks its function would be noticed by anything.
BROKEN = re.compile(r"error: (?!DeadlockDetected|UniqueViolation)")


QUICK_EVERY = 7


def cases(bugs: tuple[PlantedBug, ...]) -> list[Any]:
    return [
        pytest.param(bug, id=bug.title, marks=() if number % QUICK_EVERY == 0 else pytest.mark.full)
        for number, bug in enumerate(bugs)
    ]


@pytest.mark.parametrize("bug", cases(GALLERY))
def test_a_planted_bug_is_noticed(bug: PlantedBug, scratch_database: Database) -> None:
    bug.plant(scratch_database)
    with IsolationEnv.open(scratch_database) as env, pytest.raises(Violation) as caught:
        env.explore_all(scenarios()[bug.noticed_by])
    assert not BROKEN.search(str(caught.value))


@pytest.mark.parametrize("bug", cases(INSIDE))
def test_a_bug_between_two_statements_is_noticed(bug: PlantedBug, scratch_database: Database) -> None:
    prepare_pauses(scratch_database)
    bug.plant(scratch_database)
    with IsolationEnv.open(scratch_database) as env, pytest.raises(Violation) as caught:
        explore_inside(env, pairs()[bug.noticed_by])
    assert not BROKEN.search(str(caught.value))
