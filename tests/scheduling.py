"""Which worker runs what, and when: long tests first, short ones for the end.

xdist's work stealing gives every worker an equal part of the tests; one that is done takes from the ends of
the others' parts. So each part begins with tests that take long and ends with tests that take nothing: none
comes upon a long one when all others are done. Tests of one module stay together, because they share what it
has set up.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import PurePath
from typing import Protocol, TypeVar

# Folders and modules with tests that take seconds: processes, browsers, model checkers, whole houses.
LONG = (
    "tests/acceptance/torture",
    "tests/browser",
    "tests/integration/cli/test_up.py",
    "tests/integration/plans",
    "tests/integration/web/test_whole_api.py",
    "tests/security/test_canary.py",
    "tests/specs",
    "tests/typing",
    "tests/acceptance",
    "tests/gallery",
    "tests/integration/cli",
    "tests/integration/client/test_documented_code.py",
    "tests/integration/client/test_examples.py",
    "tests/integration/console",
    "tests/integration/embedded",
    "tests/integration/job_features",
    "tests/integration/jobs",
    "tests/integration/judge",
)
SHORT = "tests/unit"


class Named(Protocol):
    """What a test has: its name, which begins with its file."""

    @property
    def nodeid(self) -> str: ...


Test = TypeVar("Test", bound=Named)


def dealt(tests: Sequence[Test], workers: int) -> list[Test]:
    """The tests in an order whose equal parts, one a worker, go from long to short."""
    modules = [list(module) for _, module in groupby(tests, key=_file)]
    hands: list[list[Test]] = [[] for _ in range(workers)]
    for module in sorted(modules, key=lambda module: _rank(module[0])):
        min(hands, key=len).extend(module)
    _level(hands)
    return [test for hand in hands for test in hand]


def _level(hands: list[list[Test]]) -> None:
    """Equal parts, by tests from the ends, which are short."""
    least, over = divmod(sum(map(len, hands)), len(hands))
    # Work stealing rounds down, so the greater parts come last.
    sizes = [least + (place >= len(hands) - over) for place in range(len(hands))]
    spare: list[Test] = []
    for hand, size in zip(hands, sizes, strict=True):
        spare += hand[size:]
        del hand[size:]
    for hand, size in zip(hands, sizes, strict=True):
        hand += [spare.pop() for _ in range(size - len(hand))]


def _rank(test: Named) -> int:
    file = PurePath(_file(test))
    places = (place for place, beginning in enumerate(LONG) if file.is_relative_to(beginning))
    return next(places, len(LONG) + file.is_relative_to(SHORT))


def _file(test: Named) -> str:
    return test.nodeid.partition("::")[0]
