"""A wrong argument is a type error: mypy says so, and says nothing against the right ones."""

import re
from pathlib import Path

from mypy import api

# No .py: a type checker that looks at all of our files must not find these.
CALLS = Path(__file__).with_name("calls.txt")
WRONG = re.compile(r"# wrong$")


def test_mypy_finds_what_is_wrong_and_nothing_else(tmp_path: Path) -> None:
    wrong = {number for number, line in enumerate(CALLS.read_text().splitlines(), 1) if WRONG.search(line)}
    copy = tmp_path / "calls.py"
    copy.write_text(CALLS.read_text())
    # With the cache of everybody: most of the time would go into reading our own files anew.
    out, err, _ = api.run(["--strict", "--no-error-summary", str(copy)])
    assert err == ""
    found = {int(match[1]) for match in re.finditer(r"calls\.py:(\d+): error", out)}
    assert found == wrong, out
