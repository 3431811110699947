"""Of a program and a validator that talk, the one that failed first decides: every time, busy or not."""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencepost_judge._judging import JudgeFault
from fencepost_judge._time_limit import infer
from fencepost_judge.packages import _icpc
from fencepost_judge.packages._reading import read_problem
from tests.integration.judge.judge_site import JudgeSite, open_judge_site
from tests.unit.judge.test_packages import write

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc"),
    pytest.mark.xdist_group("judge_conversation_verdicts"),
]

# Each says three numbers and wants each of them back. When no answer comes, the first gives its verdict, and
# the others fail as programs in their languages do.
C = """
#include <stdio.h>
int main(void) {
  for (int i = 0, x; i < 3; i++) {
    printf("%d\\n", i);
    fflush(stdout);
    if (scanf("%d", &x) != 1 || x != i) return 43;
  }
  return 42;
}
"""
CPP = """
#include <iostream>
int main() {
  std::cin.exceptions(std::ios::failbit | std::ios::badbit | std::ios::eofbit);
  for (int i = 0, x; i < 3; i++) {
    std::cout << i << std::endl;
    std::cin >> x;
    if (x != i) return 43;
  }
  return 42;
}
"""
PYTHON = """
import sys
for i in range(3):
    print(i, flush=True)
    if int(input()) != i:
        sys.exit(43)
sys.exit(42)
"""
VALIDATORS = {"v.c": C, "v.cpp": CPP, "v.py": PYTHON}

ANSWERS = (
    'int x; for (int i = 0; i < {count}; i++) {{ if (scanf("%d", &x) != 1) return 9;'
    ' printf("%d\\n", x); fflush(stdout); }}'
)


def program(body: str) -> str:
    heads = "#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
    return heads + "int main(void) { " + body + " return 0; }\n"


PROGRAMS = {
    "is right": (program(ANSWERS.format(count=3)), "AC"),
    "crashes at once": (program("abort();"), "RE"),
    "crashes in the middle": (program(ANSWERS.format(count=1) + "*(volatile int *)8 = 1;"), "RE"),
    "fails by its exit code": (program(ANSWERS.format(count=2) + "return 3;"), "RE"),
    "leaves early": (program(ANSWERS.format(count=1)), "WA"),
    "closes its pipe first": (program("char c; close(1); while (read(0, &c, 1) > 0) {}"), "WA"),
    "is wrong and crashes": (program('printf("99\\n"); fflush(stdout); abort();'), "WA"),
    "is wrong and meets the end": (
        program('char c; printf("99\\n"); fflush(stdout); while (read(0, &c, 1) > 0) {} return 5;'),
        "WA",
    ),
    "is right and goes on talking": (
        program(ANSWERS.format(count=3) + 'for (int i = 0; i < 50000; i++) printf("%d\\n", i);'),
        "AC",
    ),
}
QUICK = 12
FULL = 200


@pytest.fixture
def repetitions(request: pytest.FixtureRequest) -> int:
    return FULL if request.config.getoption("--full") else QUICK


@pytest.fixture
def busy() -> Iterator[None]:
    """More that wants to run than there are processors."""
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(3 * (os.cpu_count() or 1))]
    yield
    for one in spinning:
        one.kill()
    for one in spinning:
        one.wait()


def package(validator: str, text: str, count: int) -> dict[str, str]:
    """Every test is run, and tells its own verdict."""
    files = {
        "problem.yaml": "problem_format_version: 2023-07\nname: Talk\ntype: [interactive, scoring]\n"
        "limits: {time_limit: 1, memory: 256}\n",
        f"output_validator/{validator}": text,
    }
    for number in range(count):
        files |= {f"data/secret/{number}.in": "0\n", f"data/secret/{number}.ans": "\n"}
    return files


async def verdicts(judge_site: JudgeSite, validator: str, source: str, count: int) -> Counter[str]:
    problem = judge_site.problem(package(validator, VALIDATORS[validator], count))
    got = await judge_site.sentence(problem, "c", source)
    assert got.verdict != "CE", got.message
    return Counter(case.verdict for case in got.cases)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "validator",
    # To the judge the one in C++ is as the one in C; only to compile it takes longer.
    [pytest.param(name, marks=pytest.mark.full) if name == "v.cpp" else name for name in VALIDATORS],
)
@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_conversation_has_one_verdict_however_often_it_is_repeated(
    tmp_path: Path, name: str, validator: str, repetitions: int
) -> None:
    source, verdict = PROGRAMS[name]
    async with open_judge_site(tmp_path) as judge_site:
        assert await verdicts(judge_site, validator, source, repetitions) == {verdict: repetitions}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "validator",
    [name if name == "v.py" else pytest.param(name, marks=pytest.mark.full) for name in VALIDATORS],
)
@pytest.mark.usefixtures("busy")
async def test_a_busy_machine_changes_none_of_them(tmp_path: Path, validator: str, repetitions: int) -> None:
    names = ("crashes in the middle", "leaves early", "is wrong and crashes", "is right and goes on talking")
    async with open_judge_site(tmp_path) as judge_site:
        got = {
            name: await verdicts(judge_site, validator, PROGRAMS[name][0], repetitions // 3) for name in names
        }

    assert got == {name: {PROGRAMS[name][1]: repetitions // 3} for name in names}


BROKEN = {
    "while its partner waits": (
        "v.py",
        "print(0, flush=True)\ninput()\nraise RuntimeError('a bug')\n",
        PROGRAMS["is right"][0],
    ),
    "at the end, when its partner is leaving": (
        "v.py",
        "for i in range(3):\n    print(i, flush=True)\n    input()\nraise RuntimeError('a bug')\n",
        PROGRAMS["is right"][0],
    ),
    "of a wrong answer, when its partner has crashed": (
        "v.c",
        program('int x; if (scanf("%d", &x) == 1) abort(); return 43;'),
        PROGRAMS["is wrong and crashes"][0],
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_fault_of_the_validator_is_told_apart_from_a_partner_that_left(
    tmp_path: Path, name: str, repetitions: int
) -> None:
    validator, text, source = BROKEN[name]
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(package(validator, text, 1))
        for _ in range(repetitions // 4):
            with pytest.raises(JudgeFault, match="validator"):
                await judge_site.sentence(problem, "c", source)


GOES_ON = {
    "problem.yaml": "problem_format_version: 2023-07\nname: Guess\ntype: interactive\n",
    "output_validator/v.c": '#include <stdio.h>\nint main(void) { int x; puts("0"); fflush(stdout);'
    ' return scanf("%d", &x) == 1 && x == 7 ? 42 : 43; }\n',
    "submissions/accepted/seven.c": program('printf("7\\n");'),
    "submissions/wrong_answer/goes_on.c": program('printf("-1\\n"); fflush(stdout); for (;;);'),
} | {f"data/secret/{name}": "0\n" for name in ("1.in", "1.ans", "2.in", "2.ans")}


async def test_what_a_rejected_program_does_later_sets_no_time_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_icpc, "PROVISIONAL_MS", 1500)
    async with open_judge_site(tmp_path) as judge_site:
        read = read_problem(write(tmp_path / "guess", GOES_ON), judge_site.store)
        timing = (await infer(judge_site.judge, read)).timing

    assert timing is not None
    assert timing.slowest == "accepted/seven.c"
    assert [(run.name, run.verdict, run.time_ms) for run in timing.runs][1] == (
        "wrong_answer/goes_on.c",
        "WA",
        0,
    )
