"""Reads packages of Polygon: `problem.xml`, with testlib's checkers, interactors, validators and generators.

A test whose files are not in the package (a standard package has only the manual ones) is made: its input by
the generator that its command names, its answer by the main solution.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

from fencepost.errors import InvalidInput
from fencepost_judge._problem import (
    Aggregation,
    Bounds,
    Group,
    Problem,
    ProgramSpec,
    Protocol,
    TestCase,
    ValidatorSpec,
)
from fencepost_judge._store import Store
from fencepost_judge.packages._icpc import slug_of
from fencepost_judge.packages._making import Making, Recipe, absent
from fencepost_judge.packages._source_files import language_of
from fencepost_judge.packages._statements import Statements, read_statements
from fencepost_judge.packages._unsupported import out_of_range, unsupported
from fencepost_judge.packages._validation_data import InputCheck, OutputCheck, ValidationData

NAME = "problem.xml"
XML_BYTES_MAX = 8 << 20
TESTS_MAX = 2000
OUTPUT_KB = 65_536
PYPY = ("python.pypy", "pypy")
EXPECTED: Mapping[str, frozenset[str]] = {
    "main": frozenset({"AC"}),
    "accepted": frozenset({"AC"}),
    "rejected": frozenset({"WA", "PE", "TLE", "RE", "MLE", "OLE", "CE"}),
    "wrong-answer": frozenset({"WA", "PE"}),
    "presentation-error": frozenset({"PE", "WA"}),
    "time-limit-exceeded": frozenset({"TLE"}),
    "time-limit-exceeded-or-accepted": frozenset({"TLE", "AC"}),
    "time-limit-exceeded-or-memory-limit-exceeded": frozenset({"TLE", "MLE"}),
    "memory-limit-exceeded": frozenset({"MLE"}),
    "failed": frozenset({"RE"}),
}
"""The expected verdicts of a solution, by its tag."""
NOT_RUN = "do-not-run"


@dataclass(frozen=True, slots=True)
class PolygonSolution:
    """A solution of the package, with its tag."""

    path: Path
    tag: str
    language: str | None
    """Where the extension does not say it."""

    @property
    def expected(self) -> frozenset[str] | None:
        """None: it is not to be run."""
        if self.tag == NOT_RUN:
            return None
        known = EXPECTED.get(self.tag)
        if known is None:
            raise InvalidInput(f"{NAME}: the tag {self.tag[:60]!r} of a solution is not known.", field="tag")
        return known


@dataclass(frozen=True, slots=True)
class PolygonPackage:
    problem: Problem
    solutions: Sequence[PolygonSolution]
    validation: ValidationData
    making: Making | None


def is_polygon(folder: Path) -> bool:
    return (folder / NAME).is_file()


def read_polygon(folder: Path, store: Store, *, slug: str | None = None) -> PolygonPackage:
    """Read a package and put its data into the store. Raises InvalidInput naming what is wrong."""
    reader = _Reader(folder, store, _parsed(folder / NAME))
    return reader.package(slug)


def _parsed(path: Path) -> ElementTree.Element:
    text = path.read_bytes()
    if len(text) > XML_BYTES_MAX:
        raise InvalidInput(f"{NAME} is too large: at most {XML_BYTES_MAX} bytes are read.", field=NAME)
    # Entities are what makes XML dangerous, and there are none without a document type.
    if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
        raise InvalidInput(f"{NAME} has a document type, which is refused.", field=NAME)
    try:
        return ElementTree.fromstring(text)  # noqa: S314 - Without a document type there are no entities.
    except ElementTree.ParseError as error:
        raise InvalidInput(f"{NAME} cannot be read: {error}.", field=NAME) from None


@dataclass(frozen=True)
class _Test:
    """One line of the test set."""

    number: int
    method: str
    command: str
    from_file: str
    sample: bool
    group: str
    points: float


@dataclass(frozen=True)
class _Reader:
    root: Path
    store: Store
    xml: ElementTree.Element

    def package(self, slug: str | None) -> PolygonPackage:
        judging = self.xml.find("judging")
        testsets = [] if judging is None else judging.findall("testset")
        if judging is None or not testsets:
            raise InvalidInput(f"{NAME} has no test set.", field="judging")
        testset = next((one for one in testsets if one.get("name") == "tests"), testsets[0])
        others = [
            one.get("name", "")
            for one in testsets
            if one is not testset and one.find("tests/test") is not None
        ]
        if others:
            raise unsupported(NAME, f"a second test set ({others[0][:40]})")
        if int(judging.get("run-count") or 1) != 1:
            raise unsupported(NAME, "a problem whose programs run several times")
        tests = list(self._tests(testset))
        if not tests:
            raise InvalidInput(f"{NAME} has no test.", field="tests")
        data, recipes, named = self._data(testset, tests)
        checker, interactor = self._checker(), self._interactor()
        statements = self._statements()
        problem = Problem(
            slug=slug or slug_of(self.xml.get("short-name") or self.root.name),
            title=self._title(),
            bounds=self._bounds(testset),
            scoring=any(test.points for test in tests) or self._group_points(testset),
            interactive=interactor is not None,
            flags=[] if checker else ["case_sensitive", "by_lines"],
            validator=interactor or checker,
            more_validators=[checker] if interactor and checker else [],
            validator_scores=False,
            include=self._include(),
            input_file=self._file(judging.get("input-file")),
            output_file=self._file(judging.get("output-file")),
            data=data,
            statement=statements.markdown,
            statements=statements.files,
        )
        if interactor and (problem.input_file or problem.output_file):
            raise unsupported(NAME, "a conversation through files")
        making = self._making(recipes, problem) if recipes else None
        return PolygonPackage(problem, self.solutions, self._validation(problem, named), making)

    # ---- tests

    def _tests(self, testset: ElementTree.Element) -> Iterator[_Test]:
        found = testset.findall("tests/test")
        if len(found) > TESTS_MAX:
            raise InvalidInput(f"{NAME} has {len(found)} tests; at most {TESTS_MAX}.", field="tests")
        for number, one in enumerate(found, 1):
            yield _Test(
                number,
                one.get("method", "manual"),
                one.get("cmd", ""),
                one.get("from-file", ""),
                one.get("sample") == "true",
                one.get("group", ""),
                float(one.get("points") or 0),
            )

    def _data(
        self, testset: ElementTree.Element, tests: Sequence[_Test]
    ) -> tuple[Group, list[Recipe], dict[str, _Test]]:
        """The groups; what must be made; and the tests by the names of their cases."""
        described = {one.get("name", ""): one for one in testset.findall("groups/group")}
        unknown = next((test.group for test in tests if test.group and test.group not in described), None)
        if unknown is not None and described:
            raise InvalidInput(f"{NAME}: the group {unknown[:60]!r} is not described.", field="group")
        scoring = any(test.points for test in tests) or self._group_points(testset)
        recipes: list[Recipe] = []
        named: dict[str, _Test] = {}
        members: dict[str, list[TestCase]] = {}
        samples: list[TestCase] = []
        width = max(2, len(str(len(tests))))
        for test in tests:
            given, answer = self._content(testset, test, recipes)
            place = f"{test.group}/" if test.group else ""
            name = f"{place}{test.number:0{width}}"
            counts = scoring and self._counts(test, described.get(test.group))
            if test.sample:
                samples.append(
                    TestCase(name=f"sample/{test.number:0{width}}", input=given, answer=answer, sample=True)
                )
                named[samples[-1].name] = test
            if not test.sample or counts:
                case = TestCase(name=f"secret/{name}", input=given, answer=answer)
                members.setdefault(test.group if described else "", []).append(case)
                named[case.name] = test
        of_samples = {test.group for test in tests if test.sample}
        groups = [Group(name="sample", cases=samples, score=0)] if samples else []
        order = [*described, *(name for name in members if name not in described)]
        for name in order:
            cases = members.get(name, [])
            of_group = [test for test in tests if not described or test.group == name]
            by_number = {named[case.name].number: case for case in cases}
            groups += self._groups(name, cases, of_group, described, by_number, of_samples, scoring=scoring)
        return Group(name="data", groups=groups), recipes, named

    def _counts(self, test: _Test, group: ElementTree.Element | None) -> bool:
        """Whether a sample is worth something, or its group is."""
        if test.points or group is None:
            return bool(test.points)
        return group.get("points-policy") == "complete-group" and float(group.get("points") or 0) > 0

    def _groups(
        self,
        name: str,
        cases: Sequence[TestCase],
        tests: Sequence[_Test],
        described: Mapping[str, ElementTree.Element],
        by_number: Mapping[int, TestCase],
        samples: Container[str],
        *,
        scoring: bool,
    ) -> list[Group]:
        """One group; where each test has points of its own, it holds a group for each."""
        shown = _shown(name)
        group = described.get(name)
        required = (
            []
            if group is None
            else [one.get("group", "") for one in group.findall("dependencies/dependency")]
        )
        missing = next((one for one in required if one not in described), None)
        if missing is not None:
            raise InvalidInput(
                f"{NAME}: the group {name} depends on {missing[:60]!r}, which does not exist.", field="group"
            )
        require = [word for one in required for word in self._names(one, samples)]
        if not scoring:
            return [Group(name=shown, cases=cases, require=require)] if cases else []
        policy = "each-test" if group is None else group.get("points-policy", "each-test")
        if policy == "complete-group":
            own = sum(test.points for test in tests)
            points = float((group.get("points") if group is not None else None) or own)
            return [
                Group(name=shown, cases=cases, aggregation=Aggregation.ALL, score=points, require=require)
            ]
        if policy != "each-test":
            raise unsupported(NAME, f"the points-policy {policy[:40]!r}")
        singles = [
            Group(name=f"{shown}/{test.number}", cases=[by_number[test.number]], score=test.points)
            for test in tests
            if test.number in by_number
        ]
        return [Group(name=shown, groups=singles, require=require)]

    def _names(self, name: str, samples: Container[str]) -> list[str]:
        """What a group is called among ours. Its samples are judged in the group of samples."""
        return [_shown(name), *(["sample"] if name in samples else [])]

    def _group_points(self, testset: ElementTree.Element) -> bool:
        return any(float(one.get("points") or 0) for one in testset.findall("groups/group"))

    def _content(self, testset: ElementTree.Element, test: _Test, recipes: list[Recipe]) -> tuple[str, str]:
        """The digests of input and answer: stored, or in their place until they are made."""
        given = self._path(testset, "input-path-pattern", test.number)
        answer = self._path(testset, "answer-path-pattern", test.number)
        if given is not None and answer is not None:
            return self._stored(given), self._stored(answer)
        name = str(test.number)
        made_answer = absent(f"answer {name}") if answer is None else None
        stored_answer = made_answer or self._stored(answer or Path())
        if given is not None:
            digest = self._stored(given)
            recipes.append(Recipe(digest, made_answer))
            return digest, stored_answer
        words = shlex.split(test.command)
        if test.method != "generated" or not words:
            raise InvalidInput(
                f"{NAME}: the package has no file of test {name}, and no command that makes it.",
                field="tests",
            )
        made = absent(f"input {name}")
        recipes.append(Recipe(made, made_answer, words[0], words[1:], file=test.from_file))
        return made, stored_answer

    def _path(self, testset: ElementTree.Element, pattern: str, number: int) -> Path | None:
        said = testset.findtext(pattern) or ("tests/%02d" if pattern.startswith("input") else "tests/%02d.a")
        return self._existing(_numbered(said, number))

    def _existing(self, name: str) -> Path | None:
        path = self.root / name
        inside = path.resolve().is_relative_to(self.root.resolve())
        return path if inside and path.is_file() else None

    def _stored(self, path: Path) -> str:
        return self.store.put(unix_lines(path.read_bytes()))

    # ---- programs

    @cached_property
    def _headers(self) -> dict[str, str]:
        """What the package offers to all of its own programs, testlib.h above all."""
        files = [self._existing(one.get("path", "")) for one in self.xml.findall("files/resources/file")]
        found = [path for path in files if path is not None]
        testlib = self._existing("files/testlib.h")
        found += [testlib] if testlib and testlib not in found else []
        headers = [path for path in found if path.suffix in (".h", ".hpp")]
        return {path.name: self.store.put(path.read_bytes()) for path in headers}

    def _program(self, source: ElementTree.Element | None, what: str) -> ValidatorSpec:
        name = "" if source is None else source.get("path", "")
        path = self._existing(name)
        if source is None or path is None:
            raise InvalidInput(f"{NAME}: the package has no source of the {what} ({name[:100]}).", field=what)
        content = path.read_bytes()
        beside = self._headers
        if b"testlib.h" in content and "testlib.h" not in beside:
            raise InvalidInput(
                f"{name} includes testlib.h, and the package does not have it. Put it in files.", field=what
            )
        return ValidatorSpec(
            name=path.stem,
            files={path.name: self.store.put(content), **beside},
            language=_language(source.get("type", ""), path) or language_of([path.name]),
            protocol=Protocol.TESTLIB_POINTS,
        )

    def _checker(self) -> ValidatorSpec | None:
        checker = self.xml.find("assets/checker")
        if checker is None:
            return None
        if checker.get("type", "testlib") != "testlib":
            raise unsupported(NAME, f"a checker of the type {checker.get('type', '')[:40]!r}")
        return self._program(checker.find("source"), "checker")

    def _interactor(self) -> ValidatorSpec | None:
        interactor = self.xml.find("assets/interactor")
        if interactor is None:
            return None
        return self._program(interactor.find("source"), "interactor")

    def _include(self) -> dict[str, dict[str, str]]:
        """Resources that are compiled with every solution."""
        made: dict[str, dict[str, str]] = {}
        for one in self.xml.findall("files/resources/file"):
            assets = {asset.get("name", "").lower() for asset in one.findall("assets/asset")}
            if "solution" not in assets:
                continue
            path = self._existing(one.get("path", ""))
            if path is None:
                raise InvalidInput(f"{NAME}: there is no {one.get('path', '')[:100]}.", field="resources")
            languages = ("c", "cpp") if path.suffix == ".h" else (language_of([path.name]),)
            for language in languages:
                made.setdefault(language, {})[path.name] = self.store.put(path.read_bytes())
        return made

    @property
    def solutions(self) -> list[PolygonSolution]:
        found: list[PolygonSolution] = []
        for one in self.xml.findall("assets/solutions/solution"):
            source = one.find("source")
            path = self._existing("" if source is None else source.get("path", ""))
            if source is not None and path is not None:
                language = _language(source.get("type", ""), path)
                found.append(PolygonSolution(path, one.get("tag", "rejected"), language))
        return found

    def _making(self, recipes: Sequence[Recipe], problem: Problem) -> Making:
        if problem.interactive and any(recipe.answer for recipe in recipes):
            raise InvalidInput(
                "The package has no answers, and those of a conversation cannot be made: export the full"
                " package.",
                field="tests",
            )
        sources = {
            Path(source.get("path", "")).stem: source
            for source in self.xml.findall("files/executables/executable/source")
        }
        named = {recipe.program for recipe in recipes if recipe.program is not None}
        missing = next((name for name in sorted(named) if name not in sources), None)
        if missing is not None:
            raise InvalidInput(f"{NAME}: there is no generator {missing[:60]!r}.", field="tests")
        main = next((one for one in self.solutions if one.tag == "main"), None)
        if main is None:
            raise InvalidInput(
                f"{NAME}: tests are to be made, and no solution has the tag main.", field="tests"
            )
        solution = ProgramSpec(
            name=main.path.stem,
            files={
                main.path.name: self.store.put(main.path.read_bytes()),
                **problem.included(main.language or language_of([main.path.name])),
            },
            language=main.language or language_of([main.path.name]),
        )
        programs = {name: self._program(sources[name], "generator") for name in sorted(named)}
        return Making(recipes, programs, solution)

    # ---- everything else

    def _title(self) -> str:
        names = {one.get("language", ""): one.get("value", "") for one in self.xml.findall("names/name")}
        found = names.get("english") or next(iter(names.values()), "")
        return (found or self.xml.get("short-name") or self.root.name)[:200]

    def _bounds(self, testset: ElementTree.Element) -> Bounds:
        try:
            return Bounds(
                time_ms=int(testset.findtext("time-limit") or 1000),
                memory_kb=int(testset.findtext("memory-limit") or 256 << 20) // 1024,
                output_kb=OUTPUT_KB,
            )
        except ValueError as error:
            raise out_of_range(NAME, error) from None

    def _file(self, said: str | None) -> str:
        return "" if not said or said in ("stdin", "stdout") else said

    def _statements(self) -> Statements:
        places: list[tuple[str, Path]] = []
        for one in self.xml.findall("statements/statement"):
            path = self._existing(one.get("path", ""))
            if path is not None:
                places.append((_LANGUAGES.get(one.get("language", ""), one.get("language", "")[:40]), path))
        return read_statements(places, self.store)

    def _validation(self, problem: Problem, named: Mapping[str, _Test]) -> ValidationData:
        validators = [
            self._program(one.find("source"), "validator")
            for one in self.xml.findall("assets/validators/validator")
        ]
        inputs = [
            InputCheck(f"data/{case.name}.in", case.input, self._validator_args(named[case.name]), valid=True)
            for case in problem.data.all_cases()
        ]
        for validator in self.xml.findall("assets/validators/validator"):
            for number, test in _with_numbers(validator):
                path = self._path_of(validator, "input-path-pattern", number)
                if path is not None:
                    name = str(path.relative_to(self.root))
                    valid = test.get("verdict") == "valid"
                    inputs.append(InputCheck(name, self._stored(path), (), valid=valid))
        return ValidationData(validators=validators, inputs=inputs, outputs=list(self._checker_tests()))

    def _validator_args(self, test: _Test) -> list[str]:
        return ["--testset", "tests", *(["--group", test.group] if test.group else [])]

    def _checker_tests(self) -> Iterator[OutputCheck]:
        checker = self.xml.find("assets/checker")
        if checker is None:
            return
        for number, test in _with_numbers(checker):
            names = ("input-path-pattern", "output-path-pattern", "answer-path-pattern")
            given, output, answer = (self._path_of(checker, name, number) for name in names)
            verdict = test.get("verdict", "")
            if given is None or output is None or answer is None or verdict == "crashed":
                continue
            expected: Literal["AC", "WA"] = "AC" if verdict == "ok" else "WA"
            name = str(output.relative_to(self.root).with_suffix(""))
            case = TestCase(name=name, input=self._stored(given), answer=self._stored(answer))
            yield OutputCheck(case, unix_lines(output.read_bytes()), expected)

    def _path_of(self, tested: ElementTree.Element, pattern: str, number: int) -> Path | None:
        said = tested.findtext(f"testset/{pattern}")
        return None if said is None else self._existing(_numbered(said, number))


_LANGUAGES = {
    "english": "en",
    "russian": "ru",
    "ukrainian": "uk",
    "german": "de",
    "french": "fr",
    "chinese": "zh",
    "spanish": "es",
    "portuguese": "pt",
    "polish": "pl",
    "japanese": "ja",
    "korean": "ko",
}


def _shown(name: str) -> str:
    """Two names of groups are taken."""
    return f"group-{name}" if name in ("sample", "data") else name or "secret"


def _with_numbers(tested: ElementTree.Element) -> list[tuple[int, ElementTree.Element]]:
    return list(enumerate(tested.findall("testset/tests/test"), 1))


def _numbered(pattern: str, number: int) -> str:
    """The only form of pattern is %d with a width."""
    return re.sub(r"%0?(\d*)d", lambda found: f"{number:0{int(found[1] or 1)}}", pattern, count=1)


def _language(kind: str, path: Path) -> str | None:
    """Where Polygon's type of a source says more than the extension."""
    return "pypy" if kind.startswith(PYPY) and path.suffix == ".py" else None


def unix_lines(content: bytes) -> bytes:
    """Packages for Windows end each line with CRLF, which programs here would read as a letter."""
    if b"\r\n" in content and content.count(b"\n") == content.count(b"\r\n"):
        return content.replace(b"\r\n", b"\n")
    return content
