"""Programs and validators that talk, in one pass or several: who ended it, and what they remember."""

import asyncio
from pathlib import Path

import pytest

from fencepost_judge._judging import Judgement
from tests.integration.judge.env import JudgingEnv
from tests.integration.judge.judge_site import open_judge_site
from tests.waiting_for import until

pytestmark = pytest.mark.xdist_group("judge_conversations")

REMEMBERS = """
import sys
from pathlib import Path
folder = Path(sys.argv[3])
notes = folder / "notes" / "passes"
before = int(notes.read_text()) if notes.exists() else 0
given = int(sys.stdin.read())
with (folder / "judgemessage.txt").open("a") as said:
    said.write(f"pass {before}: {given}. ")
if given != before:
    sys.exit(43)
notes.parent.mkdir(exist_ok=True)
notes.write_text(str(before + 1))
if before < 2:
    (folder / "nextpass.in").write_text(f"{before + 1}\\n")
sys.exit(42)
"""

TALKS_TWICE = """
import sys
from pathlib import Path
folder = Path(sys.argv[3])
second = (folder / "second").exists()
print("two" if second else "one", flush=True)
if input() != ("TWO" if second else "ONE"):
    sys.exit(43)
if not second:
    (folder / "second").write_text("")
    (folder / "nextpass.in").write_text("")
sys.exit(42)
"""

INTERACTOR = """
#include <stdio.h>
int main(int c, char **v) {
  FILE *in = fopen(v[1], "r"), *out = fopen(v[2], "w");
  int secret, given;
  if (c < 3 || !in || !out || fscanf(in, "%d", &secret) != 1) return 3;
  printf("%d\\n", secret);
  fflush(stdout);
  if (scanf("%d", &given) != 1) { fprintf(stderr, "nothing came"); return 2; }
  fprintf(stderr, "got %d", given);
  return given == secret * 2 ? 0 : 1;
}
"""

TALKATIVE = """
#include <stdio.h>
int main(void) {
  int given;
  for (int i = 0; i < 20000; i++) { printf("%d\\n", i); fflush(stdout); }
  return scanf("%d", &given) == 1 ? 42 : 43;
}
"""

STRICT = """
#include <stdio.h>
int main(void) {
  int given;
  return scanf("%d", &given) == 1 && given == 1 ? 42 : 43;
}
"""


def package(kinds: str, validator: str, name: str, **more: str) -> dict[str, str]:
    return {
        "problem.yaml": f"problem_format_version: 2023-07-draft\nname: Talk\ntype: [{kinds}]\n"
        "limits: {validation_passes: 3, time_limit: 0.3, memory: 256}\n",
        f"output_validator/{name}": validator,
        "data/secret/1.in": "0\n",
        "data/secret/1.ans": "\n",
        **more,
    }


async def sentences(tmp_path: Path, files: dict[str, str], *programs: str) -> list[Judgement]:
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(files)
        return [await judge_site.sentence(problem, "python", program) for program in programs]


async def test_a_validator_finds_in_the_next_pass_what_it_left_in_the_last(tmp_path: Path) -> None:
    right, wrong = await sentences(
        tmp_path,
        package("multi-pass", REMEMBERS, "v.py"),
        "print(input())\n",
        "print(min(1, int(input())))\n",
    )

    assert (right.verdict, right.cases[0].message) == ("AC", "pass 0: 0. pass 1: 1. pass 2: 2. ")
    assert (wrong.verdict, wrong.message) == ("WA", "pass 0: 0. pass 1: 1. pass 2: 1. ")


async def test_a_conversation_may_have_several_passes(tmp_path: Path) -> None:
    right, wrong = await sentences(
        tmp_path,
        package("interactive, multi-pass", TALKS_TWICE, "v.py"),
        "print(input().upper())\n",
        "print({'one': 'ONE'}.get(input()))\n",
    )

    assert (right.verdict, wrong.verdict) == ("AC", "WA")


async def test_a_testlib_interactor_is_called_as_it_expects(tmp_path: Path) -> None:
    files = {
        "problem.yaml": "name: Old\nvalidation: custom testlib interactive\nlimits: {memory: 256}\n",
        "output_validators/interactor.c": INTERACTOR,
        "data/secret/1.in": "21\n",
        "data/secret/1.ans": "\n",
    }
    # Each reads first: an interactor cannot write to a program that has ended.
    programs = ("print(int(input()) * 2)\n", "input()\nprint(1)\n", "input()\n")
    right, wrong, silent = await sentences(tmp_path, files, *programs)

    assert [one.verdict for one in (right, wrong, silent)] == ["AC", "WA", "PE"]
    assert wrong.message == "got 1"


@pytest.mark.parametrize(("program", "verdict"), [("raise SystemExit(3)\n", "RE"), ("\n", "WA")])
async def test_a_validator_whose_partner_has_left_is_not_the_judges_fault(
    tmp_path: Path, program: str, verdict: str
) -> None:
    (got,) = await sentences(tmp_path, package("interactive", TALKATIVE, "v.c"), program)

    assert got.verdict == verdict


async def test_a_caller_that_is_told_that_it_is_wrong_and_goes_on_for_ever_is_wrong(tmp_path: Path) -> None:
    (got,) = await sentences(
        tmp_path, package("interactive", STRICT, "v.c"), "print(2, flush=True)\nwhile True: pass\n"
    )

    assert got.verdict == "WA"


async def test_a_pair_that_stops_waiting_gives_its_box_back(tmp_path: Path) -> None:
    """One box was taken already, and the other one never came."""
    env = JudgingEnv(tmp_path)
    async with env.boxes(slots=2) as boxes:
        idle = boxes._idle  # pyright: ignore[reportPrivateUsage]
        taken = await idle.get()
        nothing = (None, None)
        waiting = asyncio.create_task(boxes.run_pair(nothing, nothing, None))  # type: ignore[arg-type]
        await until("one box is taken", idle.empty)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        idle.put_nowait(taken)

        assert idle.qsize() == 2
