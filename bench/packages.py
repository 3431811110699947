"""`python -m bench.packages FOLDER...`: how many expected verdicts the problem packages in the folders get.

Every package below a folder that has jury submissions is verified by `fencepost judge verify`, each in a
process of its own, and the answer is kept in `--keep`; a package that was verified already is not verified
again, so that a run can be stopped and continued. At the end a table says what was judged, what was refused
and why, and every verdict that is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.report import DIRECTORY

JURY = {
    "problem.yaml": "submissions",
    "domjudge-problem.ini": "submissions",
    "problem.xml": "solutions",
    "task.yaml": "sol",
}
"""What describes a package, and the folder beside it with the jury's submissions. Those of DMOJ have none."""
Answer = dict[str, Any]


def packages(folder: Path) -> Iterator[Path]:
    """Folders with a description and submissions of the jury."""
    found = {
        path.parent
        for description, submissions in JURY.items()
        for path in folder.rglob(description)
        if (path.parent / submissions).is_dir()
    }
    yield from sorted(found)


def verified(package: Path, kept: Path, seconds: float) -> Answer:
    """What `judge verify` says; of a package that it refuses, why."""
    if kept.is_file():
        found: Answer = json.loads(kept.read_text())
        return found
    command = [str(Path(sys.executable).with_name("fencepost")), "judge", "verify", "--json", str(package)]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"refused": f"not verified within {seconds:.0f} s"}
    try:
        answer: Answer = json.loads(ended.stdout)
    except json.JSONDecodeError:
        answer = {"refused": ended.stderr.strip().splitlines()[-1] if ended.stderr.strip() else "no answer"}
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(answer))
    return answer


def table(answers: dict[str, Answer]) -> str:
    """What was judged, and everything that is not as expected."""
    count: Counter[str] = Counter()
    lines: list[str] = []
    for name, answer in answers.items():
        if "refused" in answer:
            count["packages refused"] += 1
            lines.append(f"refused   {name}: {answer['refused'][:300]}")
            continue
        count["packages judged"] += 1
        for row in answer["submissions"]:
            kind = {True: "as expected", False: "not as expected", None: "language not installed"}[
                row["kept"]
            ]
            count[kind] += 1
            if row["kept"] is False:
                said = row["broken"] or row["fault"]
                lines.append(f"different {name} {row['name']}: {row['verdict']}, {said[:200]}")
        count["data checks that fail"] += sum(one["kept"] is False for one in answer["data"])
    judged = count["as expected"] + count["not as expected"]
    share = f"{count['as expected'] / judged:.2%}" if judged else "none"
    return "\n".join([*lines, *(f"{kind}: {number}" for kind, number in count.items()), f"share: {share}"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.packages", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--keep", type=Path, default=DIRECTORY / "packages", help="where answers are kept")
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1800, help="for one package")
    parser.add_argument("--until", type=float, default=float("inf"), help="begin none after so many seconds")
    asked = parser.parse_args(arguments)
    found = [package for folder in asked.folders for package in packages(folder)]
    # In an order that has nothing to do with where they come from: a run that is stopped has a part of each.
    found.sort(key=lambda package: sha256(str(package).encode()).digest())
    began = time.monotonic()

    def one(package: Path) -> tuple[str, Answer] | None:
        name = "-".join(package.parts[-2:])
        kept = asked.keep / f"{name}.json"
        if time.monotonic() - began > asked.until and not kept.is_file():
            return None
        return name, verified(package, kept, asked.seconds)

    with ThreadPoolExecutor(asked.at_once) as threads:
        answers = dict(pair for pair in threads.map(one, found) if pair is not None)
    Console().print(table(answers), highlight=False, markup=False, soft_wrap=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
