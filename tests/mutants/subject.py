"""Whose mutants are tried: the SQL functions of a package, or the modules of Python that decide."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import psycopg
import pytest

from tests.mutants import exchange, lines
from tests.mutants.exchange import Stillborn
from tests.mutants.operators import Mutant, mutants
from tests.mutants.python_operators import PythonMutant, python_mutants
from tests.mutants.survey import Survey, Surveyor, functions_of, prepare
from tests.mutants.workspace import Workspace, run_tests

FOLDER = lines.ROOT / ".fencepost" / "mutants"
KERNEL, PYTHON = "kernel", "python"
ISOLATION = "tests/isolation/"
TESTS = {
    KERNEL: (
        "tests/integration/kernel",
        "tests/integration/job_features",
        "tests/isolation/test_interleavings.py",
        "tests/acceptance/test_eviction.py",
        "tests/acceptance/test_heartbeat.py",
        "tests/acceptance/test_paused_holder.py",
    ),
    PYTHON: (
        *(f"tests/unit/{part}" for part in ("flows", "job_features", "jobs", "kernel")),
        *(f"tests/unit/{part}" for part in ("nonces", "orders", "outbox", "torture")),
        "tests/integration/kernel",
        "tests/integration/drivers",
        "tests/acceptance/test_eviction.py",
        "tests/acceptance/test_paused_holder.py",
    ),
}
# A package with functions has a folder of tests that reach them; one for services is reached through theirs.
REACHED_THROUGH = {"mutations": "players"}
# They start processes of their own, and see what the quick ones see.
SLOW = ("test_worker_command", "test_jobs_command")
# They look at the functions as text, or at the machine: any change at all would be seen.
AT_TEXTS = ("test_migrate", "test_reference", "test_processes", "test_documented")


class AnyMutant(Protocol):
    """What is known of every mutant."""

    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str:
        """The function that it is in: who saw one of its mutants may see the next one."""
        ...

    @property
    def text(self) -> str: ...


class Subject(Protocol):
    """How mutants of one kind are made, planted and sought."""

    @property
    def name(self) -> str: ...
    @property
    def tests(self) -> Sequence[str]: ...
    @property
    def not_these(self) -> Sequence[str]: ...
    @property
    def hang_seconds_min(self) -> float:
        """A test in which a mutant waits for ever is not waited for less than this."""
        ...

    def mutants(self) -> Sequence[AnyMutant]: ...

    def take_survey(
        self, session: pytest.Session, items: Sequence[pytest.Item], known: Survey, path: Path
    ) -> str:
        """In a child: what these tests reach, beside what is known already."""
        ...

    def prepare_survey(self, workspace: Workspace) -> None: ...

    def end_survey(self, workspace: Workspace) -> None: ...

    def reaching(self, mutant: AnyMutant, survey: Survey) -> list[str]:
        """The tests that reach it, those first that are likely to see it."""
        ...

    def plant(self, workspace: Workspace, mutant: AnyMutant) -> None:
        """For all children; Stillborn if it cannot be."""
        ...

    def plant_in_child(self, mutant: AnyMutant) -> None: ...

    def heal(self, workspace: Workspace, mutant: AnyMutant) -> None: ...


class Functions:
    """The SQL functions of a package, exchanged in the template that every database is a copy of."""

    not_these = (*AT_TEXTS, *SLOW)
    hang_seconds_min = 20.0

    def __init__(self, package: str) -> None:
        self.name = package
        names = [package, *([REACHED_THROUGH[package]] if package in REACHED_THROUGH else [])]
        self.tests: Sequence[str] = TESTS.get(package, [f"tests/integration/{name}" for name in names])

    def mutants(self) -> Sequence[Mutant]:
        return [mutant for function in functions_of(self.name) for mutant in mutants(function)]

    def prepare_survey(self, workspace: Workspace) -> None:
        prepare(workspace.template, self.name)

    def take_survey(
        self, session: pytest.Session, items: Sequence[pytest.Item], known: Survey, path: Path
    ) -> str:
        surveyor = Surveyor(known)
        session.config.pluginmanager.register(surveyor)
        with pytest.MonkeyPatch.context() as patch:
            surveyor.watch(patch)
            for begin in range(0, len(items), 50):
                run_tests(session, items[begin : begin + 50])
                surveyor.survey.write(path)
        return f"{len(surveyor.survey.reached)} tests were surveyed; failed: {surveyor.survey.failed}"

    def end_survey(self, workspace: Workspace) -> None:
        for function in functions_of(self.name):
            workspace.exchange(function.text)

    def reaching(self, mutant: AnyMutant, survey: Survey) -> list[str]:
        """First those of its own file and of arguments; for a lock, those in which two meet."""
        assert isinstance(mutant, Mutant)
        own = (
            f"test_{mutant.function.file.removesuffix('.sql')}.py",
            "test_bad_input",
            "test_isolation_levels",
        )
        tests = survey.tests_of([mutant.function.name])
        tests.sort(key=lambda test: not any(name in test for name in own))
        if ": without the lock: " in mutant.name:
            tests.sort(key=lambda test: not test.startswith(ISOLATION))
        return tests

    def plant(self, workspace: Workspace, mutant: AnyMutant) -> None:
        try:
            workspace.exchange(mutant.text)
        except psycopg.Error as broken:
            raise Stillborn(mutant.name) from broken

    def plant_in_child(self, mutant: AnyMutant) -> None:
        """It stands in the template."""

    def heal(self, workspace: Workspace, mutant: AnyMutant) -> None:
        assert isinstance(mutant, Mutant)
        workspace.exchange(mutant.function.text)


class Modules:
    """The kernel's Python, and the modules that decide without I/O; children exchange a function's code."""

    name = PYTHON
    tests = TESTS[PYTHON]
    not_these = SLOW
    hang_seconds_min = 5.0

    def mutants(self) -> Sequence[PythonMutant]:
        return [one for name, path in lines.modules().items() for one in python_mutants(path, name)]

    def prepare_survey(self, workspace: Workspace) -> None:
        """Nothing is changed for it."""

    def take_survey(
        self, session: pytest.Session, items: Sequence[pytest.Item], known: Survey, path: Path
    ) -> str:
        surveyor = lines.LineSurveyor(known)
        session.config.pluginmanager.register(surveyor)
        surveyor.begin()
        run_tests(session, items)
        surveyor.end()
        surveyor.survey.write(path)
        return f"{len(surveyor.survey.reached)} tests reach something; failed: {surveyor.survey.failed}"

    def end_survey(self, workspace: Workspace) -> None:
        """Nothing was changed."""

    def reaching(self, mutant: AnyMutant, survey: Survey) -> list[str]:
        assert isinstance(mutant, PythonMutant)
        return survey.tests_of(lines.place(mutant.path, line) for line in mutant.lines)

    def plant(self, workspace: Workspace, mutant: AnyMutant) -> None:
        """The child does."""

    def plant_in_child(self, mutant: AnyMutant) -> None:
        assert isinstance(mutant, PythonMutant)
        exchange.plant(mutant)

    def heal(self, workspace: Workspace, mutant: AnyMutant) -> None:
        """The child has ended."""


def subject(name: str) -> Subject:
    return Modules() if name == PYTHON else Functions(name)


def folder(name: str) -> Path:
    return FOLDER / name
