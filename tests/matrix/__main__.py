"""python -m tests.matrix [--only TEXT] [arguments for pytest]"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import IO

from tests.matrix.cells import Cell, Missing, plan

FAILED = 1


@dataclass(frozen=True)
class Result:
    """How one cell ended."""

    cell: Cell
    passed: bool
    summary: str
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("--only", default="", help="only the cells whose name has this text in it")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    options, pytest_arguments = parser.parse_known_args()
    cells, missing = plan()
    cells = [cell for cell in cells if options.only.lower() in cell.name.lower()]
    results = [] if options.list else [run(cell, pytest_arguments) for cell in cells]
    write(report(results, missing) if results else "\n".join(cell.name for cell in cells))
    return FAILED if any(not result.passed for result in results) else 0


def run(cell: Cell, pytest_arguments: list[str]) -> Result:
    """One cell in a process of its own: its servers are chosen by its environment."""
    write(f"== {cell.name}")
    begun = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *cell.folders(), *pytest_arguments]
    with subprocess.Popen(
        command, env={**os.environ, **cell.environment}, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        summary = _follow(program.stdout)
    return Result(cell, program.returncode == 0, summary, time.monotonic() - begun)


def _follow(output: IO[str]) -> str:
    """Pass everything on; the last line is the summary."""
    last = ""
    for line in output:
        write(line.rstrip("\n"))
        last = line.strip().strip("= ") or last
    return last


def report(results: list[Result], missing: list[Missing]) -> str:
    """The table of docs/reference/compatibility.md."""
    rows = ["| servers | result | seconds |", "|---|---|---|"]
    rows += [
        f"| {one.cell.name} | {'passed' if one.passed else 'FAILED'}: {one.summary} | {one.seconds:.0f} |"
        for one in results
    ]
    rows += [f"| {one.name} | not run: {one.remedy} | |" for one in missing]
    return "\n".join(rows)


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
