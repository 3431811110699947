"""Reads problems of DMOJ: `init.yml`, its archive, batches, checkers, generators and interactors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field

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
from fencepost_judge.packages._archive import unpack
from fencepost_judge.packages._documents import Documents, Parse, parse_in_child
from fencepost_judge.packages._icpc import PROVISIONAL_MS, slug_of
from fencepost_judge.packages._making import Making, Recipe, absent
from fencepost_judge.packages._metadata import Described, Number, Text, Whole, checked
from fencepost_judge.packages._source_files import language_of
from fencepost_judge.packages._unsupported import unsupported

NAME = "init.yml"
CASES_MAX = 5000
INPUTS = r"^(?=.*?\.in|in).*?(?:(?:^|\W)(?P<batch>\d+)[^\d\s]+)?(?P<case>\d+)[^\d\s]*$"
OUTPUTS = r"^(?=.*?\.out|out).*?(?:(?:^|\W)(?P<batch>\d+)[^\d\s]+)?(?P<case>\d+)[^\d\s]*$"
EXACT = ["case_sensitive", "by_lines"]
TOLERANCES = {
    "default": "float_tolerance",
    "absolute": "float_absolute_tolerance",
    "relative": "float_relative_tolerance",
}


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


Files = Annotated[list[str], BeforeValidator(_listed)]


class DmojChecker(Described):
    name: str
    args: Annotated[dict[str, Any], Field(default_factory=dict[str, Any])]


class DmojBridge(Described):
    """A checker or an interactor that is compiled."""

    files: Files
    lang: str | None = None
    type: str = "default"
    feedback: Any = None
    time_limit: Number | None = None
    memory_limit: Number | None = None
    compiler_time_limit: Number | None = None
    flags: Sequence[str] = ()
    cached: bool = True


class DmojGenerator(Described):
    source: Files
    language: str | None = None
    flags: Sequence[str] = ()
    time_limit: Number | None = None
    memory_limit: Number | None = None
    compiler_time_limit: Number | None = None


class DmojCase(Described):
    """A test, or a batch of tests."""

    in_: str | None = Field(default=None, alias="in")
    out: str | None = None
    points: Number | None = None
    batched: list[dict[str, Any]] | None = None
    dependencies: Sequence[Whole] = ()
    generator_args: list[Text] | None = None
    generator_in: str | None = None
    checker: Any = None
    output_limit_length: Whole | None = None
    output_prefix_length: Whole | None = None
    meta: Any = None


class DmojFormat(Described):
    """Tests that are found by the names of their files."""

    input_format: str = INPUTS
    output_format: str = OUTPUTS
    case_points: Number | list[Number] | None = None


class DmojProblem(Described):
    archive: str | None = None
    test_cases: Sequence[dict[str, Any]] | dict[str, Any] = ()
    pretest_test_cases: list[dict[str, Any]] | None = None
    points: Number = 1
    checker: str | dict[str, Any] | None = None
    generator: str | dict[str, Any] | None = None
    interactive: dict[str, Any] | None = None
    custom_judge: Any = None
    grader: Any = None
    signature_grader: Any = None
    short_circuit: bool = False
    unbuffered: bool = False
    binary_data: bool = False
    hints: Any = None
    symlinks: Any = None
    meta: Any = None
    output_limit_length: Whole | None = None
    output_prefix_length: Whole | None = None
    file_size_limit: Whole | None = None
    wall_time_factor: Number | None = None


def _flags(checker: DmojChecker) -> list[str] | None:
    """One of the format's own checkers as flags of our comparison; None for others."""
    fixed = {"standard": EXACT, "easy": ["any_order_of_letters"], "identical": ["exact"]}
    if checker.name in fixed:
        return fixed[checker.name]
    if checker.name in ("sorted", "unordered"):
        by = "whitespace" if checker.name == "unordered" else checker.args.get("split_on", "lines")
        return ["case_sensitive", "any_order_of_lines" if by == "lines" else "any_order_of_tokens"]
    if checker.name not in ("floats", "floatsabs", "floatsrel"):
        return None
    mode = {"floatsabs": "absolute", "floatsrel": "relative"}.get(checker.name)
    flag = TOLERANCES.get(mode or str(checker.args.get("error_mode", "default")))
    if flag is None:
        raise InvalidInput(f"{NAME}: error_mode is not known.", field="checker")
    return [*EXACT, flag, f"1e-{int(checker.args.get('precision', 6))}"]


@dataclass(frozen=True, slots=True)
class DmojPackage:
    """The problem without a time limit: the format has none."""

    problem: Problem
    making: Making | None


def is_dmoj(folder: Path) -> bool:
    return (folder / NAME).is_file()


def read_dmoj(
    folder: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> DmojPackage:
    documents = Documents(folder, parse)
    documents.load([folder / NAME])
    described = documents.get(folder / NAME)
    dynamic = next((key for key in described if key.endswith("++")), None)
    if dynamic is not None:
        raise unsupported(NAME, f"{dynamic[:40]}, whose value is a program of the judge's own,")
    said = checked(DmojProblem, NAME, described)
    for key in ("grader", "signature_grader", "custom_judge", "pretest_test_cases", "symlinks"):
        if getattr(said, key):
            raise unsupported(NAME, key)
    with tempfile.TemporaryDirectory(prefix="fencepost-package-") as scratch:
        places = [folder]
        if said.archive:
            path = _inside(folder, said.archive)
            if path is None:
                raise InvalidInput(f"{NAME}: there is no archive {said.archive[:100]}.", field="archive")
            unpacked = Path(scratch) / "archive"
            unpacked.mkdir()
            unpack(path, unpacked)
            places.insert(0, unpacked)
        return _Reader(places, store, said).package(slug or slug_of(folder.name), folder)


def _inside(place: Path, name: str) -> Path | None:
    path = place / name
    return path if path.is_file() and path.resolve().is_relative_to(place.resolve()) else None


@dataclass
class _Reader:
    places: Sequence[Path]
    store: Store
    said: DmojProblem
    recipes: list[Recipe] = field(default_factory=list[Recipe])
    count: int = 0

    def package(self, slug: str, folder: Path) -> DmojPackage:
        groups = list(self._groups())
        if not self.count:
            raise InvalidInput(f"{NAME} has no test.", field="test_cases")
        interactor = self._interactor()
        flags, checker = self._checker()
        if interactor and checker:
            raise unsupported(NAME, "a checker beside an interactor")
        limit = self.said.output_limit_length
        problem = Problem(
            slug=slug,
            title=folder.name[:200],
            bounds=Bounds(time_ms=PROVISIONAL_MS, output_kb=max(1, limit // 1024) if limit else 65_536),
            scoring=True,
            interactive=interactor is not None,
            flags=[] if interactor or checker else flags,
            validator=interactor or checker,
            data=Group(name="data", groups=groups),
        )
        return DmojPackage(problem, self._making())

    # ---- tests

    def _groups(self) -> Iterator[Group]:
        """Each test and each batch is a group. One without points ends the judging when it fails, and so does
        each with short_circuit: the later ones require it."""
        batches: list[str] = []
        needed: list[str] = []
        for number, case in enumerate(self._cases(), 1):
            points = self.said.points if case.points is None else case.points
            inner = case.batched is not None
            name = f"batch-{len(batches) + 1}" if inner else f"test-{number}"
            require = [*needed, *(self._batch(batches, one) for one in case.dependencies)]
            if inner:
                batches.append(name)
                parts = [checked(DmojCase, NAME, one) for one in case.batched or ()]
                cases = [self._case(f"{name}/{place:03}", part) for place, part in enumerate(parts, 1)]
                yield Group(
                    name=name, cases=cases, aggregation=Aggregation.MIN, score=points, require=require
                )
            else:
                yield Group(
                    name=name, cases=[self._case(f"{number:03}", case)], score=points, require=require
                )
            if not points or self.said.short_circuit:
                needed.append(name)

    def _batch(self, batches: Sequence[str], number: int) -> str:
        if not 1 <= number <= len(batches):
            raise InvalidInput(f"{NAME}: there is no earlier batch {number}.", field="dependencies")
        return batches[number - 1]

    def _cases(self) -> list[DmojCase]:
        said = self.said.test_cases
        if isinstance(said, Mapping):
            return self._by_names(checked(DmojFormat, NAME, said))
        return [checked(DmojCase, NAME, one) for one in said]

    def _by_names(self, said: DmojFormat) -> list[DmojCase]:
        """Tests by their files' names: a batch for each number of one, in the order of the numbers."""
        inputs, outputs = self._matching(said.input_format), self._matching(said.output_format)
        alone = sorted(set(inputs) ^ set(outputs))
        if alone and not self.said.interactive:
            batch, case = alone[0]
            raise InvalidInput(f"{NAME}: test {batch}.{case} has no input or no output.", field="test_cases")
        batches: dict[int, list[tuple[int, dict[str, str | None]]]] = {}
        for (batch, case), name in inputs.items():
            files = {"in": name, "out": outputs.get((batch, case))}
            batches.setdefault(batch or case, []).append((case if batch else 0, files))
        made: list[dict[str, Any]] = []
        for number in sorted(batches):
            parts = sorted(batches[number], key=lambda part: part[0])
            inner = [part for place, part in parts if place]
            made += [part for place, part in parts if not place]
            made += [{"batched": inner}] if inner else []
        points = said.case_points
        for place, one in enumerate(made):
            if isinstance(points, list) and place >= len(points):
                raise InvalidInput(f"{NAME}: case_points has {len(points)} numbers.", field="case_points")
            own = points[place] if isinstance(points, list) else points
            one["points"] = own
        return [checked(DmojCase, NAME, one) for one in made]

    def _matching(self, pattern: str) -> dict[tuple[int, int], str]:
        # The author's own expression could take for ever; ours are known.
        if pattern not in (INPUTS, OUTPUTS):
            raise unsupported(NAME, "an input_format or output_format of one's own")
        found: dict[tuple[int, int], str] = {}
        compiled = re.compile(pattern, re.IGNORECASE)
        place = self.places[0]
        for path in sorted(place.rglob("*")):
            name = str(path.relative_to(place))
            match = compiled.match(name) if path.is_file() and len(name) < 200 else None
            if match is not None:
                found[int(match["batch"] or 0), int(match["case"])] = name
        return found

    def _case(self, name: str, case: DmojCase) -> TestCase:
        self.count += 1
        if self.count > CASES_MAX:
            raise InvalidInput(f"{NAME} has more than {CASES_MAX} tests.", field="test_cases")
        if case.checker is not None or case.output_limit_length or case.output_prefix_length:
            raise unsupported(NAME, "a checker or a limit of a single test")
        made = case.generator_args is not None or case.generator_in is not None
        if made and not self.said.generator:
            raise InvalidInput(
                f"{NAME}: a test is to be generated, and there is no generator.", field="generator"
            )
        given = absent(f"input {self.count}") if made and case.in_ is None else self._file(case.in_)
        answer = absent(f"answer {self.count}") if made and case.out is None else self._file(case.out)
        if made and (case.in_ is None or case.out is None):
            self.recipes.append(
                Recipe(
                    given,
                    answer if case.out is None else None,
                    program="generator",
                    args=case.generator_args or [],
                    given=self._file(case.generator_in) if case.generator_in else None,
                    answers=True,
                )
            )
        return TestCase(name=f"secret/{name}", input=given, answer=answer)

    def _file(self, name: str | None) -> str:
        """What is not named is empty."""
        if name is None:
            return self.store.put(b"")
        return self.store.put(self._path(name).read_bytes())

    def _path(self, name: str) -> Path:
        found = next((path for place in self.places if (path := _inside(place, name))), None)
        if found is None:
            raise InvalidInput(f"{NAME}: there is no file {name[:100]}.", field="test_cases")
        return found

    # ---- programs

    def _checker(self) -> tuple[Sequence[str], ValidatorSpec | None]:
        """The flags of the comparison, or a checker of the package's own."""
        said = self.said.checker
        if said is None:
            return EXACT, None
        checker = checked(DmojChecker, NAME, {"name": said} if isinstance(said, str) else said)
        if checker.name == "bridged":
            return [], self._bridge(checked(DmojBridge, NAME, checker.args), "checker")
        flags = _flags(checker)
        if flags is None:
            own = ", a module of the judge's own," if checker.name.endswith(".py") else ""
            raise unsupported(NAME, f"the checker {checker.name[:60]}{own}")
        return flags, None

    def _interactor(self) -> ValidatorSpec | None:
        if self.said.interactive is None:
            return None
        return self._bridge(checked(DmojBridge, NAME, self.said.interactive), "interactor")

    def _bridge(self, said: DmojBridge, what: str) -> ValidatorSpec:
        protocol = {"default": Protocol.DMOJ, "testlib": Protocol.TESTLIB_POINTS}.get(said.type)
        if protocol is None:
            raise unsupported(NAME, f"the type {said.type[:40]!r} of the {what}")
        return ValidatorSpec(**self._program(said.files, said.flags, what).model_dump(), protocol=protocol)

    def _program(self, names: Sequence[str], flags: Sequence[str], what: str) -> ProgramSpec:
        if flags:
            raise unsupported(NAME, f"flags of the compiler for the {what}")
        paths = [self._path(name) for name in names]
        files = {path.name: self.store.put(path.read_bytes()) for path in paths}
        return ProgramSpec(name=what, files=files, language=language_of([path.name for path in paths]))

    def _making(self) -> Making | None:
        if not self.recipes:
            return None
        said = self.said.generator
        if isinstance(said, str):
            program = self._program([said], [], "generator")
        else:
            generator = checked(DmojGenerator, NAME, cast("Mapping[str, Any]", said))
            program = self._program(generator.source, generator.flags, "generator")
        return Making(self.recipes, {"generator": program})
