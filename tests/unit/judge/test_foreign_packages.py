"""Packages of Polygon, CMS and DMOJ, read into one value."""

import json
import zipfile
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._grading import best
from fencepost_judge._problem import Aggregation, Protocol
from fencepost_judge._store import Store
from fencepost_judge.packages._making import absent
from fencepost_judge.packages._reading import ReadProblem, read_problem
from tests.unit.judge.test_packages import write


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


POLYGON_XML = """<?xml version="1.0" encoding="utf-8" standalone="no"?>
<problem short-name="two-sums">
  <names><name language="russian" value="Суммы"/><name language="english" value="Two Sums"/></names>
  <statements><statement language="english" path="statements/english/problem.tex"/></statements>
  <judging input-file="{input_file}" output-file="" run-count="1"><testset name="tests">
    <time-limit>1500</time-limit><memory-limit>67108864</memory-limit>
    <input-path-pattern>tests/%02d</input-path-pattern><answer-path-pattern>tests/%02d.a</answer-path-pattern>
    <tests>{tests}</tests><groups>{groups}</groups>
  </testset></judging>
  <files><resources><file path="files/testlib.h"/></resources>
    <executables><executable><source path="files/gen.cpp" type="cpp.g++17"/></executable></executables>
  </files>
  <assets><checker type="testlib"><source path="files/check.cpp" type="cpp.g++17"/></checker>{interactor}
    <validators><validator><source path="files/val.cpp" type="cpp.g++17"/></validator></validators>
    <solutions><solution tag="main"><source path="solutions/main.cpp" type="cpp.g++17"/></solution>
      <solution tag="time-limit-exceeded-or-accepted">
        <source path="solutions/slow.py" type="python.pypy3"/></solution>
      <solution tag="do-not-run"><source path="solutions/odd.cpp" type="cpp.g++17"/></solution></solutions>
  </assets>
</problem>
"""
POLYGON = {
    "files/testlib.h": "",
    "files/gen.cpp": "int main(){}",
    "files/check.cpp": '#include "testlib.h"\nint main(){}',
    "files/val.cpp": "int main(){}",
    "solutions/main.cpp": "int main(){}",
    "solutions/slow.py": "print(1)",
    "solutions/odd.cpp": "",
    "statements/english/problem.tex": "\\begin{problem}{Sums}{stdin}{stdout}{1}{64}\nAdd.\n\\end{problem}\n",
    "tests/01": "1\r\n",
    "tests/01.a": "2\r\n",
    "tests/03": "3\n",
    "tests/03.a": "4\n",
}
TESTS = (
    '<test group="0" method="manual" sample="true"/>'
    '<test cmd="gen 7 &quot;a b&quot;" group="1" method="generated" points="30"/>'
    '<test group="2" method="manual" points="40"/>'
    '<test cmd="gen 9" group="2" method="generated" points="30"/>'
)
GROUPS = (
    '<group name="0" points-policy="complete-group"/>'
    '<group name="1" points="30" points-policy="complete-group">'
    '<dependencies><dependency group="0"/></dependencies></group><group name="2" points-policy="each-test"/>'
)


def polygon(
    folder: Path,
    store: Store,
    *,
    tests: str = TESTS,
    groups: str = GROUPS,
    input_file: str = "",
    interactor: str = "",
) -> ReadProblem:
    xml = POLYGON_XML.format(tests=tests, groups=groups, input_file=input_file, interactor=interactor)
    return read_problem(write(folder, POLYGON | {"problem.xml": xml}), store)


def test_a_polygon_package(tmp_path: Path, store: Store) -> None:
    read = polygon(tmp_path / "p", store)
    problem = read.problem

    assert (problem.slug, problem.title, problem.statement) == ("two-sums", "Two Sums", "Add.\n")
    assert (problem.bounds.time_ms, problem.bounds.memory_kb, problem.scoring) == (1500, 65_536, True)
    assert problem.validator is not None
    assert problem.validator.protocol is Protocol.TESTLIB_POINTS
    assert sorted(problem.validator.files) == ["check.cpp", "testlib.h"]
    assert [(one.name, one.language(), sorted(one.expected)) for one in read.submissions] == [
        ("main/main.cpp", "cpp", ["AC"]),
        ("time-limit-exceeded-or-accepted/slow.py", "pypy", ["AC", "TLE"]),
    ]
    assert read.disabled == ["do-not-run/odd.cpp"]


def test_groups_of_polygon_keep_their_points_policies_and_dependencies(tmp_path: Path, store: Store) -> None:
    problem = polygon(tmp_path / "p", store).problem
    sample, one, two = (group for group in problem.data.groups if any(group.all_cases()))

    assert [case.name for case in problem.data.all_cases()] == [
        "sample/01",
        "secret/1/02",
        "secret/2/03",
        "secret/2/04",
    ]
    assert (sample.name, one.name, one.aggregation, one.score) == ("sample", "1", Aggregation.ALL, 30)
    # The group it depends on holds only samples, which are judged as such.
    assert one.require == ["0", "sample"]
    assert [group.score for group in two.groups] == [40, 30]
    assert best(problem) == 100


def test_tests_that_polygon_generates_are_made(tmp_path: Path, store: Store) -> None:
    read = polygon(tmp_path / "p", store)
    assert read.making is not None
    cases = {case.name: case for case in read.problem.data.all_cases()}

    assert [(one.program, list(one.args)) for one in read.making.recipes] == [
        ("gen", ["7", "a b"]),
        ("gen", ["9"]),
    ]
    assert cases["secret/1/02"].input == absent("input 2")
    assert list(read.making.programs) == ["gen"]
    assert read.making.solution is not None
    # Windows' line ends are not part of the data.
    assert store.get(cases["sample/01"].input) == b"1\n"


def test_a_sample_of_polygon_that_is_worth_points_counts_beside_the_sample(
    tmp_path: Path, store: Store
) -> None:
    tests = (
        '<test method="manual" sample="true" points="60"/><test cmd="gen 1" method="generated" points="40"/>'
    )
    problem = polygon(tmp_path / "p", store, tests=tests, groups="").problem

    assert [case.name for case in problem.data.all_cases()] == ["sample/01", "secret/01", "secret/02"]
    assert best(problem) == 100


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"problem.xml": "<!DOCTYPE x [<!ENTITY a 'b'>]><problem/>"}, "document type"),
        ({"problem.xml": "<problem>"}, "cannot be read"),
        ({"problem.xml": "<problem/>"}, "no test set"),
    ],
)
def test_a_polygon_package_that_cannot_be_read_is_refused(
    tmp_path: Path, store: Store, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_problem(write(tmp_path / "p", POLYGON | changes), store)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tests": '<test method="manual"/><test method="manual"/>', "groups": ""}, "no file of test 2"),
        (
            {
                "tests": '<test method="generated" cmd="none 1"/><test method="generated" cmd="none 1"/>',
                "groups": "",
            },
            "no generator",
        ),
        ({"groups": GROUPS.replace("complete-group", "best-of")}, "points-policy"),
        ({"groups": GROUPS.replace('group="0"', 'group="x"')}, "does not exist"),
        (
            {"interactor": '<interactor><source path="files/val.cpp"/></interactor>'},
            "those of a conversation",
        ),
        (
            {"interactor": '<interactor><source path="files/none.cpp"/></interactor>'},
            "no source of the interactor",
        ),
        ({"input_file": "../x"}, "not a valid problem"),
    ],
)
def test_what_polygon_packages_lack_is_named(
    tmp_path: Path, store: Store, options: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        polygon(tmp_path / "p", store, **options)


CMS = {
    "task.yaml": "name: batch\ntitle: Batch\ntime_limit: 0.5\nmemory_limit: 64\nn_input: 3\n"
    "public_testcases: 0,1\ntoken_mode: infinite\n",
    "gen/GEN": "# ST: 40\n1 2  # first\n#COPY: x\n\n# a remark\n#ST: 60\n5\n",
    **{f"{place}/{place}{number}.txt": f"{number}\n" for place in ("input", "output") for number in range(3)},
    "sol/solution.py": "print(1)",
    "statement/statement.pdf": "%PDF-1.4\n",
    "att/help.txt": "x",
}


def test_a_task_of_cms(tmp_path: Path, store: Store) -> None:
    read = read_problem(write(tmp_path / "t", CMS), store)
    problem = read.problem

    assert (problem.slug, problem.title, problem.bounds.time_ms) == ("batch", "Batch", 500)
    assert (problem.input_file, problem.output_file) == ("input.txt", "output.txt")
    assert [(group.aggregation, group.score, len(group.cases)) for group in problem.data.groups] == [
        (Aggregation.MIN, 40, 2),
        (Aggregation.MIN, 60, 1),
    ]
    assert problem.flags == ["case_sensitive", "by_lines"]
    assert [(one.language, one.format) for one in problem.statements] == [("en", "pdf")]
    assert [one.name for one in read.submissions] == ["sol/solution.py"]
    assert list(problem.attachments) == ["help.txt"]


def test_a_task_of_cms_without_subtasks_shares_its_points(tmp_path: Path, store: Store) -> None:
    files = {name: text for name, text in CMS.items() if name != "gen/GEN"}
    files |= {"task.yaml": "name: batch\nn_input: 3\ntotal_value: 200\ninfile: ''\noutfile: ''\n"}
    read = read_problem(write(tmp_path / "t", files), store)

    assert best(read.problem) == pytest.approx(200)
    # No limit: it is inferred from the solution.
    assert read.timing is not None
    assert read.submissions[0].expectations.bounds


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"check/manager.cpp": ""}, "communication"),
        ({"task.yaml": "output_only: true\n"}, "outputs are submitted"),
        ({"check/checker": "compiled"}, "only compiled"),
        ({"gen/GEN": "1\n# ST: 5\n2\n3\n"}, "before the first subtask"),
        ({"gen/GEN": "1\n"}, "n_input is 3"),
        ({"task.yaml": "name: x\nn_input: 4\n", "gen/GEN": "1\n2\n3\n4\n"}, "no input/input3.txt"),
        ({"task.yaml": "name: x\nscore_typ: Sum\n"}, "score_typ"),
    ],
)
def test_what_cms_tasks_cannot_have_here_is_named(
    tmp_path: Path, store: Store, changes: dict[str, str], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why):
        read_problem(write(tmp_path / "t", CMS | changes), store)


def test_a_problem_of_dmoj(tmp_path: Path, store: Store) -> None:
    init = {
        "archive": "data.zip",
        "checker": {"name": "floats", "args": {"precision": 3}},
        "test_cases": [
            {"in": "0.in", "out": "0.out", "points": 0},
            {"batched": [{"in": "1.in", "out": "1.out"}, {"in": "2.in", "out": "2.out"}], "points": 30},
            {"batched": [{"in": "1.in", "out": "1.out"}], "points": 70, "dependencies": [1]},
        ],
    }
    folder = write(tmp_path / "seq", {"init.yml": json.dumps(init)})
    with zipfile.ZipFile(folder / "data.zip", "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.in", f"{number}\n")
            archive.writestr(f"{number}.out", f"{number}\n")
    read = read_problem(folder, store)

    assert read.problem.flags == ["case_sensitive", "by_lines", "float_tolerance", "1e-3"]
    assert [(one.name, one.aggregation, one.score, one.require) for one in read.problem.data.groups] == [
        ("test-1", Aggregation.SUM, 0, []),
        ("batch-1", Aggregation.MIN, 30, ["test-1"]),
        ("batch-2", Aggregation.MIN, 70, ["test-1", "batch-1"]),
    ]
    # The format has no time limit, and no solutions to infer it from.
    assert (read.timing is not None, read.submissions) == (True, ())


def test_tests_of_dmoj_are_found_by_the_names_of_their_files(tmp_path: Path, store: Store) -> None:
    names = ("1", "2.1", "2.2", "10")
    files = {f"{name}.{kind}": "" for name in names for kind in ("in", "out")}
    read = read_problem(
        write(tmp_path / "p", files | {"init.yml": "test_cases: {case_points: [5, 20, 75]}"}), store
    )

    assert [(one.name, one.score, len(one.cases)) for one in read.problem.data.groups] == [
        ("test-1", 5, 1),
        ("batch-1", 20, 2),
        ("test-3", 75, 1),
    ]


def test_generators_and_interactors_of_dmoj(tmp_path: Path, store: Store) -> None:
    init = "generator: gen.py\ninteractive: {files: talk.cpp, type: testlib}\n"
    init += "test_cases:\n- {generator_args: [3, x], points: 1}\n"
    read = read_problem(write(tmp_path / "p", {"init.yml": init, "gen.py": "", "talk.cpp": ""}), store)
    assert read.making is not None
    assert read.problem.validator is not None

    assert list(read.making.recipes[0].args) == ["3", "x"]
    assert read.making.recipes[0].answers
    assert (read.problem.interactive, read.problem.validator.protocol) == (True, Protocol.TESTLIB_POINTS)


@pytest.mark.parametrize(
    ("init", "why"),
    [
        ("grader: x.py", "grader"),
        ("checker: check.py", "module of the judge's own"),
        ("checker: linecount", "linecount"),
        ("test_cases++: 'import os'", "program of the judge"),
        ("checker: {name: bridged, args: {files: c.cpp, type: peg}}", "'peg' of the checker"),
        ("checker: {name: bridged, args: {files: c.cpp, flags: [-DX]}}", "flags"),
        ("test_cases: {input_format: '(a+)+'}", "of one's own"),
        ("test_cases: [{in: ../../etc/passwd, out: 1.out}]", "no file"),
        ("test_cases: [{in: 1.in, out: 1.out, dependencies: [1]}]", "no earlier batch"),
        ("archve: x", "archve"),
    ],
)
def test_what_dmoj_problems_cannot_have_here_is_named(
    tmp_path: Path, store: Store, init: str, why: str
) -> None:
    tests = "" if "test_cases" in init else "test_cases: [{in: 1.in, out: 1.out}]\n"
    files = {"init.yml": f"{tests}{init}\n", "1.in": "", "1.out": "", "c.cpp": ""}
    with pytest.raises(InvalidInput, match=why):
        read_problem(write(tmp_path / "p", files), store)
