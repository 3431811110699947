"""Submissions in every language, hostile compilations, checkers, and the sample problems."""

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from fencepost_judge._grading import CaseResult
from fencepost_judge._judging import Judge, JudgeFault
from fencepost_judge._verification import verify
from fencepost_judge.packages._reading import read_problem
from tests.integration.judge.judge_site import SAMPLES, open_judge_site
from tests.integration.judge.programs import BROKEN, FAILING, HUNGRY, SUMS

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

SUM = {
    "1.in": "1 2\n",
    "1.ans": "3\n",
    "2.in": "40 2\n",
    "2.ans": "42\n",
    "problem.yaml": "time_limit: 5\nmemory: 128\n",
}
LANGUAGES = sorted(SUMS)


@pytest.mark.parametrize(
    "language",
    # A compiler that takes ten seconds is for the long run.
    [name if name != "kotlin" else pytest.param(name, marks=pytest.mark.full) for name in LANGUAGES],
)
async def test_a_right_program_is_accepted_in_every_language_of_this_machine(
    tmp_path: Path, language: str
) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(SUM)
        if language not in judge_site.judge.languages:
            # Known, and rightly not offered here.
            assert language in SUMS
            return
        got = await judge_site.sentence(problem, language, SUMS[language])

    assert (got.verdict, [case.verdict for case in got.cases]) == ("AC", ["AC", "AC"]), got
    assert got.mem_kb > 0


async def test_tests_of_one_submission_run_beside_each_other_where_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_case = Judge._case  # pyright: ignore[reportPrivateUsage]
    met = asyncio.Barrier(2)

    async def case_of_two(*given: Any) -> CaseResult:
        await met.wait()
        return await one_case(*given)

    monkeypatch.setattr(Judge, "_case", case_of_two)
    async with open_judge_site(tmp_path, parallel_tests=2) as judge_site, asyncio.timeout(60):
        problem = judge_site.problem(
            {**SUM, "3.in": "1 1\n", "3.ans": "2\n", "4.in": "2 2\n", "4.ans": "5\n"}
        )
        got = await judge_site.sentence(problem, "c", SUMS["c"])

    assert (got.verdict, [case.verdict for case in got.cases]) == ("WA", ["AC", "AC", "AC", "WA"]), got


@pytest.mark.parametrize(
    "language",
    [name if name in ("c", "python") else pytest.param(name, marks=pytest.mark.full) for name in LANGUAGES],
)
async def test_wrong_programs_get_what_they_should_in_every_language(tmp_path: Path, language: str) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(SUM)
        if language not in judge_site.judge.languages:
            return
        broken = await judge_site.sentence(problem, language, BROKEN[language])
        failing = await judge_site.sentence(problem, language, FAILING[language])
        hungry = await judge_site.sentence(problem, language, HUNGRY[language])

    assert (broken.verdict, failing.verdict, hungry.verdict) == ("CE", "RE", "MLE"), hungry
    assert "/app" not in broken.message
    assert "<string>" not in broken.message, "only we wrote that line"
    assert len(broken.message) > 5


@pytest.mark.parametrize(
    ("language", "source"),
    [
        ("c", '#include "/dev/zero"\nint main(void){}'),
        ("c", '#include "/etc/shadow"\nint main(void){}'),
        ("c", '#include "/proc/1/environ"\nint main(void){}'),
        ("c", '#include "/workspace/x"\nint main(void){}'),
        pytest.param("c", "#include __FILE__\n#include __FILE__\n", marks=pytest.mark.full),
        ("c", "char x[1ul<<40]={1};int main(void){}"),
        ("c", "#define A(x) x x x x x x x x\n" + "A(" * 40 + "1" + ")" * 40),
        (
            "cpp",
            "template<int N> struct F{static const long v=F<N-1>::v+F<N-2>::v+F<N/2>::v;};int x=F<90000>::v;",
        ),
        pytest.param("cpp", "int main(){" + "[](){" * 400 + "(" * 100_000, marks=pytest.mark.full),
    ],
)
async def test_a_hostile_compilation_is_a_compile_error_and_nothing_is_left(
    tmp_path: Path, language: str, source: str
) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        if language not in judge_site.judge.languages:
            return
        got = await judge_site.sentence(judge_site.problem(SUM), language, source)
        left = list((tmp_path / "workspace").glob("*/apps/*"))

    assert got.verdict == "CE", got
    assert "root:" not in got.message
    assert left == []
    assert list((tmp_path / "workspace").iterdir()) == []


async def test_the_assembler_cannot_pull_in_a_file_of_the_host(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("launch code")
    source = f'__asm__(".incbin \\"{secret}\\"");int main(void){{}}'
    async with open_judge_site(tmp_path) as judge_site:
        got = await judge_site.sentence(judge_site.problem(SUM), "c", source)

    assert got.verdict == "CE"
    assert "launch" not in got.message


async def test_flags_and_presentation_errors(tmp_path: Path) -> None:
    files = SUM | {"problem.yaml": "flags: [presentation_errors]\n"}
    async with open_judge_site(tmp_path) as judge_site:
        got = await judge_site.sentence(
            judge_site.problem(files), "python", "print(sum(map(int, input().split())), '\\n')\n"
        )

    assert got.verdict == "PE"


CHECKER = """
#include <stdio.h>
int main(int c, char **v) {
  FILE *out = fopen(v[2], "r"), *ans = fopen(v[3], "r");
  int a, b;
  if (c != 4 || !ans || fscanf(ans, "%d", &b) != 1) return 3;
  if (fscanf(out, "%d", &a) != 1) { fprintf(stderr, "no number"); return 2; }
  if (a == -1) { fprintf(stderr, "points 0.5"); return 7; }
  fprintf(stderr, "got %d", a);
  return a == b ? 0 : 1;
}
"""


@pytest.mark.parametrize(
    ("output", "verdict", "message"),
    [("3", "AC", ""), ("4", "WA", "got 4"), ("x", "PE", "no number"), ("-1", "PA", "points 0.5")],
)
async def test_a_testlib_checker_decides(tmp_path: Path, output: str, verdict: str, message: str) -> None:
    files = {"1.in": "1 2\n", "1.ans": "3\n", "check.c": CHECKER, "problem.yaml": "checker: check.c\n"}
    async with open_judge_site(tmp_path) as judge_site:
        got = await judge_site.sentence(judge_site.problem(files), "python", f"print({output!r})\n")

    assert (got.verdict, got.message) == (verdict, message)


MULTIPASS = """
import sys
from pathlib import Path
n = int(Path(sys.argv[1]).read_text())
given = int(sys.stdin.read())
if given != n * 2:
    Path(sys.argv[3], "judgemessage.txt").write_text(f"{given} is not twice {n}")
    sys.exit(43)
if given < 8:
    Path(sys.argv[3], "nextpass.in").write_text(f"{given}\\n")
sys.exit(42)
"""


def multipass(passes: int) -> dict[str, str]:
    return {
        "problem.yaml": "problem_format_version: 2023-07-draft\nname: Twice\ntype: multi-pass\n"
        f"limits: {{validation_passes: {passes}, memory: 256}}\n",
        "output_validator/twice.py": MULTIPASS,
        "data/secret/1.in": "1\n",
        "data/secret/1.ans": "\n",
    }


async def test_a_program_is_run_again_on_what_the_validator_hands_over(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(multipass(3))
        right = await judge_site.sentence(problem, "python", "print(int(input()) * 2)\n")
        wrong = await judge_site.sentence(problem, "python", "print(min(int(input()) * 2, 4))\n")
        too_few = judge_site.problem(multipass(2))
        with pytest.raises(JudgeFault, match="more passes"):
            await judge_site.sentence(too_few, "python", "print(int(input()) * 2)\n")

    assert (right.verdict, wrong.verdict, wrong.message) == ("AC", "WA", "4 is not twice 4")


async def test_a_validator_that_crashes_is_the_judges_fault_and_not_the_submissions(tmp_path: Path) -> None:
    files = {
        "1.in": "",
        "1.ans": "",
        "check.c": "int main(void){*(volatile int*)8=1;}",
        "problem.yaml": "checker: check.c\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        with pytest.raises(JudgeFault, match="validator"):
            await judge_site.sentence(judge_site.problem(files), "python", "print(1)\n")


async def test_data_that_is_gone_is_the_judges_fault(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(SUM)
        shutil.rmtree(judge_site.store.place)
        with pytest.raises(JudgeFault, match="data"):
            await judge_site.sentence(problem, "python", SUMS["python"])


async def test_a_broken_box_is_the_judges_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "box"
    script.write_text("#!/bin/sh\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr("fencepost_judge.sandbox._box_binary.find", lambda: script)
    async with open_judge_site(tmp_path / "judge") as judge_site:
        with pytest.raises(JudgeFault, match="protocol"):
            await judge_site.sentence(judge_site.problem(SUM), "python", SUMS["python"])


async def test_progress_is_told_test_by_test(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    async def watch(results: Sequence[CaseResult], count: int) -> None:
        seen.append((len(results), count))

    async with open_judge_site(tmp_path) as judge_site:
        await judge_site.judge.judge(
            judge_site.problem(SUM), "python", {"main.py": SUMS["python"].encode()}, progress=watch
        )

    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize("sample", sorted(path.name for path in SAMPLES.iterdir()))
async def test_the_samples_keep_their_word(
    tmp_path: Path, sample: str, request: pytest.FixtureRequest
) -> None:
    """Without --full only what takes no time limit to find out."""
    slow = ("time_limit_exceeded/", "partially_accepted/")
    async with open_judge_site(tmp_path) as judge_site:
        read = read_problem(SAMPLES / sample, judge_site.store)
        if not request.config.getoption("--full"):
            quick = tuple(one for one in read.submissions if not one.name.startswith(slow))
            read = type(read)(read.problem, quick)
        verified = [one async for one in verify(judge_site.judge, read)]

    assert len(verified) >= 3
    assert [
        (one.submission.name, one.got and one.got.verdict, one.fault) for one in verified if not one.kept
    ] == []


async def test_nothing_is_left_in_the_workspace(tmp_path: Path) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        await judge_site.sentence(judge_site.problem(SUM), "python", SUMS["python"])
        apps = list((tmp_path / "workspace").glob("*/apps/*"))

    assert apps == []
    assert list((tmp_path / "workspace").iterdir()) == []


LOOKS_FOR_THE_HOST = """
import os
shown = [os.readlink(f"/proc/self/fd/{number}") for number in range(3)]
for name in ("mountinfo", "mounts", "cgroup", "maps", "cmdline", "environ"):
    shown.append(open(f"/proc/self/{name}").read())
text = "\\n".join(shown)
print("HOST" if "judge-" in text or HERE in text or "fencepost" in text else sum(map(int, input().split())))
"""


async def test_a_submission_learns_no_path_of_the_host_from_proc(tmp_path: Path) -> None:
    """Its input is a file of the judge's folder, and so is its output."""
    source = LOOKS_FOR_THE_HOST.replace("HERE", repr(str(tmp_path)))
    async with open_judge_site(tmp_path) as judge_site:
        judged = await judge_site.sentence(judge_site.problem(SUM), "python", source)

    assert judged.verdict == "AC", judged
