"""The scoreboard: a pure function of a contest, its submissions, and a moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
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


class Feedback(StrEnum):
    """What contestants are told of a verdict until the contest is over."""

    FULL = "full"
    POINTS = "points"  # The verdict and the points of each group; of tests only the samples.
    NONE = "none"  # That it was received; and why it does not compile.


@dataclass(frozen=True, slots=True)
class Interval:
    """While it lasts the contest's clock stands still: for all, or for one team."""

    id: int
    team: str | None
    from_at: datetime
    until_at: datetime
    reason: str

    @property
    def length(self) -> timedelta:
        return self.until_at - self.from_at

    def before(self, moment: datetime) -> timedelta:
        """How much of it lies before a moment."""
        return max(min(moment, self.until_at) - self.from_at, timedelta())

    def concerns(self, team: str | None) -> bool:
        return self.team is None or self.team == team


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
    intervals: Sequence[Interval] = ()
    """What was removed from its time; no two that concern the same team overlap."""
    feedback: Feedback = Feedback.FULL
    tokens: int = 0
    """How many of its submissions a team may see in full all the same."""
    verifies: bool = False
    """Whether it is final only when a jury has verified each verdict."""
    categories: Sequence[str] = ()
    answers: Sequence[str] = ()
    """Of questions, and the answers that a jury gives often."""

    def elapsed(self, moment: datetime, team: str | None = None) -> timedelta:
        """The time in the contest: for a team, or for a team that nothing was removed from."""
        stood = (one.before(moment) for one in self.intervals if one.concerns(team))
        return moment - self.starts_at - sum(stood, timedelta())

    def ends_for(self, team: str | None) -> datetime:
        own = (one.length for one in self.intervals if one.team is not None and one.team == team)
        return self.ends_at + sum(own, timedelta())

    @property
    def over_at(self) -> datetime:
        """When it is over for every team."""
        return max(self.ends_for(team) for team in {None, *(one.team for one in self.intervals)})

    def hides_of(self, entry: ScoredSubmission, moment: datetime) -> bool:
        return self.hides(entry.submitted_at, moment) and (entry.team, entry.slug) not in self.revealed

    def hides(self, submitted_at: datetime, moment: datetime) -> bool:
        """Whether the freeze hides, at that moment, the result of a submission; or the contest, which tells
        no results before it is over."""
        if self.feedback is Feedback.NONE and moment < self.over_at:
            return True
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
    # The sort is stable: those of one moment stay in the order of their arrival.
    in_time = sorted(seen, key=lambda one: contest.elapsed(one.submitted_at, one.team))
    first = _first_solvers(one for one in in_time if one.team in ranked)
    by_team: dict[str, list[ScoredSubmission]] = {}
    for entry in seen:
        by_team.setdefault(entry.team, []).append(entry)
    return _ranked(contest, [_line(contest, one, by_team.get(one.team_id, []), first) for one in teams])


def _seen(
    contest: Contest, entries: Iterable[ScoredSubmission], moment: datetime, *, sees_all: bool
) -> Iterable[ScoredSubmission]:
    for entry in entries:
        if not contest.starts_at <= entry.submitted_at < contest.ends_for(entry.team):
            continue
        if entry.submitted_at > moment:
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
    return int(contest.elapsed(entry.submitted_at, entry.team).total_seconds() // 60)


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
