"""Which test reaches which function of the kernel, and which of its RAISEs."""

import json
import time
from collections import defaultdict
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pytest

from fencepost.embedded import Database
from tests.mutants.grammar import Function, Word, functions, words

FUNCTIONS = Path(__file__).parents[2] / "src" / "fencepost" / "kernel" / "functions"
CALLED = "select funcname from pg_stat_user_functions where schemaname = 'fencepost' and calls > 0"
RAISED = "select sequencename from pg_sequences where schemaname = 'census' and last_value is not null"
ALONE = """
    select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
    and backend_type = 'client backend'
"""


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


def kernel_functions() -> list[Function]:
    return [function for file in sorted(FUNCTIONS.glob("*.sql")) for function in functions(file)]


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
    """The function with a counter before each of its RAISEs. A sequence survives the rollback."""
    text = function.text
    for site in reversed(sites(function)):
        # Not PERFORM: it would set FOUND, which the statement behind it may ask for.
        count = f"if nextval('census.{site.sequence}') > 0 then null; end if; "
        text = text[: site.start] + count + text[site.start :]
    return text


def prepare(database: Database) -> None:
    """Count in this database. Everybody may, so that nothing else changes."""
    with database.connect_admin() as admin:
        admin.execute("create schema census")
        for function in kernel_functions():
            for site in sites(function):
                admin.execute(f"create sequence census.{site.sequence}".encode())
            admin.execute(counted(function).encode())
        admin.execute("grant usage on schema census to public")
        admin.execute("grant usage on all sequences in schema census to public")


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
            {test: set(called) for test, called in facts["reached"].items()},
            {test: set(places) for test, places in facts["raised"].items()},
            facts["seconds"],
            facts["failed"],
        )


class Surveyor:
    """Reads the counters of every database that a test used: when it is dropped, or when the test is over."""

    def __init__(self) -> None:
        self.survey = Survey()
        self._standing: dict[str, Database] = {}
        self._seen: dict[str, set[str]] = {}
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

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.survey.failed.append(report.nodeid)

    def _look(self, database: Database) -> None:
        """A backend tells its counts when it ends, so those that are open are ended if they do not end."""
        with database.connect_admin() as admin:
            give_up = time.monotonic() + 1
            while (row := admin.execute(ALONE).fetchone()) and row[0]:
                if time.monotonic() > give_up:
                    admin.execute(
                        "select pg_terminate_backend(pid) from pg_stat_activity"
                        " where datname = current_database() and pid <> pg_backend_pid()"
                    )
                time.sleep(0.005)
            called = {str(name) for (name,) in admin.execute(CALLED)}
            raised = {str(name) for (name,) in admin.execute(RAISED)}
            # For a database that serves several tests, each has what is new.
            admin.execute("select pg_stat_reset()")
        self.survey.reached[self._test] |= called
        self.survey.raised[self._test] |= raised
