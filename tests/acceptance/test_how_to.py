"""The page for users runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "test-your-own-code.md"
BLOCK = re.compile(r"```\w+\n# (?P<file>[\w.]+)\n(?P<text>.*?)```", re.DOTALL)


def test_the_page_about_testing_passes_its_own_tests(tmp_path: Path) -> None:
    blocks = list(BLOCK.finditer(PAGE.read_text()))
    assert [block["file"] for block in blocks] == ["conftest.py", "game.py", "test_game.py", "pytest.ini"]
    for block in blocks:
        (tmp_path / block["file"]).write_text(block["text"])
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-W",
        "error",
    ]
    run = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "4 passed" in run.stdout
