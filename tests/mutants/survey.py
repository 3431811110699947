"""Which test reaches which function of a package, and which of its RAISEs."""

import json
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from fencepost.embedded import Database
from fencepost.kernel.migrate import component_folders
from tests.mutants.grammar import Function, Word, functions, words

COUNTS = (
    "select sequencename, last_value from pg_sequences where schemaname = 'survey' and last_value is not null"
)


@dataclass(frozen=True)
class Site:
    """One place of a function that raises."""

    function: Function
    number: int
    start: int
    statement: str

    @property
    def sequence(self) -> str:
        return f"{self.function.name}_{self.number}"

    @property
    def name(self) -> str:
        return f"{self.function.file}, {self.function.name}: {' '.join(self.statement.split())}"


def files_of(package: str) -> list[Path]:
    return sorted((component_folders()[package] / "functions").glob("*.sql"))


def functions_of(package: str) -> list[Function]:
    return [function for file in files_of(package) for function in functions(file)]


def sites(function: Function) -> list[Site]:
    """Every `raise exception`, and every call of a function that does nothing but refuse."""
    found = words(function)
    places = [index for index in range(len(found)) if _raises(found, index)]
    return [
        Site(function, number, found[index].start, _statement(function, found, index))
        for number, index in enumerate(places, 1)
    ]


def _raises(found: list[Word], index: int) -> bool:
    text = [word.text for word in found[index : index + 4]]
    return text[:2] == ["raise", "exception"] or (
        text[:3] == ["perform", "fencepost", "."] and text[3].endswith("_refuse")
    )


def _statement(function: Function, found: list[Word], index: int) -> str:
    end = next(word.end for word in found[index:] if word.text == ";")
    return function.text[found[index].start : end]


def counted(function: Function) -> str:
    """The function with a counter at its beginning and before each of its RAISEs.

    A sequence survives the rollback; PostgreSQL's own statistics forget a call that has failed.
    """
    places = {site.start: site.sequence for site in sites(function)}
    begin = next((word for word in words(function) if word.text == "begin"), None)
    if begin is not None and "language plpgsql" in function.text:
        places[begin.end] = entry(function.name)
    text = function.text
    for place in sorted(places, reverse=True):
        # Not PERFORM: it would set FOUND, which the statement behind it may ask for.
        text = f"{text[:place]} if {_counting(places[place])} > 0 then null; end if; {text[place:]}"
    if "language sql" in text:
        # What has two statements is not inlined either, so that it is called at all.
        body, _ = function.body
        text = f"{text[:body]} select {_counting(entry(function.name))}; {text[body:]}"
    return text


def _counting(sequence: str) -> str:
    """A read-only transaction counts nothing: it would be refused, and with it the page that asked."""
    return f"(case current_setting('transaction_read_only') when 'off' then nextval('survey.{sequence}') end)"


def entry(name: str) -> str:
    return f"in_{name}"


def prepare(database: Database, package: str) -> None:
    """Count in this database. Every role may, so that nothing else changes."""
    with database.connect_admin() as admin:
        admin.execute("create schema survey")
        for function in functions_of(package):
            for sequence in (entry(function.name), *(site.sequence for site in sites(function))):
                admin.execute(f"create sequence if not exists survey.{sequence}".encode())
            admin.execute(counted(function).encode())
        admin.execute("grant usage on schema survey to public")
        admin.execute("grant usage on all sequences in schema survey to public")


@dataclass
class Survey:
    """What a run of all tests has reached. `seconds` is what each test takes."""

    reached: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    raised: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    seconds: dict[str, float] = field(default_factory=dict[str, float])
    failed: list[str] = field(default_factory=list[str])

    def tests_of(self, names: Iterable[str]) -> list[str]:
        wanted = set(names)
        return sorted(
            (test for test, called in self.reached.items() if called & wanted),
            key=lambda test: self.seconds[test],
        )

    def write(self, path: Path) -> None:
        facts = {
            "reached": {test: sorted(called) for test, called in self.reached.items()},
            "raised": {test: sorted(places) for test, places in self.raised.items()},
            "seconds": self.seconds,
            "failed": self.failed,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(facts, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Self:
        facts = json.loads(path.read_text())
        return cls(
            defaultdict(set, {test: set(called) for test, called in facts["reached"].items()}),
            defaultdict(set, {test: set(places) for test, places in facts["raised"].items()}),
            facts["seconds"],
            facts["failed"],
        )


class Surveyor:
    """Reads the counters of every database of a test, before it is dropped or when the test is over."""

    def __init__(self, survey: Survey) -> None:
        self.survey = survey
        self._standing: dict[str, Database] = {}
        self._of_the_test: list[Database] = []
        self._seen: dict[tuple[str, str], int] = {}
        self._test = ""

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        create, drop = Database.create, Database.drop

        def created(database: Database, **how: Any) -> None:
            create(database, **how)
            self._standing[database.name] = database

        def dropped(database: Database) -> None:
            if self._standing.pop(database.name, None):
                self._look(database)
            drop(database)

        patch.setattr(Database, "create", created)
        patch.setattr(Database, "drop", dropped)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._test = item.nodeid
        begun = time.monotonic()
        answer = yield
        for database in list(self._standing.values()):
            self._look(database)
        self.survey.seconds[item.nodeid] = time.monotonic() - begun
        return answer

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        value = yield
        if fixturedef.scope == "function" and isinstance(value, Database):
            self._of_the_test.append(value)
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Generator[None, Any, Any]:
        for database in self._of_the_test:
            self._look(database)
            # It is put back for the next test, and counts anew.
            self._seen = {place: value for place, value in self._seen.items() if place[0] != database.name}
        self._of_the_test.clear()
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.survey.failed.append(report.nodeid)

    def _look(self, database: Database) -> None:
        """A database may serve several tests: each has what has grown."""
        with database.connect_admin() as admin:
            counts = {str(name): int(value) for name, value in admin.execute(COUNTS)}
        grown = {name for name, value in counts.items() if value > self._seen.get((database.name, name), 0)}
        self._seen.update({(database.name, name): value for name, value in counts.items()})
        entered = {name for name in grown if name.startswith("in_")}
        self.survey.reached[self._test] |= {name.removeprefix("in_") for name in entered}
        self.survey.raised[self._test] |= grown - entered
