"""Which test reaches which line of the Python modules whose mutants are tried."""

import time
import tomllib
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.survey import Survey

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "packages"


@cache
def modules() -> dict[str, Path]:
    """By its name within the package: what `make coverage` wants to be reached whole."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns: list[str] = settings["tool"]["coverage"]["run"]["include"]
    found = {file for pattern in patterns for file in ROOT.glob(pattern)}
    files = sorted(file for place in found for file in (place.rglob("*.py") if place.is_dir() else [place]))
    return {
        ".".join(within_source(file).with_suffix("").parts).removeprefix("fencepost."): file
        for file in files
        if file.suffix == ".py"
    }


def within_source(file: Path) -> Path:
    """Its path below the `src` of its distribution."""
    return Path(*file.relative_to(SOURCES).parts[2:])


def place(path: Path, line: int) -> str:
    return f"{within_source(path)}:{line}"


class LineSurveyor:
    """Watches every line, with the name of the test that is under way."""

    def __init__(self, survey: Survey) -> None:
        import coverage  # A survey needs it, and not who collects the tests of this.

        self.survey = survey
        self._coverage = coverage.Coverage(
            data_file=None,
            config_file=False,
            include=[str(file) for file in modules().values()],
            concurrency=["thread", "greenlet"],
        )

    def begin(self) -> None:
        self._coverage.start()

    def end(self) -> None:
        """Read what was seen. A test that reached nothing is known too, by its time."""
        self._coverage.stop()
        seen = self._coverage.get_data()
        for file in modules().values():
            for line, tests in seen.contexts_by_lineno(str(file)).items():
                for test in tests:
                    self.survey.reached[test].add(place(file, line))
        self.survey.reached.pop("", None)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid)
        begun = time.monotonic()
        answer = yield
        self.survey.seconds[item.nodeid] = time.monotonic() - begun
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.survey.failed.append(report.nodeid)
