"""What a package asks for beyond inputs and answers, judged for real: each with a package of our own."""

import shutil
from pathlib import Path

import pytest

from fencepost_judge._judging import DataAway, JudgeFault, Judgement
from fencepost_judge._store import Store, StoreUnavailable
from fencepost_judge._verification import check_data, verify
from fencepost_judge.packages._reading import read_problem
from tests.integration.judge.judge_site import JudgeSite, open_judge_site
from tests.unit.judge.test_packages import write

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

OLD = "name: Old\nlimits: {memory: 256, time_limit: 5}\n"
NEW = "problem_format_version: 2025-09\nname: New\nlimits: {memory: 256, time_limit: 5}\n"
ECHO = "print(input())\n"


def own_names(*names: str) -> dict[str, str]:
    """Each wants its own name back."""
    return {
        f"data/{name}{ending}": f"{name.rpartition('/')[2]}\n" for name in names for ending in (".in", ".ans")
    }


async def judged(
    judge_site: JudgeSite, files: dict[str, str], source: str, language: str = "python"
) -> Judgement:
    name = {"python": "main.py", "c": "main.c", "cpp": "main.cpp"}[language]
    return await judge_site.judge.judge(judge_site.problem(files), language, {name: source.encode()})


async def verified(judge_site: JudgeSite, folder: Path, files: dict[str, str]) -> dict[str, bool | None]:
    read = read_problem(write(folder, files), judge_site.store)
    return {one.submission.name: one.kept async for one in verify(judge_site.judge, read)}


async def test_included_files_are_compiled_with_every_program_and_overwrite_its_own(tmp_path: Path) -> None:
    files = {
        "problem.yaml": OLD,
        "include/c/answer.h": "#define ANSWER 42\n",
        "include/c/driver.c": "#include <stdio.h>\nint solve(void);\n"
        'int main(void){printf("%d", solve());}\n',
        "include/cobol/x.cob": "",
        "data/secret/1.in": "",
        "data/secret/1.ans": "42\n",
    }
    source = '#include "answer.h"\nint solve(void){return ANSWER;}\n'
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(files)
        right = await judge_site.judge.judge(problem, "c", {"main.c": source.encode()})
        cheat = await judge_site.judge.judge(
            problem, "c", {"main.c": source.encode(), "answer.h": b"#define ANSWER 1\n"}
        )

    assert (right.verdict, cheat.verdict) == ("AC", "AC"), right.message


async def test_an_included_main_file_begins_and_included_data_lie_where_the_program_runs(
    tmp_path: Path,
) -> None:
    files = {
        "problem.yaml": NEW,
        "include/default/words.txt": "from a file\n",
        "include/python3/__main__.py": "print(open('words.txt').read())\n",
        "data/secret/1.in": "",
        "data/secret/1.ans": "from a file\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        driven = await judged(judge_site, files, "print('mine')\n")
        compiled = await judged(
            judge_site,
            files,
            '#include <stdio.h>\nint main(void){int c;FILE*f=fopen("words.txt","r");'
            "while((c=getc(f))>=0)putchar(c);}\n",
            "c",
        )

    assert (driven.verdict, compiled.verdict) == ("AC", "AC"), (driven, compiled)


async def test_files_of_a_test_lie_where_the_program_runs(tmp_path: Path) -> None:
    files = {
        "problem.yaml": NEW,
        **own_names("secret/1", "secret/2"),
        "data/secret/1.files/given.txt": "1\n",
        "data/secret/2.files/given.txt": "2\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        got = await judged(judge_site, files, "print(open('given.txt').read())\n")

    assert got.verdict == "AC", got


GRADER = """
import sys
lines = [line.split() for line in sys.stdin]
good = sum(word == "AC" for word, _ in lines)
print("AC" if good else "WA", 100 * good / len(lines) if "percent" in sys.argv else good)
"""
SCORED = {
    "problem.yaml": "name: Old\ntype: scoring\nlimits: {memory: 256, time_limit: 5}\n",
    "data/testdata.yaml": "on_reject: continue\ngrader_flags: ignore_sample\n",
    **own_names("sample/s", "secret/a", "secret/b", "secret/c", "secret/d"),
}
THREE = "x = input()\nprint(x if x != 'd' else 'no')\n"


async def test_a_grader_of_the_package_decides_about_verdict_and_score(tmp_path: Path) -> None:
    files = SCORED | {
        "data/secret/testdata.yaml": "grading: custom\ngrader_flags: percent\nrange: 0 100\n",
        "graders/percent.py": GRADER,
    }
    async with open_judge_site(tmp_path) as judge_site:
        whole = await judged(judge_site, files, ECHO)
        part = await judged(judge_site, files, THREE)
        nothing = await judged(judge_site, files, "print('no')\n")

    assert (whole.verdict, whole.score) == ("AC", 100)
    assert (part.verdict, part.score, part.points) == ("PA", 75, {"data": 75})
    assert (nothing.verdict, nothing.score) == ("WA", 0)


@pytest.mark.parametrize("said", ["print('AC')", "print('OK 5')", "print('AC nan')", "raise SystemExit(3)"])
async def test_a_grader_that_fails_is_the_judges_fault(tmp_path: Path, said: str) -> None:
    files = SCORED | {"data/secret/testdata.yaml": "grading: custom\n", "graders/g.py": f"{said}\n"}
    async with open_judge_site(tmp_path) as judge_site:
        with pytest.raises(JudgeFault, match="grader"):
            await judged(judge_site, files, ECHO)


@pytest.mark.parametrize(
    ("described", "verdict", "score"),
    [
        ("on_reject: continue\n", "WA", 0),
        ("on_reject: continue\ngrader_flags: always_accept\n", "PA", 3),
        ("on_reject: continue\ngrader_flags: accept_if_any_accepted\n", "PA", 3),
        ("on_reject: continue\ngrader_flags: always_accept max\n", "AC", 1),
        ("on_reject: continue\ngrader_flags: always_accept\nreject_score: 0.5\naccept_score: 2\n", "PA", 6.5),
        ("grader_flags: always_accept\nrange: 0 3\n", "AC", 3),
    ],
)
async def test_modes_of_the_default_grader_count(
    tmp_path: Path, described: str, verdict: str, score: float
) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        got = await judged(judge_site, SCORED | {"data/secret/testdata.yaml": described}, THREE)

    assert (got.verdict, got.score) == (verdict, score)


LATE = "x = input()\nif x == 'a': print('no')\nif x == 'b': raise SystemExit(1)\nif x > 'b': print(x)\n"


async def test_in_the_old_format_a_rejected_test_ends_its_group_unless_it_says_otherwise(
    tmp_path: Path,
) -> None:
    files = {"problem.yaml": OLD, **own_names("secret/a", "secret/b", "secret/c")}
    async with open_judge_site(tmp_path, parallel_tests=1) as judge_site:
        stopped = await judged(judge_site, files, LATE)
        went_on = await judged(judge_site, files | {"data/testdata.yaml": "on_reject: continue\n"}, LATE)
        first = await judged(
            judge_site,
            files | {"data/testdata.yaml": "on_reject: continue\ngrader_flags: first_error\n"},
            LATE,
        )

    assert (stopped.verdict, [case.verdict for case in stopped.cases]) == ("WA", ["WA", "SK", "SK"])
    # The worst of them, by the format's order.
    assert (went_on.verdict, [case.verdict for case in went_on.cases]) == ("RE", ["WA", "RE", "AC"])
    assert first.verdict == "WA"


def validator(condition: str) -> str:
    return f"import sys\nsaid = sys.stdin.read().strip()\nsys.exit(42 if {condition} else 43)\n"


async def test_every_validator_of_several_must_be_content(tmp_path: Path) -> None:
    files = {
        "problem.yaml": OLD + "validation: custom\n",
        **own_names("secret/1"),
        "output_validators/even.py": validator("int(said) % 2 == 0"),
        "output_validators/small/small.py": validator("int(said) < 10"),
    }
    async with open_judge_site(tmp_path) as judge_site:
        both, odd, large = [await judged(judge_site, files, f"print({one})\n") for one in (4, 5, 12)]

    assert [one.verdict for one in (both, odd, large)] == ["AC", "WA", "WA"]


async def test_a_group_may_ask_one_of_several_validators_by_its_name(tmp_path: Path) -> None:
    files = {
        "problem.yaml": OLD + "validation: custom\n",
        **own_names("secret/g/1"),
        "data/secret/g/testdata.yaml": "output_validator_flags: {name: even, flags: x}\n",
        "output_validators/even.py": validator("int(said) % 2 == 0 and sys.argv[4:] == ['x']"),
        "output_validators/small.py": validator("int(said) < 10"),
    }
    async with open_judge_site(tmp_path) as judge_site:
        large, odd = [await judged(judge_site, files, f"print({one})\n") for one in (12, 5)]

    assert [one.verdict for one in (large, odd)] == ["AC", "WA"]


async def test_a_validator_is_built_and_run_by_its_scripts(tmp_path: Path) -> None:
    files = {
        "problem.yaml": OLD + "validation: custom\n",
        **own_names("secret/1"),
        "output_validators/v/build": "#!/bin/sh\ncc -o checker check.txt.c\n",
        "output_validators/v/run": '#!/bin/sh\nexec "$(dirname "$0")/checker" "$@"\n',
        "output_validators/v/check.txt.c": "#include <stdio.h>\n"
        'int main(int c,char**v){int n;return scanf("%d",&n)==1&&n==7?42:43;}\n',
    }
    async with open_judge_site(tmp_path) as judge_site:
        right, wrong = [await judged(judge_site, files, f"print({one})\n") for one in (7, 8)]

    assert (right.verdict, wrong.verdict) == ("AC", "WA")


async def test_a_validator_may_be_a_folder_of_python_files(tmp_path: Path) -> None:
    files = {
        "problem.yaml": NEW,
        **own_names("secret/1"),
        "output_validator/__init__.py": "",
        "output_validator/__main__.py": validator("said == '7'"),
    }
    async with open_judge_site(tmp_path) as judge_site:
        right, wrong = [await judged(judge_site, files, f"print({one})\n") for one in (7, 8)]

    assert (right.verdict, wrong.verdict) == ("AC", "WA")


async def test_constants_stand_in_validators_and_groups_and_solutions(tmp_path: Path) -> None:
    files = {
        "problem.yaml": NEW + "constants: {most: 7, word: {value: yes it is, tex: 'no'}}\n",
        "data/secret/1.in": "{{most}}\n",
        "data/secret/1.ans": "\n",
        "data/secret/test_group.yaml": "output_validator_args: ['{{most}}']\n",
        "output_validator/v.py": validator("said == sys.argv[4] == '{{most}}' == str({{most.value}})"),
        "statement/problem.en.md": "At most {{most}}, {{word.tex}}, {{unknown}}.\n",
        "submissions/accepted/a.py": "print({{most}})\n",
        "submissions/wrong_answer/input.py": "print(input())\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        kept = await verified(judge_site, tmp_path / "p", files)
        statement = judge_site.problem(files).statement

    assert kept == {"accepted/a.py": True, "wrong_answer/input.py": True}
    assert statement == "At most 7, no, {{unknown}}.\n"


EXPECTING = """
accepted/odd.txt.py: {language: python3}
mixed/begins:
  entrypoint: second.py
  permitted: [AC]
mixed/*.py:
  permitted: [AC, WA]
  required: [WA]
  secret/{a,b}: {permitted: [AC]}
  secret/c*: {permitted: [WA], message: differs}
time_limit_exceeded: {permitted: [AC, RTE], required: [RTE]}
"""


async def test_what_is_said_of_the_jurys_submissions_is_asked_of_each_test(tmp_path: Path) -> None:
    names = own_names("secret/a", "secret/b", "secret/c1", "secret/d")
    wrong = "x = input()\nprint('no' if x in {} else x)\n"
    files = {
        "problem.yaml": NEW,
        **names,
        "output_validator/v.py": "import sys, pathlib\n"
        "if sys.stdin.read() == open(sys.argv[2]).read(): sys.exit(42)\n"
        "pathlib.Path(sys.argv[3], 'judgemessage.txt').write_text('it differs')\nsys.exit(43)\n",
        "submissions/submissions.yaml": EXPECTING,
        "submissions/accepted/odd.txt.py": ECHO,
        "submissions/mixed/good.py": wrong.format("['c1']"),
        "submissions/mixed/also_d.py": wrong.format("['c1', 'd']"),
        "submissions/mixed/bad.py": wrong.format("['a', 'c1']"),
        "submissions/mixed/right.py": ECHO,
        "submissions/mixed/begins/first.py": "print('no')\n",
        "submissions/mixed/begins/second.py": ECHO,
        "submissions/time_limit_exceeded/crashes.py": "raise SystemExit(1)\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        kept = await verified(judge_site, tmp_path / "p", files)

    assert kept == {
        "accepted/odd.txt.py": True,
        "mixed/good.py": True,
        "mixed/also_d.py": True,
        "mixed/bad.py": False,
        "mixed/right.py": False,
        "mixed/begins": True,
        "time_limit_exceeded/crashes.py": True,
    }


async def test_a_compiler_and_a_validator_have_what_the_package_guarantees_them(tmp_path: Path) -> None:
    hungry = "import sys\nx = bytearray(1200 << 20)\nsys.exit(42)\n"
    files = {
        "problem.yaml": OLD + "validation: custom\n",
        **own_names("secret/1"),
        "output_validators/v.py": hungry,
    }
    more = files["problem.yaml"].replace("{memory", "{validation_memory: 2048, memory")
    async with open_judge_site(tmp_path) as judge_site:
        with pytest.raises(JudgeFault, match="validator"):
            await judged(judge_site, files, ECHO)
        got = await judged(judge_site, files | {"problem.yaml": more}, ECHO)

    assert got.verdict == "AC"


async def test_a_packages_data_are_checked_by_its_own_validators(tmp_path: Path) -> None:
    small = "import sys\nn = int(input())\nsys.exit(42 if n <= int(sys.argv[1]) else 1)\n"
    files = {
        "problem.yaml": NEW + "constants: {odd: 1}\n",
        "input_validators/small.py": small,
        "input_validators/odd/odd.py": "import sys\nsys.exit(42 if int(input()) % 2 == {{odd}} else 43)\n",
        "input_validators/format.ctd": "INTEGER(1,9)\n",
        "data/secret/test_group.yaml": "input_validator_args: {small: ['9']}\n",
        "data/invalid_input/test_group.yaml": "input_validator_args: {small: ['9']}\n",
        "data/invalid_output/test_group.yaml": "input_validator_args: {small: ['9']}\n",
        "data/valid_output/test_group.yaml": "input_validator_args: {small: ['9']}\n",
        **own_names("secret/3", "secret/7", "secret/11", "invalid_output/5", "valid_output/5"),
        "data/invalid_output/5.out": "6\n",
        "data/valid_output/5.out": "6\n",
        "data/invalid_input/4.in": "4\n",
        "data/invalid_input/9.in": "9\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        read = read_problem(write(tmp_path / "p", files), judge_site.store)
        found = {one.name: (one.kept, one.why) async for one in check_data(judge_site.judge, read)}

    assert [case.name for case in read.problem.data.all_cases()] == ["secret/11", "secret/3", "secret/7"]
    assert found.pop("format.ctd") == (None, "it needs a tool that is not installed")
    assert {name: kept for name, (kept, _) in found.items()} == {
        "data/secret/11.in": False,
        "data/secret/3.in": True,
        "data/secret/7.in": True,
        "data/invalid_input/4.in": True,
        "data/invalid_input/9.in": False,
        "data/invalid_output/5.in": True,
        "data/valid_output/5.in": True,
        "data/invalid_output/5.out": True,
        "data/valid_output/5.out": False,
    }
    assert "small rejects it" in found["data/secret/11.in"][1]


async def test_included_files_that_cannot_be_reached_are_waited_for_as_tests_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "problem.yaml": "problem_format_version: 2025-09\nname: Own\nlimits: {time_limit: 1}\n",
        "include/python3/lib.py": "x = 1\n",
        "data/secret/1.in": "\n",
        "data/secret/1.ans": "1\n",
    }

    def away(store: Store, digest: str) -> bytes:
        raise StoreUnavailable("The store is away.")

    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(files)
        monkeypatch.setattr(Store, "get", away)
        with pytest.raises(DataAway):
            await judge_site.sentence(problem, "python", "from lib import x\nprint(x)\n")
        monkeypatch.undo()
        got = await judge_site.sentence(problem, "python", "from lib import x\nprint(x)\n")

    assert got.verdict == "AC", got
