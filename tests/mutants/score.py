"""What became of the mutants that were tried: a table, and a file."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.mutants.excused import EXCUSED
from tests.mutants.subject import FOLDER, AnyMutant, folder
from tests.mutants.workspace import HUNG, PASSED

STILLBORN = "stillborn"
SCORES = FOLDER / "score.json"
COUNTS = ("mutants", "tried", "stillborn", "seen", "of_them_hung", "equivalent", "survived")


def results_file(name: str, sample: str, part: str) -> Path:
    return folder(name) / f"results-{sample}-{part.replace('/', '-of-')}.jsonl"


def read_results(name: str, sample: str = "*") -> dict[str, dict[str, Any]]:
    """The newest fate of each mutant, by its name."""
    texts = [file.read_text() for file in sorted(folder(name).glob(f"results-{sample}-*-of-*.jsonl"))]
    return {line["name"]: line for text in texts for line in map(json.loads, text.splitlines())}


def score(results: dict[str, dict[str, Any]], chosen: Sequence[AnyMutant], every: int) -> dict[str, Any]:
    """Of all mutants that can be planted and change something, how many are seen."""
    tried = [
        results[mutant.name]
        for mutant in chosen
        if mutant.name in results and results[mutant.name]["text"] == mutant.text
    ]
    fates = Counter(line["fate"] if line["fate"] in {PASSED, STILLBORN, HUNG} else "seen" for line in tried)
    alive = [line["name"] for line in tried if line["fate"] == PASSED]
    survivors = sorted(name for name in alive if name not in EXCUSED)
    seen = fates["seen"] + fates[HUNG]
    return {
        "mutants": every,
        "tried": len(tried),
        "stillborn": fates[STILLBORN],
        "seen": seen,
        "of_them_hung": fates[HUNG],
        "equivalent": len(alive) - len(survivors),
        "survived": len(survivors),
        "score": round(100 * seen / max(1, seen + len(survivors)), 1),
        "survivors": survivors,
    }


def keep(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """In the one file of all scores; answers them all."""
    scores: dict[str, Any] = json.loads(SCORES.read_text()) if SCORES.exists() else {}
    scores[name] = found
    SCORES.write_text(json.dumps(scores, indent=2) + "\n")
    return scores


def table(scores: dict[str, Any]) -> str:
    rows = [["of", *COUNTS, "score"]]
    for name, found in sorted(scores.items()):
        rows.append([name, *(str(found[count]) for count in COUNTS), f"{found['score']} %"])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.rjust, row, widths)) for row in rows)
