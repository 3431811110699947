"""Wrong code is rejected by the type checkers, right code is not."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.typing.rejected import Checker, program

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).with_name("accepted.py")


Wrong = dict[str, set[int]]
"""The lines that a checker complains of, by the name of their file."""


def wrong_by_mypy(files: list[Path]) -> Wrong:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {
        file.name: {int(line) for line in re.findall(rf"{re.escape(file.name)}:(\d+): error", done.stdout)}
        for file in files
    }


def wrong_by_pyright(files: list[Path]) -> Wrong:
    pyright = Path(sys.executable).with_name("pyright")
    command = [str(pyright), "--outputjson", "--pythonpath", sys.executable, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["summary"]["filesAnalyzed"] == len(files), done.stdout
    found = [each for each in told["generalDiagnostics"] if each["severity"] == "error"]
    return {
        file.name: {
            each["range"]["start"]["line"] + 1 for each in found if Path(each["file"]).name == file.name
        }
        for file in files
    }


CHECKERS = {"mypy": wrong_by_mypy, "pyright": wrong_by_pyright}


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Checker:
    return cast("Checker", request.param)


@pytest.fixture(scope="module")
def wrong(checker: Checker, tmp_path_factory: pytest.TempPathFactory) -> Wrong:
    """Of what is wrong and of what is right, in one go: most of it is to read what both import."""
    mistakes = tmp_path_factory.mktemp(checker) / "mistakes.py"
    mistakes.write_text(program()[0], encoding="utf-8")
    return CHECKERS[checker]([mistakes, ACCEPTED])


def test_every_mistake_is_rejected(checker: Checker, wrong: Wrong) -> None:
    _, lines = program()

    overlooked = [
        m.what for line, m in lines.items() if checker in m.seen_by and line not in wrong["mistakes.py"]
    ]
    assert overlooked == []
    assert wrong["mistakes.py"] <= set(lines), "the preamble itself is wrong"


def test_what_is_right_is_accepted(wrong: Wrong) -> None:
    assert wrong[ACCEPTED.name] == set()


def test_every_mistake_is_one_line() -> None:
    text, lines = program()
    written = text.splitlines()

    assert {line: written[line - 1].strip() for line in lines} == {
        line: mistake.code for line, mistake in lines.items()
    }
