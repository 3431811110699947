"""Programs and validators of several files, and classes of any name."""

import shutil
from pathlib import Path

import pytest

from tests.integration.judge.judge_site import open_judge_site

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="the boxes need a C compiler: install gcc")

SUM = {"1.in": "1 2\n", "1.ans": "3\n", "problem.yaml": "time_limit: 5\nmemory: 256\n"}
READS = (
    "java.util.Scanner s = new java.util.Scanner(System.in); System.out.println(s.nextInt() + s.nextInt());"
)
MAIN = f"public static void main(String[] x) {{ {READS} }}"


@pytest.mark.parametrize(
    ("sources", "verdict"),
    [
        ({"Main.java": f"class Helper {{}}\npublic class Solution {{ {MAIN} }}"}, "AC"),
        ({"Main.java": f"package a.b;\npublic class Solution {{ {MAIN} }}"}, "AC"),
        ({"A.java": "class A {}", "Z.java": f"public class Z {{ {MAIN} }}"}, "AC"),
        ({"Main.java": f"class A {{ }} class Other {{ {MAIN} }}"}, "AC"),
        ({"Main.java": "public class A { }"}, "CE"),
    ],
    ids=["another name", "a package", "the second file", "not public", "none"],
)
async def test_java_finds_the_class_to_begin_with(
    tmp_path: Path, sources: dict[str, str], verdict: str
) -> None:
    async with open_judge_site(tmp_path) as judge_site:
        if "java" not in judge_site.judge.languages:
            pytest.skip("there is no Java here: install a JDK (Debian: default-jdk-headless)")
        got = await judge_site.judge.judge(
            judge_site.problem(SUM), "java", {name: text.encode() for name, text in sources.items()}
        )

    assert got.verdict == verdict, got
    assert verdict == "AC" or "main" in got.message


@pytest.mark.parametrize("entry", ["Right", "Right.java", "p.Right", "b.java"])
async def test_java_begins_with_the_class_or_the_file_that_its_author_names(
    tmp_path: Path, entry: str
) -> None:
    sources = {"a.java": "package p; public class Main { public static void main(String[] x) {} }"}
    second = "Right.java" if entry == "Right.java" else "b.java"
    sources[second] = f"package p; public class Right {{ {MAIN} }}"
    async with open_judge_site(tmp_path) as judge_site:
        if "java" not in judge_site.judge.languages:
            pytest.skip("there is no Java here: install a JDK (Debian: default-jdk-headless)")
        files = {name: text.encode() for name, text in sources.items()}
        got = await judge_site.judge.judge(judge_site.problem(SUM), "java", files, entry=entry)

    assert got.verdict == "AC", got


@pytest.mark.full
async def test_kotlin_finds_the_class_to_begin_with(tmp_path: Path) -> None:
    """Two files with a main each leave the compiler without an opinion."""
    reads = "val (a, b) = readLine()!!.split(' ').map { it.toInt() }; println(a + b)"
    sources = {"main.kt": f"fun main() {{ {reads} }}", "other.kt": "object O { fun main() {} }"}
    async with open_judge_site(tmp_path) as judge_site:
        if "kotlin" not in judge_site.judge.languages:
            # Known, and rightly not offered here.
            return
        got = await judge_site.judge.judge(
            judge_site.problem(SUM), "kotlin", {name: text.encode() for name, text in sources.items()}
        )

    assert got.verdict == "AC", got


async def test_a_python_program_imports_its_own_modules(tmp_path: Path) -> None:
    sources = {"adding.py": b"def add(a, b): return a + b\n", "solve.py": b"from adding import add\n"}
    sources["solve.py"] += b"print(add(*map(int, input().split())))\n"
    async with open_judge_site(tmp_path) as judge_site:
        got = await judge_site.judge.judge(judge_site.problem(SUM), "python", sources)

    assert got.verdict == "AC", got


async def test_a_python_program_still_sees_nothing_of_the_judges_surroundings(tmp_path: Path) -> None:
    """Neither variables nor packages of a user."""
    source = (
        b"import site, sys\nprint(3 if sys.flags.ignore_environment and not site.ENABLE_USER_SITE else 4)\n"
    )
    async with open_judge_site(tmp_path) as judge_site:
        got = await judge_site.judge.judge(judge_site.problem(SUM), "python", {"main.py": source})

    assert got.verdict == "AC", got


async def test_a_python_validator_imports_its_own_modules(tmp_path: Path) -> None:
    files = {
        "problem.yaml": "problem_format_version: 2023-07\nname: Own\nlimits: {memory: 256, time_limit: 2}\n",
        "output_validator/deciding.py": "def decide(text): return 42 if text.strip() == 'yes' else 43\n",
        "output_validator/validate.py": "import sys\nfrom deciding import decide\n"
        "sys.exit(decide(sys.stdin.read()))\n",
        "data/secret/1.in": "\n",
        "data/secret/1.ans": "\n",
    }
    async with open_judge_site(tmp_path) as judge_site:
        problem = judge_site.problem(files)
        got = [await judge_site.sentence(problem, "python", f"print({word!r})\n") for word in ("yes", "no")]

    assert [one.verdict for one in got] == ["AC", "WA"]
