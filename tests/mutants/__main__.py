"""python -m tests.mutants [--of kernel] [--survey] [--part 1/2] [--only TEXT] [--sample N]"""

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import psycopg
import pytest

from fencepost.torture.machine_time import slowness
from tests.mutants.excused import EXCUSED, REACHED_ELSEWHERE
from tests.mutants.grammar import Function
from tests.mutants.operators import Mutant, mutants
from tests.mutants.survey import Survey, Surveyor, functions_of, prepare, sites
from tests.mutants.workshop import (
    HUNG,
    PASSED,
    FirstFailure,
    Standing,
    Workshop,
    in_a_child,
    open_workshop,
    run_tests,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".fencepost" / "mutants"
KERNEL = "kernel"
TESTS = (
    "tests/integration/kernel",
    "tests/integration/job_features",
    "tests/isolation/test_interleavings.py",
    "tests/acceptance/test_eviction.py",
    "tests/acceptance/test_heartbeat.py",
    "tests/acceptance/test_paused_holder.py",
)
# A package with functions has a folder of tests that reach them; one for services is reached through theirs.
REACHED_THROUGH = {"mutations": "players"}
# They start processes of their own, and see what the quick ones see.
SLOW = ("test_worker_command", "test_jobs_command")
# They look at the functions as text, or at the machine: any change at all would be seen.
NOT_THESE = ("test_migrate", "test_reference", "test_processes", "test_documented", *SLOW)
TEST_SECONDS_MAX = 120.0
SURVEY_SECONDS = 3600.0
# A mutant that waits for ever is ended when its tests have had so many times what they take.
HANG_TIMES = 3
HANG_SECONDS_MIN = 60.0
TRIES_MAX = 2


class Run:
    """The whole of it, inside one pytest session that runs no test itself."""

    def __init__(self, options: argparse.Namespace, workshop: Workshop) -> None:
        self._options = options
        self._workshop = workshop
        self._sharp: dict[str, Counter[str]] = defaultdict(Counter)
        """Who has seen mutants of a function: they are asked first about the next one."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(name in item.nodeid for name in NOT_THESE)]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        survey = self._survey(session)
        if not self._options.survey:
            self._try_all(session, survey)
        return True

    def _survey(self, session: pytest.Session) -> Survey:
        path = folder(self._options) / "survey.json"
        if self._options.survey or not path.exists():
            prepare(self._workshop.template, self._options.of)
            say(in_a_child(lambda: _take_survey(session, path), within=SURVEY_SECONDS))
            self._workshop.sweep()
            for function in functions_of(self._options.of):
                self._workshop.exchange(function.text)
        return Survey.read(path)

    def _try_all(self, session: pytest.Session, survey: Survey) -> None:
        results = folder(self._options) / f"results-{self._options.part.replace('/', '-of-')}.jsonl"
        known = {line["name"]: line for line in read_results(self._options)}
        for line in known.values():
            self._sharp[line["name"].partition(":")[0]][line["fate"]] += 1
        # As it is, a function that some test reaches: all of them must pass.
        control = next(one for one in functions_of(self._options.of) if survey.tests_of([one.name]))
        fate = self._run(session, control, survey)
        if fate != PASSED:
            raise AssertionError(f"Without any bug {fate} does not pass: nothing that it sees counts.")
        with results.open("a") as file:
            for mutant in chosen(self._options):
                if known.get(mutant.name, {}).get("text") == mutant.text:
                    continue
                begun = time.monotonic()
                fate = self._try(session, survey, mutant)
                self._sharp[mutant.function.name][fate] += 1
                seconds = round(time.monotonic() - begun, 1)
                line = {"name": mutant.name, "fate": fate, "seconds": seconds, "text": mutant.text}
                file.write(json.dumps(line) + "\n")
                file.flush()
                say(f"{seconds:6.1f} s  {fate[:60]:60}  {mutant.name}")

    def _try(self, session: pytest.Session, survey: Survey, mutant: Mutant) -> str:
        """`stillborn`, `passed` for one that nobody saw, or the test that saw it."""
        try:
            self._workshop.exchange(mutant.text)
        except psycopg.Error:
            return "stillborn"
        try:
            return self._run(session, mutant.function, survey)
        finally:
            self._workshop.exchange(mutant.function.text)

    def _run(self, session: pytest.Session, function: Function, survey: Survey) -> str:
        """The tests that reach the function, until one fails."""
        items = {item.nodeid: item for item in session.items}
        tests = likely(survey, function, self._sharp[function.name], self._options)
        wanted = [items[test] for test in tests if test in items]
        within = HANG_SECONDS_MIN + HANG_TIMES * sum(survey.seconds[item.nodeid] for item in wanted)
        # Late because of others is not hung, and it would count as seen; and who is late may be so once.
        for _ in range(TRIES_MAX):
            fate = in_a_child(lambda: _run_until_one_fails(session, wanted), within=within * slowness())
            self._workshop.sweep()
            if fate != HUNG:
                return fate
        return HUNG


def _take_survey(session: pytest.Session, path: Path) -> str:
    surveyor = Surveyor()
    session.config.pluginmanager.register(surveyor)
    with pytest.MonkeyPatch.context() as patch:
        surveyor.watch(patch)
        for begin in range(0, len(session.items), 50):
            run_tests(session, session.items[begin : begin + 50])
            surveyor.survey.write(path)
    return f"{len(surveyor.survey.reached)} tests were surveyed; failed: {surveyor.survey.failed}"


def _run_until_one_fails(session: pytest.Session, items: Sequence[pytest.Item]) -> str:
    failure = FirstFailure()
    session.config.pluginmanager.register(failure)
    run_tests(session, items, failure)
    return failure.test or PASSED


def likely(survey: Survey, function: Function, sharp: Counter[str], options: argparse.Namespace) -> list[str]:
    """The tests that reach the function: first those that saw others of its mutants, then those of its own
    file and of arguments, then the quick ones."""
    own = (f"test_{function.file.removesuffix('.sql')}.py", "test_bad_input", "test_isolation_levels")
    tests = [test for test in survey.tests_of(callers(function, options.of)) if test not in survey.failed]
    tests.sort(key=lambda test: (-sharp[test], not any(name in test for name in own)))
    seconds = accumulate(survey.seconds[test] for test in tests)
    return [test for test, upto in zip(tests, seconds, strict=True) if upto < options.seconds]


def callers(function: Function, package: str) -> set[str]:
    """The function, and all that call it: PostgreSQL does not count what it has inlined."""
    every = functions_of(package)
    found = {function.name}
    while True:
        more = {other.name for other in every if any(f"fencepost.{name}(" in other.text for name in found)}
        if more <= found or "language sql" not in function.text:
            return found
        found |= more


def chosen(options: argparse.Namespace) -> list[Mutant]:
    part, parts = map(int, options.part.split("/"))
    every = [mutant for function in functions_of(options.of) for mutant in mutants(function)]
    every = [mutant for mutant in every if options.only in mutant.name]
    if options.sample:
        # The first of a shuffled list, so that a larger sample has the smaller one in it.
        random.Random(options.seed).shuffle(every)  # noqa: S311 - A choice of tests.
        every = every[: options.sample]
    return every[part - 1 :: parts]


def tests_of(package: str) -> Sequence[str]:
    names = [package, *([REACHED_THROUGH[package]] if package in REACHED_THROUGH else [])]
    return TESTS if package == KERNEL else [f"tests/integration/{name}" for name in names]


def folder(options: argparse.Namespace) -> Path:
    return FOLDER if options.of == KERNEL else FOLDER / options.of


def read_results(options: argparse.Namespace) -> list[dict[str, Any]]:
    """The newest fate of each mutant that still has that text."""
    texts = [file.read_text() for file in sorted(folder(options).glob("results-*.jsonl"))]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    return list({line["name"]: line for line in lines}.values())


def score(results: Sequence[dict[str, Any]], package: str) -> dict[str, Any]:
    """Of all mutants that can be planted and change something, how many are seen."""
    texts = {mutant.name: mutant.text for function in functions_of(package) for mutant in mutants(function)}
    current = [line for line in results if texts.get(line["name"]) == line["text"]]
    fates = Counter(
        line["fate"] if line["fate"] in {PASSED, "stillborn", HUNG} else "seen" for line in current
    )
    alive = [line["name"] for line in current if line["fate"] == PASSED]
    survivors = sorted(name for name in alive if name not in EXCUSED)
    seen = fates["seen"] + fates[HUNG]
    return {
        "mutants": len(texts),
        "tried": len(current),
        "stillborn": fates["stillborn"],
        "seen": seen,
        "equivalent": len(alive) - len(survivors),
        "survived": len(survivors),
        "score": round(100 * seen / max(1, seen + len(survivors)), 1),
        "survivors": survivors,
    }


def unreached(survey: Survey, package: str) -> list[str]:
    found = {place for places in survey.raised.values() for place in places}
    return [
        site.name
        for function in functions_of(package)
        for site in sites(function)
        if site.sequence not in found and not site.statement.startswith(tuple(REACHED_ELSEWHERE))
    ]


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--of", default=KERNEL, help="the package whose functions are changed")
    parser.add_argument(
        "--survey", action="store_true", help="only see what the tests reach, and every RAISE"
    )
    parser.add_argument("--part", default="1/1", help="one part of the mutants: several may run at once")
    parser.add_argument("--only", default="", help="only the mutants whose name has this text in it")
    parser.add_argument("--sample", type=int, default=0, help="so many of them, by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=TEST_SECONDS_MAX, help="so long are the tests of one mutant at most"
    )
    parser.add_argument("--score", action="store_true", help="only tell the score of what was tried")
    options = parser.parse_args()
    if not options.score:
        with open_workshop() as workshop:
            arguments = [
                *tests_of(options.of),
                "-q",
                "-n0",
                "-s",
                "-p",
                "no:randomly",
                "-p",
                "no:cacheprovider",
                "-o",
                "timeout=240",
                # What the tests share is loaded already: the servers stand before pytest begins.
                "-W",
                "ignore::pytest.PytestAssertRewriteWarning",
            ]
            pytest.main(arguments, plugins=[Standing(workshop), Run(options, workshop)])
    if options.survey:
        missing = unreached(Survey.read(folder(options) / "survey.json"), options.of)
        say("\n".join([f"{len(missing)} RAISEs are reached by no test", *missing]))
        return int(bool(missing))
    found = score(read_results(options), options.of)
    (folder(options) / "score.json").write_text(json.dumps(found, indent=2) + "\n")
    say(json.dumps(found, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
