"""python -m tests.mutants [--of kernel] [--survey] [--part 1/2] [--only TEXT] [--sample N]"""

import argparse
import json
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate

import pytest

from fencepost_torture._cpu_time import slowness
from tests.mutants.exchange import Stillborn
from tests.mutants.excused import REACHED_ELSEWHERE
from tests.mutants.score import STILLBORN, keep, read_results, results_file, score, table
from tests.mutants.subject import KERNEL, PYTHON, AnyMutant, Subject, folder, subject
from tests.mutants.survey import Survey, functions_of, sites
from tests.mutants.workspace import (
    HANG_TIMES,
    HUNG,
    PASSED,
    FirstFailure,
    Hourglass,
    Standing,
    Workspace,
    in_a_child,
    open_workspace,
    run_tests,
)

TEST_SECONDS_MAX = 120.0
SURVEY_SECONDS = 3600.0
TRIES_MAX = 2
PYTEST = (
    *("-q", "-n0", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "-o", "timeout=240"),
    # What the tests share is loaded already: the servers stand before pytest begins.
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


class Run:
    """The whole of it, inside one pytest session that runs no test itself."""

    def __init__(self, options: argparse.Namespace, of: Subject, workspace: Workspace) -> None:
        self._options = options
        self._of = of
        self._workspace = workspace
        self._sharp: dict[str, Counter[str]] = defaultdict(Counter)
        """The tests that have seen mutants of a function: they run first for the next one."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if not any(name in item.nodeid for name in self._of.not_these)]

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        survey = self._survey(session)
        if not self._options.survey:
            self._try_all(session, survey)
        return True

    def _survey(self, session: pytest.Session) -> Survey:
        """What is known of the tests; those that no survey has seen yet are surveyed now."""
        path = folder(self._of.name) / "survey.json"
        known = Survey.read(path) if path.exists() and not self._options.survey else Survey()
        fresh = [item for item in session.items if item.nodeid not in known.seconds]
        if fresh:
            known.write(path)
            self._of.prepare_survey(self._workspace)
            say(in_a_child(lambda: self._of.take_survey(session, fresh, known, path), within=SURVEY_SECONDS))
            self._workspace.sweep()
            self._of.end_survey(self._workspace)
        return Survey.read(path)

    def _try_all(self, session: pytest.Session, survey: Survey) -> None:
        for line in read_results(self._of.name).values():
            self._sharp[line["unit"]][line["fate"]] += 1
        known = read_results(self._of.name, sample_of(self._options))
        mutants = chosen(self._options, self._of)
        # As it is, everything that reaches the first one: all of it must pass.
        fate = self._run(
            session, survey, next(one for one in mutants if self._of.reaching(one, survey)), None
        )
        if fate != PASSED:
            raise AssertionError(f"Without any bug {fate} does not pass: nothing that it sees counts.")
        part, parts = map(int, self._options.part.split("/"))
        file = results_file(self._of.name, sample_of(self._options), self._options.part)
        with file.open("a") as results:
            for mutant in mutants[part - 1 :: parts]:
                if known.get(mutant.name, {}).get("text") == mutant.text:
                    continue
                begun = time.monotonic()
                fate = self._try(session, survey, mutant)
                self._sharp[mutant.unit][fate] += 1
                seconds = round(time.monotonic() - begun, 1)
                line = {"name": mutant.name, "fate": fate, "seconds": seconds, "unit": mutant.unit}
                results.write(json.dumps({**line, "text": mutant.text}) + "\n")
                results.flush()
                say(f"{seconds:6.1f} s  {fate[:60]:60}  {mutant.name}")

    def _try(self, session: pytest.Session, survey: Survey, mutant: AnyMutant) -> str:
        """`stillborn`, `passed` for one that no test saw, or the test that saw it."""
        try:
            self._of.plant(self._workspace, mutant)
        except Stillborn:
            return STILLBORN
        try:
            return self._run(session, survey, mutant, mutant)
        finally:
            self._of.heal(self._workspace, mutant)

    def _run(
        self, session: pytest.Session, survey: Survey, reached: AnyMutant, planted: AnyMutant | None
    ) -> str:
        """The tests that reach it, until one fails: first those that saw others of its function."""
        sharp = self._sharp[reached.unit]
        items = {item.nodeid: item for item in session.items}
        tests = [test for test in self._of.reaching(reached, survey) if test not in survey.failed]
        tests.sort(key=lambda test: -sharp[test])
        seconds = accumulate(survey.seconds[test] for test in tests)
        within_time = [
            test for test, upto in zip(tests, seconds, strict=True) if upto < self._options.seconds
        ]
        wanted = [items[test] for test in within_time if test in items]
        if not wanted:
            return PASSED
        within = self._of.hang_seconds_min + HANG_TIMES * sum(survey.seconds[item.nodeid] for item in wanted)
        # Late because of others is not hung, and it would count as seen; and who is late may be so once.
        for _ in range(TRIES_MAX):
            fate = in_a_child(
                lambda: self._until_one_fails(session, wanted, planted, survey), within=within * slowness()
            )
            self._workspace.sweep()
            if fate != HUNG:
                return fate
        return HUNG

    def _until_one_fails(
        self,
        session: pytest.Session,
        items: Sequence[pytest.Item],
        planted: AnyMutant | None,
        survey: Survey,
    ) -> str:
        try:
            if planted is not None:
                self._of.plant_in_child(planted)
        except Stillborn:
            return STILLBORN
        failure = FirstFailure()
        session.config.pluginmanager.register(failure)
        session.config.pluginmanager.register(Hourglass(survey.seconds, self._of.hang_seconds_min))
        run_tests(session, items, failure)
        return failure.test or PASSED


def sample_of(options: argparse.Namespace) -> str:
    """The name of a sample: a larger one of the same seed goes on with the smaller one."""
    return f"seed{options.seed}" if options.sample else "all"


def chosen(options: argparse.Namespace, of: Subject) -> list[AnyMutant]:
    every: list[AnyMutant] = [mutant for mutant in of.mutants() if options.only in mutant.name]
    if not options.sample:
        return every
    if options.untried:
        mine = read_results(of.name, sample_of(options))
        tried = read_results(of.name).keys() - mine.keys()
        every = [mutant for mutant in every if mutant.name not in tried]
    # The first of a shuffled list, so that a larger sample has the smaller one in it.
    random.Random(options.seed).shuffle(every)  # noqa: S311 - A choice of tests.
    return every[: options.sample]


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


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument(
        "--of", default=KERNEL, help=f"the package whose SQL functions are changed, or {PYTHON}"
    )
    parser.add_argument(
        "--survey", action="store_true", help="only see what the tests reach, and every RAISE"
    )
    parser.add_argument("--part", default="1/1", help="one part of the mutants: several may run at once")
    parser.add_argument("--only", default="", help="only the mutants whose name has this text in it")
    parser.add_argument("--sample", type=int, default=0, help="so many of them, by the seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--untried", action="store_true", help="none that another sample has tried already")
    parser.add_argument(
        "--seconds", type=float, default=TEST_SECONDS_MAX, help="so long are the tests of one mutant at most"
    )
    parser.add_argument("--score", action="store_true", help="only tell the score of what was tried")
    return parser.parse_args()


def main() -> int:
    options = parsed()
    of = subject(options.of)
    if not options.score:
        with open_workspace() as workspace:
            pytest.main([*of.tests, *PYTEST], plugins=[Standing(workspace), Run(options, of, workspace)])
    if options.survey:
        missing = (
            [] if of.name == PYTHON else unreached(Survey.read(folder(of.name) / "survey.json"), of.name)
        )
        say("\n".join([f"{len(missing)} RAISEs are reached by no test", *missing]))
        return int(bool(missing))
    found = score(read_results(of.name, sample_of(options)), chosen(options, of), len(of.mutants()))
    say("\n".join(["survived:", *found["survivors"], "", table(keep(of.name, found))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
