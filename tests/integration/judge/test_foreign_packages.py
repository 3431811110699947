"""Packages of Polygon, CMS and DMOJ judged for real, each with one of our own."""

import json
import shutil
from pathlib import Path

import pytest

from fencepost_judge._problem import Protocol
from fencepost_judge._test_making import make_tests
from fencepost_judge._time_limit import given
from fencepost_judge._verification import Verification, check_data, verify
from fencepost_judge._verify_report import report
from fencepost_judge.packages._reading import ReadProblem, read_problem
from tests.integration.judge.judge_site import JudgeSite, open_judge_site
from tests.unit.judge.test_foreign_packages import POLYGON_XML
from tests.unit.judge.test_packages import write

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

GENERATOR = '#include <cstdio>\nint main(int c,char**v){printf("%s\\n",v[1]);}\n'
# As a checker of testlib ends: 0 is right, 1 is wrong, 7 gives points.
CHECKER = """#include <cstdio>
int main(int c, char **v) {
  int ours = -1, theirs = -2;
  fscanf(fopen(v[2], "r"), "%d", &ours);
  fscanf(fopen(v[3], "r"), "%d", &theirs);
  if (ours == theirs + 1) { fprintf(stderr, "points 0.5 near"); return 7; }
  return ours != theirs;
}
"""
VALIDATOR = '#include <cstdio>\nint main(){int n;return scanf("%d",&n)!=1||n<0;}\n'
DOUBLE = '#include <cstdio>\nint main(){int n;scanf("%d",&n);printf("%d\\n",2*n);}\n'


async def read_whole(judge_site: JudgeSite, folder: Path) -> ReadProblem:
    return await make_tests(judge_site.judge, read_problem(folder, judge_site.store), judge_site.store)


async def test_a_polygon_package_without_its_tests_is_made_and_judged(tmp_path: Path) -> None:
    tests = (
        '<test cmd="gen 3" method="generated" points="40"/><test cmd="gen 5" method="generated" points="60"/>'
    )
    xml = POLYGON_XML.format(tests=tests, groups="", input_file="", interactor="")
    files = {
        "problem.xml": xml.replace("solutions/slow.py", "solutions/wrong.cpp").replace(
            "python.pypy3", "cpp.g++"
        ),
        "files/testlib.h": "",
        "files/gen.cpp": GENERATOR,
        "files/check.cpp": CHECKER,
        "files/val.cpp": VALIDATOR,
        "solutions/main.cpp": DOUBLE,
        "solutions/wrong.cpp": "int main(){for(;;);}\n",
    }
    async with open_judge_site(tmp_path / "site") as judge_site:
        read = await read_whole(judge_site, write(tmp_path / "p", files))
        data = [one async for one in check_data(judge_site.judge, read)]
        verified = [one async for one in verify(judge_site.judge, read)]
        near = await judge_site.judge.judge(
            read.problem, "cpp", {"main.cpp": DOUBLE.replace("2*n", "2*n+(n==5)").encode()}
        )

    contents = [
        (judge_site.store.get(case.input), judge_site.store.get(case.answer))
        for case in read.problem.data.all_cases()
    ]
    assert contents == [(b"3\n", b"6\n"), (b"5\n", b"10\n")]
    assert [(one.got.verdict, one.kept) for one in verified if one.got] == [("AC", True), ("TLE", True)]
    assert [one.kept for one in data] == [True, True], data
    # A checker's points are points: half of one, not half of the test's.
    assert (near.verdict, near.score) == ("PA", 40.5)
    text = report(Verification(read, data, verified))
    assert "everything as expected" in text
    assert "| main/main.cpp |" in text.replace("\\", "")


async def test_a_checker_of_polygon_reads_what_the_interactor_wrote(tmp_path: Path) -> None:
    # The interactor passes on what it was told; only the checker knows what is right.
    interactor = """#include <cstdio>
int main(int c, char **v) {
  int n, said = -7;
  fscanf(fopen(v[1], "r"), "%d", &n);
  printf("%d\\n", n); fflush(stdout);
  scanf("%d", &said);
  fprintf(fopen(v[2], "w"), "%d\\n", said);
}
"""
    xml = POLYGON_XML.format(
        tests='<test method="manual"/>',
        groups="",
        input_file="",
        interactor='<interactor><source path="files/talk.cpp" type="cpp.g++17"/></interactor>',
    )
    files = {
        "problem.xml": xml,
        "files/testlib.h": "",
        "files/check.cpp": CHECKER,
        "files/talk.cpp": interactor,
        "files/val.cpp": VALIDATOR,
        "solutions/main.cpp": DOUBLE,
        "tests/01": "4\n",
        "tests/01.a": "8\n",
    }
    async with open_judge_site(tmp_path / "site") as judge_site:
        problem = (await read_whole(judge_site, write(tmp_path / "p", files))).problem
        right = await judge_site.judge.judge(problem, "cpp", {"main.cpp": DOUBLE.encode()})
        wrong = await judge_site.judge.judge(
            problem, "cpp", {"main.cpp": DOUBLE.replace("2*n", "9*n").encode()}
        )

    assert (right.verdict, wrong.verdict) == ("AC", "WA")


THROUGH_FILES = (
    '#include <cstdio>\nint main(){int n;FILE*f=fopen("input.txt","r");if(!f)return 3;fscanf(f,"%d",&n);'
    'fprintf(fopen("output.txt","w"),"%d\\n",2*n);}\n'
)


async def test_a_task_of_cms_whose_programs_use_files(tmp_path: Path) -> None:
    checker = """#include <cstdio>
int main(int c, char **v) {
  int theirs, ours = -1;
  fscanf(fopen(v[2], "r"), "%d", &theirs);
  fscanf(fopen(v[3], "r"), "%d", &ours);
  fprintf(stderr, "It is %d.", ours);
  printf(ours == theirs ? "1.0" : ours % 2 ? "0.0" : "0.5");
}
"""
    files = {
        "task.yaml": "name: twice\ntime_limit: 2\nmemory_limit: 1024\nn_input: 2\n",
        "gen/GEN": "#ST: 40\n1\n#ST: 60\n2\n",
        "check/checker.cpp": checker,
        "input/input0.txt": "2\n",
        "output/output0.txt": "4\n",
        "input/input1.txt": "3\n",
        "output/output1.txt": "6\n",
    }
    sources = {
        "right": THROUGH_FILES,
        "half": THROUGH_FILES.replace("2*n", "8"),
        "silent": "int main(){}",
        # What is written to the standard output is no output.
        "elsewhere": THROUGH_FILES.replace('fprintf(fopen("output.txt","w"),', "printf("),
        "large": '#include <cstdio>\nint main(){FILE*f=fopen("output.txt","w");char b[4096]={};'
        "while(fwrite(b,1,4096,f)==4096);}\n",
    }
    async with open_judge_site(tmp_path / "site") as judge_site:
        problem = read_problem(write(tmp_path / "t", files), judge_site.store).problem
        got = {
            name: await judge_site.judge.judge(problem, "cpp", {"main.cpp": text.encode()})
            for name, text in sources.items()
        }

    assert {name: (one.verdict, one.score) for name, one in got.items()} == {
        "right": ("AC", 100),
        "half": ("PA", 50),
        "silent": ("WA", 0),
        "elsewhere": ("WA", 0),
        "large": ("OLE", 0),
    }
    assert got["half"].message == "It is 8."


async def test_a_problem_of_dmoj_is_generated_and_judged_by_batches(tmp_path: Path) -> None:
    init = {
        "generator": "gen.py",
        "checker": {"name": "bridged", "args": {"files": "check.cpp", "type": "default"}},
        "test_cases": [
            {"generator_args": [1], "points": 10},
            {"batched": [{"generator_args": [2]}, {"generator_args": [3]}], "points": 90},
        ],
    }
    files = {
        "init.yml": json.dumps(init),
        "gen.py": "import sys\nn = int(sys.argv[1])\nprint(n)\nprint(2 * n, file=sys.stderr)\n",
        "check.cpp": CHECKER,
    }
    async with open_judge_site(tmp_path / "site") as judge_site:
        problem = given((await read_whole(judge_site, write(tmp_path / "d", files))).problem, 2)
        right = await judge_site.judge.judge(problem, "python", {"main.py": b"print(2 * int(input()))"})
        small = await judge_site.judge.judge(
            problem, "python", {"main.py": b"n = int(input())\nprint(n * n + (n == 1))"}
        )

    assert problem.validator is not None
    assert problem.validator.protocol is Protocol.DMOJ
    assert (right.verdict, right.score) == ("AC", 100)
    assert (small.verdict, small.score) == ("PA", 10)
