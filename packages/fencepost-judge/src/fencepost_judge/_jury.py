"""Calls about the work of a jury, implemented by `functions/judge_jury.sql`; and balloons, which follow from
the scoreboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fencepost.kernel.call import Call, each, nothing, one, parsed, scalar, text
from fencepost_judge._scoreboard import Contest, ScoreboardRow


@dataclass(frozen=True, slots=True)
class Unverified:
    """A verdict that no jury has verified. `earlier` submissions of the author came before it, for the same
    problem; `waiting` verdicts are not verified in all."""

    job_id: int
    team: str
    author: str
    slug: str
    language: str
    submitted_at: datetime
    verdict: str
    score: float | None
    generation: int
    earlier: int
    notes: int
    waiting: int


@dataclass(frozen=True, slots=True)
class Dossier:
    """What juries know of a submission. `judgings` has the standing one and those of generations."""

    verified: Mapping[str, Any] | None
    notes: Sequence[Mapping[str, Any]]
    judgings: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Delivery:
    team: str
    slug: str
    delivered_at: datetime
    delivered_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Balloon:
    """A problem that a team solved."""

    team_id: str
    team: str
    location: str | None
    label: str
    problem_id: str
    color: str | None
    rgb: str | None
    minute: int
    first: bool
    """Of all ranked teams."""
    delivered_at: datetime | None
    delivered_by: str | None


@dataclass(frozen=True, slots=True)
class Archived:
    """A submission with everything that is kept of it."""

    job_id: int
    team: str
    author: str
    slug: str
    language: str
    submitted_at: datetime
    sources: Mapping[str, str]
    generation: int | None
    verdict: str | None
    score: float | None
    time_ms: int | None
    mem_kb: int | None
    message: str | None
    cases: Sequence[Mapping[str, Any]] | None
    points: Mapping[str, float] | None
    judged_at: datetime | None
    verified_by: str | None
    notes: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Decision:
    at: datetime
    decision: str
    actor: str | None
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Statistics:
    slug: str
    submissions: int
    tried: int
    solved: int

    @property
    def difficulty(self) -> str:
        """From the share of those that solved it, of all that tried. Nothing is said of few."""
        if self.tried < DIFFICULTY_TRIED_MIN:
            return ""
        share = self.solved / self.tried
        return next(word for bound, word in DIFFICULTIES if share >= bound)


DIFFICULTY_TRIED_MIN = 5
DIFFICULTIES = ((0.8, "easy"), (0.4, "medium"), (0.0, "hard"))


def unverified(contest: str, after: int | None, limit: int) -> Call[list[Unverified]]:
    return Call(
        "select job_id, team, author, slug, language, submitted_at, verdict, score, generation, earlier,"
        " notes, waiting from fencepost.judge_verify_queue(%s::text, %s::bigint, %s::integer)",
        (text("contest", contest), after, limit),
        each(Unverified),
    )


def verify(job_id: int, generation: int, verdict: str, actor: str) -> Call[str]:
    """Verify the verdict that the jury has seen. Returns the user that verified it first."""
    return Call(
        "select fencepost.judge_verify(%s::bigint, %s::bigint, %s::text, %s::text)",
        (job_id, generation, text("verdict", verdict), text("actor", actor)),
        scalar,
    )


def dossier(job_id: int) -> Call[Dossier]:
    return Call(
        "select verified::text, notes::text, judgings::text from fencepost.judge_dossier(%s::bigint)",
        (job_id,),
        one(lambda *row: Dossier(*map(parsed, row))),
    )


def note(job_id: int, said: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_note_add(%s::bigint, %s::text, %s::text)",
        (job_id, text("text", said), text("actor", actor)),
        nothing,
    )


def deliveries(contest: str) -> Call[list[Delivery]]:
    return Call(
        "select team, slug, delivered_at, delivered_by from fencepost.judge_balloons(%s::text)",
        (text("contest", contest),),
        each(Delivery),
    )


def deliver(contest: str, team: str, slug: str, actor: str, *, is_delivered: bool) -> Call[str | None]:
    """Returns who delivered it, or None when it is not delivered."""
    return Call(
        "select fencepost.judge_balloon_put(%s::text, %s::text, %s::text, %s::boolean, %s::text)",
        (
            text("contest", contest),
            text("team", team),
            text("problem", slug),
            is_delivered,
            text("actor", actor),
        ),
        scalar,
    )


def archive(contest: str, after: int | None, limit: int) -> Call[list[Archived]]:
    return Call(
        "select job_id, team, author, slug, language, submitted_at, sources::text, generation, verdict,"
        " score, time_ms, mem_kb, message, cases::text, points::text, judged_at, verified_by, notes::text"
        " from fencepost.judge_contest_archive(%s::text, %s::bigint, %s::integer)",
        (text("contest", contest), after, limit),
        each(_archived),
    )


def decisions(contest: str, limit: int) -> Call[list[Decision]]:
    return Call(
        "select at, decision, actor, detail::text"
        " from fencepost.judge_contest_decisions(%s::text, %s::integer)",
        (text("contest", contest), limit),
        each(_decision),
    )


def statistics(slugs: Sequence[str]) -> Call[list[Statistics]]:
    """Of those problems that no running contest has."""
    return Call(
        "select slug, submissions, tried, solved from fencepost.judge_problem_statistics(%s::text[])",
        ([text("problem", slug) for slug in slugs],),
        each(Statistics),
    )


def own_marks(author: str, slugs: Sequence[str]) -> Call[dict[str, str]]:
    """Of each problem that the author tried: `solved` or `tried`."""
    return Call(
        "select slug, mark from fencepost.judge_own_marks(%s::text, %s::text[])",
        (text("author", author), [text("problem", slug) for slug in slugs]),
        lambda rows: {slug: mark for slug, mark in rows},  # noqa: C416 - Typed.
    )


def balloons(
    contest: Contest,
    lines: Sequence[ScoreboardRow],
    locations: Mapping[str, str | None],
    delivered: Sequence[Delivery],
) -> list[Balloon]:
    """A balloon for each problem that a team solved, in the order of the contest's time. Pure."""
    brought = {(known.team, known.slug): known for known in delivered}
    found = [
        Balloon(
            team_id=line.team_id,
            team=line.name,
            location=locations.get(line.team_id),
            label=problem.label,
            problem_id=problem.slug,
            color=problem.color,
            rgb=problem.rgb,
            minute=cell.solved_minute,
            first=cell.first,
            delivered_at=known.delivered_at if known else None,
            delivered_by=known.delivered_by if known else None,
        )
        for line in lines
        for problem in contest.problems
        if (cell := line.cells[problem.label]).solved_minute is not None
        for known in [brought.get((line.team_id, problem.slug))]
    ]
    return sorted(found, key=lambda balloon: (balloon.minute, not balloon.first, balloon.team, balloon.label))


def _decision(at: datetime, decision: str, actor: str | None, detail: str) -> Decision:
    return Decision(at, decision, actor, parsed(detail))


def _archived(*row: Any) -> Archived:
    found = list(row)
    for place in (6, 13, 14, 17):
        found[place] = parsed(found[place])
    return Archived(*found)
