"""The scoreboard: a pure function of a contest, its submissions, and a moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from fencepost_judge._figures import Figures

WHOLE_POINTS = 100.0
"""The points of an accepted program where points count and the problem defines none."""
FREE_VERDICTS = frozenset({"CE", "SE"})
"""Verdicts that do not count as a try: the program was not run, or the judge is at fault."""


class Scoring(StrEnum):
    ICPC = "icpc"  # Problems solved, then minutes with a penalty for each rejected try.
    IOI = "ioi"  # Points: of each group of tests the best of all tries.


class TeamKind(StrEnum):
    PARTICIPANTS = "participants"
    OBSERVERS = "observers"  # Shown to all, and not ranked.
    HIDDEN = "hidden"  # Shown to juries.


@dataclass(frozen=True, slots=True)
class ContestProblem:
    label: str
    slug: str
    color: str | None = None
    rgb: str | None = None


@dataclass(frozen=True, slots=True)
class Entrant:
    """A team as the scoreboard needs it."""

    team_id: str
    name: str
    kind: TeamKind = TeamKind.PARTICIPANTS
    organization: str | None = None
    groups: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    slug: str
    title: str
    scoring: Scoring
    starts_at: datetime
    ends_at: datetime
    freeze_at: datetime | None = None
    unfrozen_at: datetime | None = None
    penalty_minutes: int = 20
    secret_figures: Figures = Figures.ROUNDED
    """What contestants see of the time and memory of secret tests."""
    problems: Sequence[ContestProblem] = ()
    is_public: bool = False
    """Whether the scoreboard needs no login."""
    medals: Sequence[int] = (4, 4, 4)
    finalized_at: datetime | None = None
    revealed: Collection[tuple[str, str]] = ()
    """Teams and problems whose results are shown although the contest is still frozen."""

    def hides_of(self, entry: ScoredSubmission, moment: datetime) -> bool:
        return self.hides(entry.submitted_at, moment) and (entry.team, entry.slug) not in self.revealed

    def hides(self, submitted_at: datetime, moment: datetime) -> bool:
        """Whether the freeze hides, at that moment, the result of a submission."""
        if self.freeze_at is None or submitted_at < self.freeze_at:
            return False
        return self.unfrozen_at is None or moment < self.unfrozen_at


@dataclass(frozen=True, slots=True)
class ScoredSubmission:
    """One submission with its standing result. Without a verdict it is not judged yet, or the verdict is
    hidden."""

    team: str
    slug: str
    submitted_at: datetime
    verdict: str | None
    score: float | None = None
    points: Mapping[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreboardCell:
    """One team and one problem."""

    tries: int = 0
    pending: int = 0
    solved_minute: int | None = None
    first: bool = False
    points: float | None = None
    judged: int = 0
    """Judged submissions, up to the accepted one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreboardRow:
    rank: int | None
    """None for observers and hidden teams."""
    team_id: str
    name: str
    kind: TeamKind
    organization: str | None
    groups: Sequence[str]
    solved: int
    penalty: int
    points: float | None
    cells: Mapping[str, ScoreboardCell]


def scoreboard(
    contest: Contest,
    entrants: Iterable[Entrant],
    entries: Iterable[ScoredSubmission],
    moment: datetime,
    *,
    sees_all: bool = False,
) -> list[ScoreboardRow]:
    """The rows in order: those that are ranked, then observers. Equal teams have the same rank, and are
    ordered by name.

    `sees_all` shows what the freeze hides, and hidden teams. Entries must be in order of submission.
    """
    teams = [one for one in entrants if sees_all or one.kind is not TeamKind.HIDDEN]
    seen = list(_seen(contest, entries, moment, sees_all=sees_all))
    ranked = {one.team_id for one in teams if one.kind is TeamKind.PARTICIPANTS}
    first = _first_solvers(one for one in seen if one.team in ranked)
    by_team: dict[str, list[ScoredSubmission]] = {}
    for entry in seen:
        by_team.setdefault(entry.team, []).append(entry)
    return _ranked(contest, [_line(contest, one, by_team.get(one.team_id, []), first) for one in teams])


def _seen(
    contest: Contest, entries: Iterable[ScoredSubmission], moment: datetime, *, sees_all: bool
) -> Iterable[ScoredSubmission]:
    for entry in entries:
        if not contest.starts_at <= entry.submitted_at < contest.ends_at or entry.submitted_at > moment:
            continue
        hidden = not sees_all and contest.hides_of(entry, moment)
        yield replace(entry, verdict=None, score=None, points={}) if hidden else entry


def _first_solvers(seen: Iterable[ScoredSubmission]) -> dict[str, ScoredSubmission | None]:
    """The first accepted submission of each problem: by time, then by order of arrival. None while an earlier
    one has no verdict, which may still become the first."""
    first: dict[str, ScoredSubmission | None] = {}
    for entry in seen:
        if entry.verdict is None:
            first.setdefault(entry.slug, None)
        elif entry.verdict == "AC":
            first.setdefault(entry.slug, entry)
    return first


def _line(
    contest: Contest,
    entrant: Entrant,
    own: Sequence[ScoredSubmission],
    first: Mapping[str, ScoredSubmission | None],
) -> ScoreboardRow:
    cells = {
        problem.label: _cell(contest, [one for one in own if one.slug == problem.slug], first)
        for problem in contest.problems
    }
    solved = [cell for cell in cells.values() if cell.solved_minute is not None]
    penalty = sum((cell.solved_minute or 0) + cell.tries * contest.penalty_minutes for cell in solved)
    points = sum(cell.points or 0.0 for cell in cells.values())
    icpc = contest.scoring is Scoring.ICPC
    return ScoreboardRow(
        rank=None,
        team_id=entrant.team_id,
        name=entrant.name,
        kind=entrant.kind,
        organization=entrant.organization,
        groups=entrant.groups,
        solved=len(solved),
        penalty=penalty if icpc else 0,
        points=None if icpc else round(points, 6),
        cells=cells,
    )


def _cell(
    contest: Contest, entries: Sequence[ScoredSubmission], first: Mapping[str, ScoredSubmission | None]
) -> ScoreboardCell:
    accepted = next((one for one in entries if one.verdict == "AC"), None)
    # After the accepted submission nothing counts as a try, nor, in ICPC scoring, as pending.
    until = entries if accepted is None else entries[: entries.index(accepted)]
    rejected = [one for one in until if one.verdict is not None and one.verdict not in FREE_VERDICTS]
    points = contest.scoring is Scoring.IOI
    judged = [one for one in entries if one.verdict is not None]
    return ScoreboardCell(
        tries=len(rejected),
        pending=sum(1 for one in (entries if points else until) if one.verdict is None),
        solved_minute=None if accepted is None else _minute(contest, accepted),
        first=accepted is not None and first.get(accepted.slug) is accepted,
        points=best_points(judged) if points and judged else None,
        judged=sum(1 for one in until if one.verdict is not None) + (accepted is not None),
    )


def best_points(entries: Sequence[ScoredSubmission]) -> float:
    """The best points of each group over all tries, added up; never less than the best single try."""
    best: dict[str, float] = {}
    for entry in entries:
        for group, points in entry.points.items():
            best[group] = max(best.get(group, 0.0), points)
    single = max((_points(entry) for entry in entries), default=0.0)
    return round(max(sum(best.values()), single), 6)


def _points(entry: ScoredSubmission) -> float:
    if entry.score is not None:
        return entry.score
    return WHOLE_POINTS if entry.verdict == "AC" else 0.0


def _minute(contest: Contest, entry: ScoredSubmission) -> int:
    return int((entry.submitted_at - contest.starts_at).total_seconds() // 60)


def _ranked(contest: Contest, lines: Iterable[ScoreboardRow]) -> list[ScoreboardRow]:
    def merit(line: ScoreboardRow) -> tuple[float, ...]:
        if contest.scoring is Scoring.IOI:
            return (-(line.points or 0.0),)
        last = max((cell.solved_minute or 0 for cell in line.cells.values()), default=0)
        return (-line.solved, line.penalty, last)

    def place_of(line: ScoreboardRow) -> tuple[bool, tuple[float, ...], str]:
        return (line.kind is not TeamKind.PARTICIPANTS, merit(line), line.name)

    ranked: list[ScoreboardRow] = []
    for place, line in enumerate(sorted(lines, key=place_of), 1):
        if line.kind is not TeamKind.PARTICIPANTS:
            ranked.append(line)
            continue
        equal = ranked and merit(ranked[-1]) == merit(line)
        ranked.append(replace(line, rank=ranked[-1].rank if equal else place))
    return ranked


def next_reveal(
    contest: Contest,
    entrants: Iterable[Entrant],
    entries: Sequence[ScoredSubmission],
    moment: datetime,
) -> tuple[str, str] | None:
    """The team and the problem to reveal next, as a resolver does: of the team that is ranked last and has
    hidden results, the first problem by label. None when nothing is hidden."""
    lines = scoreboard(contest, entrants, entries, moment)
    waiting = {(one.team, one.slug) for one in entries if contest.hides_of(one, moment)}
    for line in reversed(lines):
        for problem in contest.problems:
            if (line.team_id, problem.slug) in waiting:
                return line.team_id, problem.slug
    return None
