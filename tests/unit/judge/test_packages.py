"""Reading problems of every form into one value."""

from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost.judge.packages.reading import read_problem
from fencepost.judge.problem import Aggregation, Protocol
from fencepost.judge.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


LEGACY = {
    "problem.yaml": "name: Old One\nvalidator_flags: float_tolerance 1e-6\nlimits: {memory: 64}\n",
    ".timelimit": "2.5\n",
    "data/sample/1.in": "1\n",
    "data/sample/1.ans": "2\n",
    "data/secret/a.in": "3\n",
    "data/secret/a.ans": "4\n",
    "problem_statement/problem.en.md": "# Old\n",
    "submissions/accepted/x.py": "print(2)\n",
    "submissions/wrong_answer/y/main.c": "int main(void){}\n",
}


def test_a_legacy_package(tmp_path: Path, store: Store) -> None:
    read = read_problem(write(tmp_path / "old_one", LEGACY), store)
    problem = read.problem

    assert (problem.slug, problem.title, problem.statement) == ("old_one", "Old One", "# Old\n")
    assert (problem.bounds.time_ms, problem.bounds.memory_kb) == (2500, 65_536)
    assert problem.flags == ["float_tolerance", "1e-6"]
    assert [case.name for case in problem.data.all_cases()] == ["sample/1", "secret/a"]
    assert [one.name for one in read.submissions] == ["accepted/x.py", "wrong_answer/y"]


def test_a_custom_validator_and_its_flags_for_one_group(tmp_path: Path, store: Store) -> None:
    files = LEGACY | {
        "problem.yaml": "name: {sv: Gammal}\nvalidation: custom interactive\n",
        "output_validators/v/v.c": "int main(void){return 42;}\n",
        "data/secret/g/testdata.yaml": "output_validator_flags: strict 7\n",
        "data/secret/g/1.in": "",
        "data/secret/g/1.ans": "",
    }
    problem = read_problem(write(tmp_path / "p", files), store).problem

    assert problem.title == "Gammal"
    assert problem.interactive
    assert problem.validator is not None
    assert (problem.validator.language, problem.validator.protocol) == ("c", Protocol.ICPC)
    assert list(problem.data.all_cases())[-1].flags == ["strict", "7"]


def test_a_package_of_2023_07_with_subtasks_and_passes(tmp_path: Path, store: Store) -> None:
    files = {
        "problem.yaml": "problem_format_version: 2023-07-draft\nname: New\ntype: [scoring, multi-pass]\n"
        "limits: {time_limit: 0.5, validation_passes: 3}\n",
        "data/secret/g1/test_group.yaml": "max_score: 40\nscore_aggregation: min\n",
        "data/secret/g1/1.in": "",
        "data/secret/g1/1.ans": "",
        "data/secret/g2/test_group.yaml": "max_score: 60\nscore_aggregation: sum\nrequire_pass: secret/g1\n",
        "data/secret/g2/1.in": "",
        "data/secret/g2/1.ans": "",
        "data/secret/g2/2.in": "",
        "data/secret/g2/2.ans": "",
        "output_validator/check.py": "raise SystemExit(42)\n",
    }
    problem = read_problem(write(tmp_path / "new", files), store).problem
    first, second = problem.data.groups[1].groups

    assert (problem.scoring, problem.bounds.time_ms, problem.bounds.passes) == (True, 500, 3)
    assert (first.aggregation, first.score) == (Aggregation.MIN, 40)
    assert (second.aggregation, second.score, second.require) == (Aggregation.SUM, 30, ["secret/g1"])


def test_a_simple_folder_with_a_checker(tmp_path: Path, store: Store) -> None:
    files = {
        "a.in": "1\n",
        "a.out": "1\n",
        "b.in": "2\n",
        "b.ans": "2\n",
        "check.cpp": "int main(){}\n",
        "testlib.h": "",
        "problem.yaml": "title: Simple\ntime_limit: 0.2\nmemory: 32\nchecker: check.cpp\n",
    }
    problem = read_problem(write(tmp_path / "simple", files), store).problem

    assert [case.name for case in problem.data.all_cases()] == ["a", "b"]
    assert problem.validator is not None
    assert set(problem.validator.files) == {"check.cpp", "testlib.h"}
    assert problem.validator.protocol is Protocol.TESTLIB


@pytest.mark.parametrize(
    ("files", "named"),
    [
        ({"data/secret/lone.in": "1"}, "lone.in"),
        ({"problem.yaml": "name: [unclosed"}, "problem.yaml"),
        ({"problem.yaml": "- a list"}, "problem.yaml"),
        ({"problem.yaml": "name: x\nlimits: {time_limit: never}"}, "limit"),
        ({"problem.yaml": "name: x\ntype: puzzle"}, "puzzle"),
        ({"submissions/accepted/.keep": "", "submissions/accepted/empty/.keep": ""}, "empty"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, store: Store, files: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        read_problem(write(tmp_path / "p", LEGACY | files), store)


def test_an_empty_folder_is_no_problem(tmp_path: Path, store: Store) -> None:
    (tmp_path / "p").mkdir()

    with pytest.raises(InvalidInput, match="no test"):
        read_problem(tmp_path / "p", store)
