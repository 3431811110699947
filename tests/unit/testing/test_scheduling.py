"""Tests are dealt out to workers in equal parts, each from long to short."""

from dataclasses import dataclass

import pytest

from tests.scheduling import dealt


@dataclass(frozen=True)
class Test:
    __test__ = False

    nodeid: str


def of(file: str, count: int) -> list[Test]:
    return [Test(f"{file}::test_{number}") for number in range(count)]


TESTS = [
    *of("tests/unit/test_settings.py", 9),
    *of("tests/isolation/test_inside.py", 7),
    *of("tests/browser/test_console.py", 2),
    *of("tests/unit/test_errors.py", 12),
    *of("tests/specs/test_traces.py", 1),
    *of("tests/integration/cli/test_up.py", 3),
]


def parts(tests: list[Test], workers: int) -> list[list[Test]]:
    """As work stealing makes them: an equal part of what is left to each of those that are left."""
    left, made = list(tests), list[list[Test]]()
    for others in range(workers, 0, -1):
        size = len(left) // others
        made.append(left[:size])
        left = left[size:]
    return made


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 5])
def test_every_test_is_dealt_once(workers: int) -> None:
    assert sorted(test.nodeid for test in dealt(TESTS, workers)) == sorted(test.nodeid for test in TESTS)


@pytest.mark.parametrize("workers", [2, 3])
def test_every_part_begins_with_long_tests_and_ends_with_short_ones(workers: int) -> None:
    for part in parts(dealt(TESTS, workers), workers):
        assert not part[0].nodeid.startswith(("tests/unit", "tests/isolation"))
        assert part[-1].nodeid.startswith("tests/unit")


def test_tests_of_a_long_module_stay_together() -> None:
    for part in parts(dealt(TESTS, 3), 3):
        files = [test.nodeid.partition("::")[0] for test in part]
        for file in ("tests/browser/test_console.py", "tests/integration/cli/test_up.py"):
            assert files.count(file) in (0, sum(test.nodeid.startswith(file) for test in TESTS))


def test_a_run_of_a_few_tests_is_dealt_too() -> None:
    few = of("tests/browser/test_console.py", 2)
    assert sorted(test.nodeid for test in dealt(few, 4)) == sorted(test.nodeid for test in few)
    assert dealt(list[Test](), 4) == []
