"""A bug that the torture does not find is a failing test."""

from pathlib import Path

import pytest

from fencepost.kernel.migrate import component_folders
from fencepost_torture._plan import RunPlan
from fencepost_torture._process_main import prepare
from fencepost_torture._run import TortureRun
from fencepost_torture._system_environment import SystemEnvironment
from tests.gallery.gallery import GALLERY, TorturedBug
from tests.gallery.mutants import MUTANTS
from tests.gallery.planted_processes import prepare_planted
from tests.isolation import gallery as isolation
from tests.isolation.planted_bug import PlantedBug
from tests.mutants import grammar

ROOT = Path(__file__).parents[2]

SECONDS = 8.0
SEEDS = (7, 8, 9, 10, 11)

CASES = [pytest.param(bug, id=bug.title, marks=() if bug.quick else pytest.mark.full) for bug in GALLERY]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("bug", CASES)
def test_the_torture_finds_the_bug(bug: TorturedBug) -> None:
    """With one of a few seeds: which fault meets which write is up to the machine."""
    found: set[str] = set()
    for seed in SEEDS:
        found |= rules_broken(bug, seed)
        if found & set(bug.seen_by):
            return
    pytest.fail(f"seen: {found or 'nothing'}")


def rules_broken(bug: TorturedBug, seed: int) -> set[str]:
    plan = RunPlan(
        seed,
        SECONDS,
        [bug.system],
        bug.faults,
        bug.points,
        gap_seconds=0.2,
        lease_seconds=1.0,
        server_settings={"fsync": "off", "full_page_writes": "off"},
        patience_seconds=1.0,
        prepare=prepare_planted if bug.mutant else prepare,
        prepare_arguments=[bug.mutant] if bug.mutant else [],
        before=lambda env: plant(bug, env),
    )
    return {breach.rule for _, breach in TortureRun(plan).run().judgement.breaches}


def plant(bug: TorturedBug, env: SystemEnvironment) -> None:
    PlantedBug(bug.title, "", bug.edits).plant(env.database)


def test_every_edit_still_fits_the_function_that_it_is_for() -> None:
    """Without a server, for all of them: most are planted only with --full, and would rot until then."""
    functions = (file for folder in component_folders().values() for file in folder.glob("functions/*.sql"))
    texts: dict[str, str] = {}
    for file in functions:
        for found in grammar.functions(file):
            texts[found.name] = (
                texts.get(found.name, "") + found.text
            )  # One name may have several signatures.
    planted = [(bug.title, bug.edits) for bug in (*GALLERY, *isolation.GALLERY, *isolation.INSIDE)]

    wrong: list[str] = []
    for title, edits in planted:
        edited = dict(texts)
        for edit in edits:
            times = edited[edit.function].count(edit.old)
            edited[edit.function] = edited[edit.function].replace(edit.old, edit.new)
            if times != 1:
                wrong.append(f"{title}: {edit.function} has {edit.old!r} {times} times")

    assert wrong == []


def test_every_mutant_is_in_the_gallery() -> None:
    assert {bug.mutant for bug in GALLERY if bug.mutant} == set(MUTANTS)


def test_every_bug_has_a_name_of_its_own_and_there_are_enough() -> None:
    ours = [bug.title for bug in GALLERY]
    others = [bug.title for bug in (*isolation.GALLERY, *isolation.INSIDE)]

    assert len(ours) == len(set(ours))
    assert len({*ours, *others}) >= 60
