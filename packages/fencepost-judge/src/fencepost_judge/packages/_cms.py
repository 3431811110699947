"""Reads tasks of CMS, as its `italy_yaml` loader does: `task.yaml`, `input`, `output`, `gen/GEN`, `sol`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from fencepost.errors import InvalidInput
from fencepost_judge._problem import Aggregation, Bounds, Group, Problem, Protocol, TestCase, ValidatorSpec
from fencepost_judge._store import Store
from fencepost_judge.packages._documents import Documents, Parse, parse_in_child
from fencepost_judge.packages._icpc import PROVISIONAL_MS, slug_of
from fencepost_judge.packages._metadata import Described, Positive, Text, Whole, checked
from fencepost_judge.packages._source_files import HEADERS, is_source, language_of
from fencepost_judge.packages._statements import FORMATS, Statements, read_statements
from fencepost_judge.packages._unsupported import out_of_range, unsupported

NAME = "task.yaml"
GRADER = "grader"
SOLUTIONS = ("solution", "soluzione")
OUTPUT_KB = 65_536
_SUBTASK = re.compile(r"ST:\s*(\d+(?:\.\d+)?)\s*$")


class CmsTask(Described):
    """`task.yaml`. What concerns the contest or the interface is accepted, and left to the contest."""

    name: Text | None = None
    nome_breve: Text | None = None
    title: Text | None = None
    nome: Text | None = None
    time_limit: Positive | None = None
    timeout: Positive | None = None
    memory_limit: Positive | None = None
    memlimit: Positive | None = None
    n_input: Whole | None = None
    infile: Annotated[str, BeforeValidator(lambda value: value or "")] = "input.txt"
    outfile: Annotated[str, BeforeValidator(lambda value: value or "")] = "output.txt"
    output_only: bool = False
    total_value: Positive = 100.0
    primary_language: Text | None = None
    public_testcases: Any = None
    risultati: Any = None
    version: Any = None
    feedback_level: Any = None
    score_mode: Any = None
    score_precision: Any = None
    token_mode: Any = None
    token_initial: Any = None
    token_max_number: Any = None
    token_min_interval: Any = None
    token_gen_initial: Any = None
    token_gen_number: Any = None
    token_gen_time: Any = None
    token_gen_interval: Any = None
    token_gen_max: Any = None
    token_max: Any = None
    token_total: Any = None
    max_submission_number: Any = None
    max_user_test_number: Any = None
    min_submission_interval: Any = None
    min_user_test_interval: Any = None
    submission_format: Any = None


@dataclass(frozen=True, slots=True)
class CmsPackage:
    problem: Problem
    solutions: Sequence[Path]
    """The model solutions, one in each language."""
    has_limit: bool


def is_cms(folder: Path) -> bool:
    return (folder / NAME).is_file() and (folder / "input").is_dir()


def read_cms(
    folder: Path, store: Store, *, slug: str | None = None, parse: Parse = parse_in_child
) -> CmsPackage:
    documents = Documents(folder, parse)
    documents.load([folder / NAME])
    task = checked(CmsTask, NAME, documents.get(folder / NAME))
    for manager in ("check/manager", "cor/manager"):
        if any(_stems(folder / manager)):
            raise unsupported(manager, "a task of communication")
    if task.output_only:
        raise unsupported(NAME, "a task whose outputs are submitted")
    seconds = task.time_limit or task.timeout
    grader = _grader(folder, store)
    checker = _checker(folder, store)
    statements = _statements(folder, task, store)
    problem = Problem(
        slug=slug or slug_of(task.name or task.nome_breve or folder.name),
        title=(task.title or task.nome or task.name or folder.name)[:200],
        bounds=_bounds(seconds, task.memory_limit or task.memlimit),
        scoring=True,
        flags=[] if checker else ["case_sensitive", "by_lines"],
        validator=checker,
        include=grader,
        attachments=_attachments(folder, store),
        input_file="" if grader else task.infile,
        output_file="" if grader else task.outfile,
        data=_data(folder, task, store),
        statement=statements.markdown,
        statements=statements.files,
    )
    solutions = [
        path
        for path in (sorted((folder / "sol").iterdir()) if (folder / "sol").is_dir() else [])
        if path.stem in SOLUTIONS and path.is_file() and is_source(path.name)
    ]
    return CmsPackage(problem, solutions, seconds is not None)


def _bounds(seconds: float | None, mib: float | None) -> Bounds:
    try:
        return Bounds(
            time_ms=PROVISIONAL_MS if seconds is None else round(seconds * 1000),
            memory_kb=round((mib or 256) * 1024),
            output_kb=OUTPUT_KB,
        )
    except (ValueError, OverflowError) as error:
        raise out_of_range(NAME, error) from None


def _data(folder: Path, task: CmsTask, store: Store) -> Group:
    subtasks, count = _subtasks(folder / "gen" / "GEN")
    if count is None:
        count = task.n_input if task.n_input is not None else len(list((folder / "input").glob("input*.txt")))
    if task.n_input is not None and task.n_input != count:
        raise InvalidInput(
            f"{NAME}: n_input is {task.n_input}, and gen/GEN has {count} tests.", field="n_input"
        )
    if not count:
        raise InvalidInput(f"{NAME}: there is no test.", field="n_input")
    cases = [_case(folder, number, count, store) for number in range(count)]
    if subtasks is None:
        score = task.total_value / count
        return Group(name="data", groups=[Group(name="secret", cases=cases, score=score)])
    groups: list[Group] = []
    begin = 0
    for number, (points, size) in enumerate(subtasks):
        own = cases[begin : begin + size]
        begin += size
        if own:
            groups.append(
                Group(name=f"subtask-{number}", cases=own, aggregation=Aggregation.MIN, score=points)
            )
    return Group(name="data", groups=groups)


def _case(folder: Path, number: int, count: int, store: Store) -> TestCase:
    given, answer = folder / "input" / f"input{number}.txt", folder / "output" / f"output{number}.txt"
    for path in (given, answer):
        if not path.is_file():
            raise InvalidInput(
                f"There is no {path.parent.name}/{path.name}. Make the tests first, as the task says.",
                field="input",
            )
    name = f"secret/{number:0{max(3, len(str(count)))}}"
    return TestCase(name=name, input=store.put(given.read_bytes()), answer=store.put(answer.read_bytes()))


def _subtasks(path: Path) -> tuple[list[tuple[float, int]] | None, int | None]:
    """The points and the sizes of the subtasks, and how many tests there are. A line is a test, or begins
    a subtask (`#ST: points`), or copies a test (`#COPY: file`)."""
    if not path.is_file():
        return None, None
    subtasks: list[tuple[float, int]] = []
    loose = 0
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        test, _, comment = line.partition("#")
        begins = _SUBTASK.match(comment.strip())
        if begins is not None:
            subtasks.append((float(begins[1]), 0))
        elif test.strip() or comment.strip().startswith("COPY:"):
            if subtasks:
                subtasks[-1] = (subtasks[-1][0], subtasks[-1][1] + 1)
            else:
                loose += 1
    if subtasks and loose:
        raise InvalidInput("gen/GEN: there are tests before the first subtask.", field="GEN")
    count = loose or sum(size for _, size in subtasks)
    return (subtasks or None), count


def _stems(place: Path) -> list[Path]:
    """A program by its name without an extension: compiled, or its sources."""
    if not place.parent.is_dir():
        return []
    return sorted(path for path in place.parent.iterdir() if path.stem == place.name and path.is_file())


def _checker(folder: Path, store: Store) -> ValidatorSpec | None:
    for name in ("check/checker", "cor/correttore"):
        found = _stems(folder / name)
        sources = [path for path in found if is_source(path.name)]
        if found and not sources:
            raise InvalidInput(
                f"{name} is there only compiled. Put its source beside it, such as {name}.cpp: it is compiled"
                " here.",
                field="checker",
            )
        if sources:
            headers = [path for path in sources[0].parent.iterdir() if path.suffix in HEADERS]
            files = {path.name: store.put(path.read_bytes()) for path in (sources[0], *sorted(headers))}
            return ValidatorSpec(
                name=sources[0].stem,
                protocol=Protocol.CMS,
                files=files,
                language=language_of([sources[0].name]),
            )
    return None


def _grader(folder: Path, store: Store) -> dict[str, dict[str, str]]:
    """`sol/grader.EXTENSION` is compiled with each program in its language, with the headers beside it."""
    place = folder / "sol"
    if not place.is_dir():
        return {}
    files = [path for path in sorted(place.iterdir()) if path.is_file()]
    headers = {path.name: store.put(path.read_bytes()) for path in files if path.suffix in HEADERS}
    made: dict[str, dict[str, str]] = {}
    for path in files:
        if path.stem == GRADER and is_source(path.name):
            made[language_of([path.name])] = {path.name: store.put(path.read_bytes()), **headers}
    return made


def _attachments(folder: Path, store: Store) -> dict[str, str]:
    place = folder / "att"
    files = [path for path in sorted(place.iterdir()) if path.is_file()] if place.is_dir() else []
    return {path.name: store.put(path.read_bytes()) for path in files if not path.name.startswith(".")}


def _statements(folder: Path, task: CmsTask, store: Store) -> Statements:
    places: list[tuple[str, Path]] = []
    for name in ("statement", "testo"):
        place = folder / name
        files = [path for path in sorted(place.iterdir()) if path.is_file()] if place.is_dir() else []
        places += [
            (task.primary_language or "en", path) if path.stem == name else (path.stem[:40], path)
            for path in files
            if path.suffix == ".pdf" or (path.stem == name and path.suffix in FORMATS)
        ]
    # TeX of a task needs its own style: the PDF beside it is what its author saw.
    if any(path.suffix == ".pdf" for _, path in places):
        places = [one for one in places if one[1].suffix != ".tex"]
    return read_statements(places, store)
