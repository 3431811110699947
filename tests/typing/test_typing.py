"""Wrong code is rejected by the type checkers, right code is not."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.typing.rejected import Checker, program

ROOT = Path(__file__).parents[2]
ACCEPTED = Path(__file__).with_name("accepted.py")


def wrong_lines_by_mypy(file: Path) -> set[int]:
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return {int(line) for line in re.findall(rf"{re.escape(file.name)}:(\d+): error", done.stdout)}


def wrong_lines_by_pyright(file: Path) -> set[int]:
    pyright = Path(sys.executable).with_name("pyright")
    command = [str(pyright), "--outputjson", "--pythonpath", sys.executable, str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    return {d["range"]["start"]["line"] + 1 for d in found if d["severity"] == "error"}


CHECKERS = {"mypy": wrong_lines_by_mypy, "pyright": wrong_lines_by_pyright}


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_every_mistake_is_rejected(checker: Checker, tmp_path: Path) -> None:
    text, lines = program()
    file = tmp_path / "mistakes.py"
    file.write_text(text, encoding="utf-8")

    wrong = CHECKERS[checker](file)

    overlooked = [m.what for line, m in lines.items() if checker in m.seen_by and line not in wrong]
    assert overlooked == []
    assert wrong <= set(lines), "the preamble itself is wrong"


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_what_is_right_is_accepted(checker: Checker) -> None:
    assert CHECKERS[checker](ACCEPTED) == set()


def test_every_mistake_is_one_line() -> None:
    text, lines = program()
    written = text.splitlines()

    assert {line: written[line - 1].strip() for line in lines} == {
        line: mistake.code for line, mistake in lines.items()
    }
