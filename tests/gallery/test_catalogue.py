"""The catalogue names every bug that is planted anywhere, and the page of it is the catalogue."""

import ast
import re
from collections import Counter

from tests.gallery.catalogue import BY_FILE, PAGE, ROOT, catalogue, page

PLANTS = re.compile(r"\.plant\(|\.mutate\(|\bmutate\(|mutant\(|planted\(|pg_get_functiondef|\.refuted\b")
# They plant what others name, or look whether their own eyes are open.
OTHERS = {
    "tests/acceptance/conftest.py": "plants for the tests of its folder",
    "tests/acceptance/jobs/worker_processes.py": "switches the bugs on in processes",
    "tests/acceptance/jobs/mutants.py": "the bugs of tests/acceptance/jobs/test_teeth.py",
    "tests/acceptance/jobs/env.py": "plants for the tests of its folder",
    "tests/gallery/catalogue.py": "the catalogue",
    "tests/gallery/mutants.py": "the bugs of tests/gallery/test_gallery.py",
    "tests/gallery/planted_processes.py": "switches the bugs on in processes",
    "tests/gallery/test_catalogue.py": "this file",
    "tests/integration/job_features/probes.py": "writes rows for the tests of its folder",
    "tests/integration/job_features/test_chunks.py": "plants rows, not bugs",
    "tests/integration/job_features/test_direct.py": "plants faults of the database, not bugs",
    "tests/integration/job_features/test_processes.py": "plants rows, not bugs",
    "tests/integration/job_features/test_results.py": "plants rows, not bugs",
    "tests/integration/job_features/test_schedules_at_run_time.py": "plants rows, not bugs",
    "tests/integration/job_features/test_schedules_command.py": "plants rows, not bugs",
    "tests/integration/kernel/catalog.py": "compares two schemas",
    "tests/integration/plans/test_plans.py": "shows that it sees a sequential scan",
    "tests/isolation/planted_bug.py": "how a bug is planted",
    "tests/security/canary.py": "plants secrets, not bugs",
    "tests/security/canary_app.py": "plants secrets, not bugs",
    "tests/security/test_canary.py": "plants secrets, not bugs",
    "tests/specs/tlc.py": "reads the twins",
}


def test_there_are_enough_and_none_has_the_name_of_another() -> None:
    entries = catalogue()
    names = Counter((entry.file, entry.name) for entry in entries)

    assert [name for name, count in names.items() if count > 1] == []
    assert len({entry.name for entry in entries}) >= 150


def test_the_test_that_sees_a_bug_is_there() -> None:
    functions = {
        file: {
            node.name
            for node in ast.parse((ROOT / file).read_text()).body
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        for file in BY_FILE
    }
    missing = [e for e in catalogue() if e.test.partition("[")[0] not in functions[e.file]]

    assert missing == []


def test_a_caller_that_plants_a_bug_is_in_the_catalogue() -> None:
    files = (file for file in (ROOT / "tests").rglob("*.py") if "mutants/" not in file.as_posix())
    planting = {file.relative_to(ROOT).as_posix() for file in files if PLANTS.search(file.read_text())}

    assert planting - OTHERS.keys() <= set(BY_FILE)
    assert {entry.file for entry in catalogue()} == set(BY_FILE)


def test_the_page_is_the_catalogue() -> None:
    assert PAGE.read_text() == page(), "write it with `python -m tests.gallery.catalogue`"
