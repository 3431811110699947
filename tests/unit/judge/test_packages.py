"""Reading problems of every form into one value."""

import zipfile
from pathlib import Path

import pytest

from fencepost.errors import InvalidInput
from fencepost_judge._grading import best
from fencepost_judge._problem import Aggregation, Problem, Protocol
from fencepost_judge._store import Store
from fencepost_judge.packages._reading import read_problem


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


SCORED = "problem_format_version: 2023-07-draft\nname: Scored\ntype: scoring\n"


def groups_of(problem: Problem) -> list[tuple[str, Aggregation, float, int]]:
    secret = problem.data.groups[1]
    return [(one.name, one.aggregation, one.score, len(one.cases)) for one in (secret, *secret.groups)]


def pairs(*names: str) -> dict[str, str]:
    return {f"data/{name}{ending}": "" for name in names for ending in (".in", ".ans")}


def test_flags_of_all_data_reach_every_test_behind_those_of_the_problem(tmp_path: Path, store: Store) -> None:
    files = LEGACY | {"data/testdata.yaml": "output_validator_flags: case_sensitive\n"}
    problem = read_problem(write(tmp_path / "p", files), store).problem

    assert [case.flags for case in problem.data.all_cases()] == [
        ["float_tolerance", "1e-6", "case_sensitive"]
    ] * 2


def test_a_test_of_2023_07_has_flags_and_arguments_of_its_own(tmp_path: Path, store: Store) -> None:
    files = {
        "problem.yaml": "problem_format_version: 2025-09\nname: New\n",
        **pairs("secret/1", "secret/2"),
        "data/secret/test_group.yaml": "output_validator_args: [case_sensitive]\n",
        "data/secret/2.yaml": "output_validator_args: [float_tolerance, '1e-3']\nargs: [fast, '7']\n",
    }
    first, second = read_problem(write(tmp_path / "p", files), store).problem.data.all_cases()

    assert (first.flags, first.args) == (["case_sensitive"], [])
    assert (second.flags, second.args) == (["float_tolerance", "1e-3"], ["fast", "7"])


def test_legacy_subtasks_as_the_usual_tools_write_them(tmp_path: Path, store: Store) -> None:
    files = {
        "problem.yaml": "name: Old\ntype: scoring\n",
        "data/testdata.yaml": "on_reject: continue\ngrader_flags: ignore_sample\n",
        "data/secret/testdata.yaml": "on_reject: continue\ngrader_flags: accept_if_any_accepted\n",
        "data/secret/g1/testdata.yaml": "on_reject: break\naccept_score: 30\ngrader_flags: min\n",
        "data/secret/g2/testdata.yaml": "accept_score: 7\n",
        "data/secret/g3/testdata.yaml": "grader_flags: avg\naccept_score: 8\n",
        **pairs("secret/g1/1", "secret/g1/2", "secret/g2/1", "secret/g2/2", "secret/g3/1"),
    }
    problem = read_problem(write(tmp_path / "p", files), store).problem

    secret = problem.data.groups[1]
    rules = [one.rules for one in (problem.data, secret, *secret.groups)]
    assert all(rules)
    assert [(one.score, one.accept_score, one.stops, one.ignore_sample) for one in rules if one] == [
        (Aggregation.SUM, 1, False, True),
        (Aggregation.SUM, 1, False, False),
        (Aggregation.MIN, 30, True, False),
        (Aggregation.SUM, 7, False, False),
        (Aggregation.AVG, 8, False, False),
    ]
    assert [one.accept_if_any for one in rules if one] == [False, True, False, True, False]
    assert best(problem) == 30 + 14 + 8


def test_scores_of_2023_07_where_little_is_said(tmp_path: Path, store: Store) -> None:
    plain = {"problem.yaml": SCORED, **pairs("secret/1", "secret/more/2", "secret/more/3", "secret/4")}
    grouped = {
        "problem.yaml": SCORED,
        **pairs("secret/a/1", "secret/a/below/2", "secret/b/1", "secret/b/2"),
        "data/secret/a/test_group.yaml": "max_score: 40\n",
        "data/secret/b/test_group.yaml": "max_score: 60\nscore_aggregation: sum\n",
    }
    unbounded = {
        "problem.yaml": SCORED,
        **pairs("secret/1"),
        "data/secret/test_group.yaml": "max_score: unbounded\n",
    }
    one, two, three = (
        read_problem(write(tmp_path / name, files), store).problem
        for name, files in (("one", plain), ("two", grouped), ("three", unbounded))
    )

    assert groups_of(one) == [("secret", Aggregation.SUM, 25, 4)]
    assert groups_of(two)[1:] == [("secret/a", Aggregation.ALL, 40, 2), ("secret/b", Aggregation.SUM, 30, 2)]
    assert groups_of(three) == [("secret", Aggregation.SUM, 0, 1)]
    assert (best(one), best(two)) == (100, 100)


def test_grading_in_problem_yaml_is_that_of_every_group(tmp_path: Path, store: Store) -> None:
    """As the oldest packages say it; what they say in testdata.yaml beside it gives way."""
    files = {
        "problem.yaml": "name: Old\ntype: scoring\n"
        "grading: {on_reject: grade, range: 0 100, accept_score: 5, reject_score: 1, objective: max}\n",
        ".timelimit": "1\n",
        "data/testdata.yaml": "on_reject: break\nrange: 0 10\n",
        "data/secret/1/testdata.yaml": "accept_score: 7\n",
        "data/secret/1/a.in": "",
        "data/secret/1/a.ans": "",
    }
    root = read_problem(write(tmp_path / "p", files), store).problem.data
    (group,) = next(one for one in root.groups if one.name == "secret").groups

    for rules in (root.rules, group.rules):
        assert rules is not None
        assert (rules.stops, rules.least, rules.most) == (False, 0, 100)
        assert (rules.accept_score, rules.reject_score) == (5, 1)


def test_samples_may_lie_in_folders_and_statements_in_any_language(tmp_path: Path, store: Store) -> None:
    files = {
        "problem.yaml": "name: Old\n",
        **pairs("sample/easy/1", "secret/1"),
        "problem_statement/problem.sv.md": "# Gammal\n",
    }
    problem = read_problem(write(tmp_path / "p", files), store).problem

    assert [(case.name, case.sample) for case in problem.data.all_cases()] == [
        ("sample/easy/1", True),
        ("secret/1", False),
    ]
    assert problem.statement == "# Gammal\n"


def test_every_submission_is_verified_whatever_its_folder(tmp_path: Path, store: Store) -> None:
    files = LEGACY | {
        "submissions/brute_force/slow.c": "int main(void){}\n",
        "submissions/odd/one.c": "int main(void){}\n",
    }
    read = read_problem(write(tmp_path / "p", files), store)

    expected = {one.name: one.expected for one in read.submissions}
    assert "TLE" in expected["brute_force/slow.c"]
    assert "AC" not in expected["brute_force/slow.c"]
    assert {"AC", "WA", "CE"} < expected["odd/one.c"]


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
        ({"problem.yaml": "name: x\ntype: puzzle"}, "type"),
        ({"problem.yaml": "name: x\nvalidator_flags: fuzzy"}, "fuzzy"),
        ({"data/secret/testdata.yaml": "output_validator_flags: float_tolerance"}, "float_tolerance"),
        ({"problem.yaml": "name: x\nvalidation: custom"}, "validator"),
        ({"problem.yaml": "name: x\ntype: interactive"}, "type"),
        ({"data/secret/a.files/x": "", "data/secret/a.files/y": ""}, "a.files"),
        ({"static_validator/v.py": ""}, "static"),
        ({"submissions/accepted/.keep": "", "submissions/accepted/empty/.keep": ""}, "empty"),
        ({"problem.yaml": "name: x\nlimits: {output: 24576}"}, "output_kb of 25165824: Input should be less"),
        ({"problem.yaml": "name: x\ngrading: {on_reject: grade}"}, "needs type: scoring"),
        ({"problem.yaml": "name: x\ngrading: {on_reject: never}"}, "grading.on_reject"),
        ({".timelimit": "0\n"}, "timelimit: '0' is no time"),
        ({".timelimit": "nan\n"}, "timelimit: 'nan' is no time"),
        ({".timelimit": "-1\n"}, "timelimit: '-1' is no time"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, store: Store, files: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        read_problem(write(tmp_path / "p", LEGACY | files), store)


def test_an_empty_folder_is_no_problem(tmp_path: Path, store: Store) -> None:
    (tmp_path / "p").mkdir()

    with pytest.raises(InvalidInput, match="no test"):
        read_problem(tmp_path / "p", store)


def test_a_package_without_its_data_is_named_as_that(tmp_path: Path, store: Store) -> None:
    files = {"problem.yaml": "problem_format_version: 2025-09\nname: New\n", "submissions/accepted/a.py": ""}
    with pytest.raises(InvalidInput, match="ICPC format, and has no folder data"):
        read_problem(write(tmp_path / "p", files), store)


INI = """; Made by a setter's tool.
[problem]
short-name = A
color = '#1f77b4'
externalid=sum2023
timelimit='2.5'   ; seconds
points = 7
"""


@pytest.mark.parametrize(
    ("files", "time_ms", "title"),
    [
        ({"domjudge-problem.ini": INI}, 2500, "Old One"),
        (
            {"domjudge-problem.ini": 'timelimit = 3\nname="From the ini"\n', "problem.yaml": ""},
            3000,
            "From the ini",
        ),
        ({"domjudge-problem.ini": "color = 12345\n", ".timelimit": "4\n"}, 4000, "Old One"),
        ({"domjudge-problem.ini": "timelimit = 3\n", ".timelimit": "4\n"}, 4000, "Old One"),
        ({"domjudge-problem.ini": "TIMELIMIT='1'\n# timelimit='9'\n"}, 1000, "Old One"),
    ],
)
def test_domjudges_own_file_is_read_as_what_it_is(
    tmp_path: Path, store: Store, files: dict[str, str], time_ms: int, title: str
) -> None:
    package = {name: text for name, text in LEGACY.items() if name != ".timelimit"} | files
    problem = read_problem(write(tmp_path / "p", package), store).problem

    assert (problem.bounds.time_ms, problem.title) == (time_ms, title)


def test_a_package_may_have_domjudges_file_alone(tmp_path: Path, store: Store) -> None:
    files = {name: text for name, text in LEGACY.items() if name not in (".timelimit", "problem.yaml")}
    problem = read_problem(write(tmp_path / "p", files | {"domjudge-problem.ini": INI}), store).problem

    assert (problem.bounds.time_ms, len(list(problem.data.all_cases()))) == (2500, 2)


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("timelimit = soon", "timelimit"),
        ("timelimit = -1", "timelimit"),
        ("special_compare = compare_float", "special_compare"),
        ("special_run = 'talk'", "special_run"),
        ("special_compare_args = 'float_tolerance 1e-6'", "special_compare_args"),
        ("no sense at all", "domjudge-problem.ini"),
        ("timelimit = 1\ntimelimit = 2", "timelimit"),
    ],
)
def test_what_domjudges_file_says_and_we_cannot_do_is_refused(
    tmp_path: Path, store: Store, line: str, field: str
) -> None:
    files = LEGACY | {"domjudge-problem.ini": line + "\n"}
    del files[".timelimit"]
    with pytest.raises(InvalidInput, match=r"domjudge-problem\.ini") as refused:
        read_problem(write(tmp_path / "p", files), store)

    assert refused.value.field == field


def test_a_simple_folder_has_every_limit(tmp_path: Path, store: Store) -> None:
    yaml = "time_limit: 2\nmemory: 64\noutput: 3\n"
    files = {"problem.yaml": yaml, "1.in": "", "1.ans": "", "sample/1.in": "", "sample/1.ans": ""}
    problem = read_problem(write(tmp_path / "simple", files), store).problem
    bounds = problem.bounds

    assert (bounds.time_ms, bounds.memory_kb, bounds.output_kb) == (2000, 65_536, 3072)
    assert {one.name: one.sample for one in problem.data.all_cases()} == {"1": False, "sample/1": True}
    with pytest.raises(InvalidInput, match="limit"):
        read_problem(write(tmp_path / "wrong", files | {"problem.yaml": "output: 0\n"}), store)


NEW = {
    "problem.yaml": "problem_format_version: 2025-09\nname: New\n",
    "data/secret/1.in": "1\n",
    "data/secret/1.ans": "1\n",
    "submissions/accepted/x.py": "print(1)\n",
}


def new(more: str, **files: str) -> dict[str, str]:
    return NEW | {"problem.yaml": NEW["problem.yaml"] + more} | files


UNSUPPORTED = {
    "a version that does not exist": (
        {"problem.yaml": "problem_format_version: 2031-01\nname: x"},
        "2031-01",
    ),
    "a key that is misspelt": ({"problem.yaml": "name: x\nvalidatorflags: exact"}, "validatorflags"),
    "a limit that is misspelt": ({"problem.yaml": "name: x\nlimits: {memory_limit: 3}"}, "memory_limit"),
    "a key of a group": ({"data/secret/testdata.yaml": "acceptscore: 3"}, "acceptscore"),
    "a validator that is not asked": ({"output_validators/v.py": "exit(42)"}, "validation is not custom"),
    "a test outside": ({"data/1.in": "", "data/1.ans": ""}, "is not used"),
    "a test in another folder": ({"data/extra/1.in": "", "data/extra/1.ans": ""}, "is not used"),
    "an answer without its input": ({"data/secret/9.ans": ""}, r"9\.ans has no 9\.in"),
    "a grader that nobody asks": (
        {"problem.yaml": "name: x\ntype: scoring\n", "graders/g.py": ""},
        "no testdata.yaml says grading: custom",
    ),
    "a grader that is not there": (
        {"problem.yaml": "name: x\ntype: scoring\n", "data/secret/testdata.yaml": "grading: custom\n"},
        "graders holds no grader",
    ),
    "a flag of the default grader": ({"data/testdata.yaml": "grader_flags: median"}, "median"),
    "a validator by another name": (
        {
            "problem.yaml": "name: x\nvalidation: custom",
            "output_validators/v.py": "",
            "data/secret/testdata.yaml": "output_validator_flags: {name: w, flags: x}",
        },
        "names the validator 'w'",
    ),
    "included files in no folder": ({"include/a.h": ""}, "include/a.h is in no language"),
    "included files in a folder": ({"include/c/deep/a.h": ""}, "include/c/deep"),
    "languages that nobody has": (new("languages: [cobol]\n"), "none of the languages cobol"),
    "a constant without a value": (new("constants: {a: {tex: 3}}\n"), "constant 'a' has no value"),
    "a group without points": (
        new("type: scoring\n", **{"data/secret/g/1.in": "", "data/secret/g/1.ans": ""})
        | {"data/secret/g/test_group.yaml": "{}", "data/secret/1.in": "", "data/secret/1.ans": ""},
        "needs a max_score",
    ),
    "points without scores": (
        new("", **{"data/secret/test_group.yaml": "max_score: 3"}),
        "max_score is for groups of scoring",
    ),
    "files of another version": (
        new("", **{"data/secret/testdata.yaml": "on_reject: break"}),
        "of the old format",
    ),
    "a new file in the old format": ({"data/secret/test_group.yaml": "max_score: 3"}, "of the new format"),
    "static validation of a group": (
        new("", **{"data/secret/test_group.yaml": "static_validation_score: 3"}),
        "must be pass-fail",
    ),
    "static validation without its validator": (
        new("", **{"data/secret/test_group.yaml": "static_validation_score: pass-fail"}),
        "holds no program",
    ),
    "arguments of no static validation": (
        new("", **{"data/secret/test_group.yaml": "static_validator_args: [a]"}),
        "need a static_validation_score",
    ),
    "more points for the text than there are": (
        new("type: scoring\n", **{"data/secret/test_group.yaml": "static_validation_score: 101"}),
        "more than max_score",
    ),
    "a static validator that nothing asks": ({"static_validator/v.py": ""}, "static_validation_score"),
    "a static validator of answers": (
        new(
            "type: submit-answer\n",
            **{
                "data/secret/test_group.yaml": "static_validation_score: pass-fail",
                "static_validator/v.py": "",
            },
        ),
        "answers are no program",
    ),
    "answers to a conversation": (new("type: [submit-answer, interactive]\n"), "submit-answer"),
    "a folder in a program": (
        {
            "problem.yaml": "name: x\nvalidation: custom",
            "output_validators/v/a.py": "",
            "output_validators/v/deep/b.py": "",
        },
        "deep",
    ),
    "two folders of validators": (
        {
            "problem.yaml": "name: x\nvalidation: custom",
            "output_validators/v.py": "",
            "output_validator/w.py": "",
        },
        "remove one",
    ),
}


@pytest.mark.parametrize("what", UNSUPPORTED)
def test_what_would_be_judged_wrongly_is_refused_by_name(tmp_path: Path, store: Store, what: str) -> None:
    files, named = UNSUPPORTED[what]
    right = {} if "submissions/accepted/x.py" in files else LEGACY
    with pytest.raises(InvalidInput, match=named):
        read_problem(write(tmp_path / "p", right | files), store)


def test_an_answer_without_its_input_is_refused_in_a_simple_folder_too(tmp_path: Path, store: Store) -> None:
    with pytest.raises(InvalidInput, match=r"2\.ans has no 2\.in"):
        read_problem(write(tmp_path / "p", {"1.in": "", "1.ans": "", "2.ans": ""}), store)


def zipped(place: Path, files: dict[str, str]) -> Path:
    with zipfile.ZipFile(place, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return place


def test_a_zip_two_folders_deep_is_the_package_in_it(tmp_path: Path, store: Store) -> None:
    files = {f"contest/old_one/{name}": text for name, text in LEGACY.items()} | {"__MACOSX/x": ""}
    read = read_problem(zipped(tmp_path / "old_one.zip", files), store)

    assert (read.problem.title, len(read.submissions)) == ("Old One", 2)


def test_a_zip_of_several_packages_is_refused(tmp_path: Path, store: Store) -> None:
    files = {f"{one}/{name}": text for one in ("a", "b") for name, text in LEGACY.items()}

    with pytest.raises(InvalidInput, match="lies deeper, in a, b"):
        read_problem(zipped(tmp_path / "both.zip", files), store)


def test_a_folder_of_packages_by_domjudges_file_alone_is_refused_too(tmp_path: Path, store: Store) -> None:
    package = {name: text for name, text in LEGACY.items() if name != "problem.yaml"}
    package |= {"domjudge-problem.ini": INI}
    files = {f"{one}/{name}": text for one in ("a", "b") for name, text in package.items()}
    write(tmp_path / "both", files)

    with pytest.raises(InvalidInput, match="lies deeper, in a, b"):
        read_problem(tmp_path / "both", store)


def test_each_version_has_its_own_defaults(tmp_path: Path, store: Store) -> None:
    grouped = pairs("secret/a/1", "secret/b/1")
    old = {"problem.yaml": "name: Old\n", ".timelimit": "1\n", **grouped}
    draft = {
        "problem.yaml": "problem_format_version: 2023-07-draft\nname: Draft\nlimits: {time_limit: 1}\n",
        "data/secret/a/testdata.yaml": "on_reject: continue\n",
        **grouped,
    }
    new = {"problem.yaml": "problem_format_version: 2025-09\nname: New\nlimits: {time_limit: 1}\n", **grouped}
    one, two, three = (
        read_problem(write(tmp_path / name, files), store).problem
        for name, files in (("old", old), ("draft", draft), ("new", new))
    )

    assert one.data.rules is not None
    assert one.data.rules.stops
    assert [len(group.groups) for group in one.data.groups] == [0, 2]
    assert two.data.rules is not None, "the usual tools grade a draft with the old files as the old format"
    assert three.data.rules is None
    assert [len(group.cases) for group in three.data.groups] == [0, 2]


def test_languages_limits_include_and_attachments_are_kept(tmp_path: Path, store: Store) -> None:
    limits = "limits: {time_limit: 1, code: 10, compilation_time: 99, validation_memory: 3000}\n"
    files = new(
        f"languages: [python3, cpp, cobol]\n{limits}",
        **{
            "include/default/a.txt": "a",
            "include/python3/lib.py": "b",
            "attachments/tool.py": "c",
            "attachments/.hidden": "",
        },
    )
    problem = read_problem(write(tmp_path / "p", files), store).problem

    assert problem.languages == ["cpp", "pypy", "python"]
    assert set(problem.included("pypy")) == set(problem.included("python")) == {"a.txt", "lib.py"}
    assert set(problem.included("cpp")) == {"a.txt"}
    assert store.get(problem.attachments["tool.py"]) == b"c"
    assert set(problem.attachments) == {"tool.py"}
    bounds = problem.bounds
    assert (bounds.code_kb, bounds.compile_ms, bounds.validation_memory_kb) == (10, 99_000, 3_072_000)
    assert problem.included("c").items() <= problem.included("cpp").items()


def test_a_package_without_a_time_limit_says_how_to_infer_one(tmp_path: Path, store: Store) -> None:
    old = LEGACY | {"problem.yaml": "name: x\nlimits: {time_multiplier: 3}\n"}
    del old[".timelimit"]
    first = read_problem(write(tmp_path / "old", old), store)
    second = read_problem(write(tmp_path / "new", new("limits: {time_resolution: 0.5}\n")), store)
    third = read_problem(write(tmp_path / "given", LEGACY), store)

    assert first.timing is not None
    assert second.timing is not None
    assert (first.timing.ac_to_time_limit, first.timing.time_limit_to_tle, first.timing.strict) == (
        3,
        2,
        False,
    )
    assert (second.timing.ac_to_time_limit, second.timing.resolution_seconds) == (2, 0.5)
    assert second.timing.strict
    assert third.timing is None


def test_a_problem_that_needs_nothing_new_is_stored_as_ever(tmp_path: Path, store: Store) -> None:
    """Workers of the version before read it too, and the same package again is the same version."""
    files = {"1.in": "", "1.ans": "", "check.c": "int main(void){}", "problem.yaml": "checker: check.c\n"}
    stored = read_problem(write(tmp_path / "p", files), store).problem.model_dump(mode="json")

    assert set(stored) == {
        "slug",
        "title",
        "bounds",
        "scoring",
        "interactive",
        "flags",
        "validator",
        "data",
        "statement",
    }
    assert set(stored["bounds"]) == {"time_ms", "memory_kb", "output_kb", "passes"}
    assert set(stored["validator"]) == {"protocol", "files", "language"}
    assert set(stored["data"]["cases"][0]) == {"name", "input", "answer", "sample", "flags", "args"}
    assert "rules" not in stored["data"]


def test_what_is_stored_of_a_package_is_read_back(tmp_path: Path, store: Store) -> None:
    files = LEGACY | {
        "problem.yaml": "name: x\ntype: scoring\nvalidation: custom score\n",
        "output_validators/v.py": "",
        "output_validators/w.py": "",
        "data/secret/testdata.yaml": "grading: custom\ngrader_flags: a b\nrange: -inf 7\n",
        "graders/g.py": "",
        "include/default/a.txt": "a",
        "attachments/b": "b",
    }
    problem = read_problem(write(tmp_path / "p", files), store).problem

    stored = problem.model_dump_json()
    assert Problem.model_validate_json(stored).model_dump_json() == stored
    assert problem.validator_scores
    rules = problem.data.groups[1].rules
    assert rules is not None
    assert (rules.grader_flags, rules.least, rules.most) == (["a", "b"], None, 7)


def test_yaml_that_a_program_reads_is_no_yaml_of_the_package(tmp_path: Path, store: Store) -> None:
    files = new("limits: {time_limit: 1}\n", **{"data/secret/1.files/config.yaml": "a: &a [*a"})
    (case,) = read_problem(write(tmp_path / "p", files), store).problem.data.all_cases()

    assert store.get(case.files["config.yaml"]) == b"a: &a [*a"


@pytest.mark.parametrize(
    ("text", "time_ms"), [("short-name = A7\ntimelimit = '2.5'\n", 2500), ("probid=9\ntimelimit=3\n", 3000)]
)
def test_the_time_limit_of_another_judges_file(tmp_path: Path, store: Store, text: str, time_ms: int) -> None:
    files = LEGACY | {"domjudge-problem.ini": text}
    del files[".timelimit"]

    assert read_problem(write(tmp_path / "p", files), store).problem.bounds.time_ms == time_ms
    with pytest.raises(InvalidInput, match="special_run"):
        read_problem(write(tmp_path / "q", files | {"domjudge-problem.ini": "special_run=x\n"}), store)


def test_a_file_that_is_no_program_stops_no_package(tmp_path: Path, store: Store) -> None:
    read = read_problem(write(tmp_path / "p", {**LEGACY, "submissions/accepted/a.out": "ELF"}), store)
    assert {one.name: one.language() for one in read.submissions}["accepted/a.out"] == ""


def test_a_source_url_is_accepted_in_every_version(tmp_path: Path, store: Store) -> None:
    said = (
        "problem_format_version: 2025-09\nname: New\nlimits: {time_limit: 1}\nsource_url: https://a.example\n"
    )
    assert read_problem(write(tmp_path / "p", {**LEGACY, "problem.yaml": said}), store).problem.title == "New"


def test_inputs_in_a_folder_of_an_older_name_must_be_rejected(tmp_path: Path, store: Store) -> None:
    files = {**LEGACY, "data/bad/empty.in": "", "input_validators/v.py": "import sys\nsys.exit(42)\n"}
    read = read_problem(write(tmp_path / "p", files), store)

    assert {one.name: one.valid for one in read.validation.inputs} == {
        "data/sample/1.in": True,
        "data/secret/a.in": True,
        "data/bad/empty.in": False,
    }
    assert [case.name for case in read.problem.data.all_cases()] == ["sample/1", "secret/a"]
