"""What is kept of a contest when it is over: every program with its result, the scoreboard, the questions and
the decisions, as files that need no judge to be read."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fencepost_judge import _contests as contests
from fencepost_judge import _jury as jury
from fencepost_judge import _visibility as visibility
from fencepost_judge._contests import Clarification
from fencepost_judge._jury import Archived, Decision
from fencepost_judge._role import JudgeVisitor
from fencepost_judge._service import Judging
from fencepost_judge._visibility import VisibleBoard

ROWS = 200
DECISIONS_MAX = 10_000
CLARIFICATIONS_MAX = 10_000
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class ContestArchive:
    board: VisibleBoard
    submissions: Sequence[Archived]
    clarifications: Sequence[Clarification]
    decisions: Sequence[Decision]

    def zipped(self) -> bytes:
        """The archive. Names of teams and files become names that lead nowhere else when it is unpacked."""
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in self._documents().items():
                archive.writestr(name, content)
            for one in self.submissions:
                for name, content in one.sources.items():
                    archive.writestr(f"{self._folder(one)}/{_safe(name)}", content)
        return written.getvalue()

    def _documents(self) -> Mapping[str, str]:
        return {
            "contest.json": _json(asdict(self.board.contest)),
            "scoreboard.json": _json([asdict(line) for line in self.board.lines]),
            "scoreboard.csv": self._table(),
            "submissions.json": _json([self._row(one) for one in self.submissions]),
            "clarifications.json": _json([asdict(one) for one in self.clarifications]),
            "decisions.json": _json([asdict(one) for one in self.decisions]),
        }

    def _folder(self, one: Archived) -> str:
        labels = {problem.slug: problem.label for problem in self.board.contest.problems}
        where = (one.team, labels.get(one.slug, one.slug), f"{one.job_id}-{one.verdict or 'none'}")
        return "/".join(["sources", *map(_safe, where)])

    def _row(self, one: Archived) -> dict[str, Any]:
        row = asdict(one)
        del row["sources"]
        return {**row, "sources": self._folder(one)}

    def _table(self) -> str:
        labels = [one.label for one in self.board.contest.problems]
        written = io.StringIO()
        table = csv.writer(written, lineterminator="\n")
        table.writerow(["rank", "team_id", "team", "solved", "penalty", "points", *labels])
        for line in self.board.lines:
            cells = [line.cells[label] for label in labels]
            marks = [
                cell.points if cell.points is not None else f"{cell.judged}/{cell.solved_minute}"
                for cell in cells
            ]
            # A name that begins like a formula would be one in a spreadsheet.
            name = f"'{line.name}" if line.name[:1] in "=+-@\t\r" else line.name
            table.writerow([line.rank, line.team_id, name, line.solved, line.penalty, line.points, *marks])
        return written.getvalue()


async def archive_of(judging: Judging, who: JudgeVisitor, contest: str) -> ContestArchive:
    fp = judging.fp
    board = await visibility.board(fp, who, contest)
    submissions = list[Archived]()
    while True:
        after = submissions[-1].job_id if submissions else None
        page = await fp.run(jury.archive(contest, after, ROWS))
        submissions += page
        if len(page) < ROWS:
            break
    said = await fp.run(contests.clarifications(contest, seen_by=None, limit=CLARIFICATIONS_MAX))
    decided = await fp.run(jury.decisions(contest, DECISIONS_MAX))
    return ContestArchive(board, submissions, said, decided)


def _safe(name: str) -> str:
    """A name of one file: no folder, no step upwards, nothing hidden."""
    return _UNSAFE.sub("_", name).lstrip(".")[:100] or "_"


def _json(document: Any) -> str:
    return json.dumps(document, ensure_ascii=False, indent=1, default=str) + "\n"
