"""Calls about contests and clarifications, implemented by `functions/judge_contest.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from fencepost.kernel.call import (
    Call,
    Row,
    column,
    each,
    nothing,
    optional_text,
    parsed,
    scalar,
    text,
)
from fencepost_judge._figures import Figures
from fencepost_judge._scoreboard import (
    Contest,
    ContestProblem,
    Feedback,
    Interval,
    ScoredSubmission,
    Scoring,
)


@dataclass(frozen=True, slots=True)
class SeenContest:
    """A contest, and the database's clock when it was read."""

    contest: Contest
    seen_at: datetime

    @property
    def has_begun(self) -> bool:
        return self.seen_at >= self.contest.starts_at

    @property
    def is_over(self) -> bool:
        """For every team."""
        return self.seen_at >= self.contest.over_at


@dataclass(frozen=True, slots=True)
class Clarification:
    """A question, with its answer if there is one; an announcement has no question."""

    clarification_id: int
    label: str | None
    author: str
    question: str
    asked_at: datetime
    answer: str | None
    answered_at: datetime | None
    answered_by: str | None
    to_all: bool
    category: str | None = None


@dataclass(frozen=True, slots=True)
class ContestRules:
    """Settings of a contest of which None leaves what is there."""

    is_public: bool | None = None
    medals: Sequence[int] | None = None
    feedback: Feedback | None = None
    tokens: int | None = None
    verifies: bool | None = None
    categories: Sequence[str] | None = None
    answers: Sequence[str] | None = None


KEPT = ContestRules()


@dataclass(frozen=True, slots=True)
class Unread:
    clarification_id: int
    label: str | None
    question: str
    answer: str | None


@dataclass(frozen=True, slots=True)
class News:
    """What a person has not read yet; `head` is the change of the feed up to which it is told."""

    unread: Sequence[Unread]
    head: int


@dataclass(frozen=True, slots=True)
class Upsolved:
    author: str
    slug: str
    solved_at: datetime


def put_contest(contest: Contest, actor: str, rules: ContestRules = KEPT) -> Call[None]:
    """Create or change a contest."""
    return Call(
        "select fencepost.judge_contest_put(%s::text, %s::text, %s::text, %s::timestamptz, %s::timestamptz,"
        " %s::timestamptz, %s::integer, %s::text[], %s::text[], %s::text, %s::text, %s::text[], %s::text[],"
        " %s::boolean, %s::integer[], %s::text, %s::integer, %s::boolean, %s::text[], %s::text[])",
        (
            text("contest", contest.slug),
            text("title", contest.title),
            contest.scoring.value,
            contest.starts_at,
            contest.freeze_at,
            contest.ends_at,
            contest.penalty_minutes,
            [text("label", one.label) for one in contest.problems],
            [text("problem", one.slug) for one in contest.problems],
            text("actor", actor),
            contest.secret_figures.value,
            [one.color for one in contest.problems],
            [one.rgb for one in contest.problems],
            rules.is_public,
            None if rules.medals is None else list(rules.medals),
            None if rules.feedback is None else rules.feedback.value,
            rules.tokens,
            rules.verifies,
            _texts("categories", rules.categories),
            _texts("answers", rules.answers),
        ),
        nothing,
    )


def contests(
    *, one: str | None = None, after: str | None = None, limit: int = 100
) -> Call[list[SeenContest]]:
    return Call(
        "select slug, title, scoring, starts_at, freeze_at, ends_at, unfrozen_at, penalty_minutes,"
        " problems::text, seen_at, secret_figures, is_public, medals, finalized_at, revealed::text,"
        " intervals::text, feedback, tokens, verifies, categories, answers"
        " from fencepost.judge_contests(%s::text, %s::text, %s::integer)",
        (optional_text("contest", one), optional_text("after", after), limit),
        each(_contest),
    )


def join(slug: str, name: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_join(%s::text, %s::text)",
        (text("contest", slug), text("name", name)),
        nothing,
    )


def unfreeze(slug: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_unfreeze(%s::text, %s::text)",
        (text("contest", slug), text("actor", actor)),
        nothing,
    )


def reveal(slug: str, team: str, problem: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_reveal(%s::text, %s::text, %s::text, %s::text)",
        (text("contest", slug), text("team", team), text("problem", problem), text("actor", actor)),
        nothing,
    )


def finalize(slug: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_finalize(%s::text, %s::text)",
        (text("contest", slug), text("actor", actor)),
        nothing,
    )


def reopen(slug: str, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_reopen(%s::text, %s::text)",
        (text("contest", slug), text("actor", actor)),
        nothing,
    )


def start(slug: str, starts_at: datetime, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_contest_start(%s::text, %s::timestamptz, %s::text)",
        (text("contest", slug), starts_at, text("actor", actor)),
        nothing,
    )


def team_of(slug: str, name: str) -> Call[str | None]:
    """The team that a user acts for, or None."""
    return Call(
        "select fencepost.judge_contest_team(%s::text, %s::text)",
        (text("contest", slug), text("name", name)),
        scalar,
    )


def entries(slug: str) -> Call[list[ScoredSubmission]]:
    """In order of submission."""
    return Call(
        "select team, slug, submitted_at, verdict, score, points::text"
        " from fencepost.judge_contest_entries(%s::text)",
        (text("contest", slug),),
        each(_entry),
    )


def rejudged_entries(generation: int, slug: str) -> Call[list[ScoredSubmission]]:
    """In order of submission, with the results that stand after the generation is applied."""
    return Call(
        "select team, slug, submitted_at, verdict, score, points::text"
        " from fencepost.judge_rejudge_entries(%s::bigint, %s::text)",
        (generation, text("contest", slug)),
        each(_entry),
    )


def hidden(slugs: Sequence[str]) -> Call[list[str]]:
    """Those of the problems that contestants may not see yet."""
    return Call(
        "select slug from fencepost.judge_problem_hidden(%s::text[])",
        ([text("problem", slug) for slug in slugs],),
        column,
    )


def ask(slug: str, label: str | None, author: str, question: str, category: str | None = None) -> Call[int]:
    return Call(
        "select fencepost.judge_clarification_ask(%s::text, %s::text, %s::text, %s::text, %s::text)",
        (
            text("contest", slug),
            optional_text("label", label),
            text("author", author),
            text("question", question),
            optional_text("category", category),
        ),
        scalar,
    )


def answer(slug: str, clarification_id: int, said: str, *, to_all: bool, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_clarification_answer(%s::text, %s::bigint, %s::text, %s::boolean, %s::text)",
        (text("contest", slug), clarification_id, text("answer", said), to_all, text("actor", actor)),
        nothing,
    )


def announce(slug: str, label: str | None, said: str, actor: str) -> Call[int]:
    return Call(
        "select fencepost.judge_announce(%s::text, %s::text, %s::text, %s::text)",
        (text("contest", slug), optional_text("label", label), text("text", said), text("actor", actor)),
        scalar,
    )


def clarifications(
    slug: str, *, seen_by: str | None, after: int | None = None, limit: int = 1000
) -> Call[list[Clarification]]:
    """What the named contestant may see; everything for None."""
    return Call(
        "select clarification_id, label, author, question, asked_at, answer, answered_at, answered_by,"
        " to_all, category from fencepost.judge_clarifications(%s::text, %s::text, %s::bigint, %s::integer)",
        (text("contest", slug), optional_text("name", seen_by), after, limit),
        each(Clarification),
    )


def news(slug: str, name: str, *, is_jury: bool) -> Call[News]:
    """What a person has not read: answers and announcements; for a jury, open questions. The newest 20."""
    return Call(
        "select clarification_id, label, question, answer, head"
        " from fencepost.judge_clarification_news(%s::text, %s::text, %s::boolean)",
        (text("contest", slug), text("name", name), is_jury),
        _news,
    )


def has_read(slug: str, name: str, head: int) -> Call[None]:
    return Call(
        "select fencepost.judge_clarification_seen(%s::text, %s::text, %s::bigint)",
        (text("contest", slug), text("name", name), head),
        nothing,
    )


def remove_interval(
    slug: str, team: str | None, from_at: datetime, until_at: datetime, reason: str, actor: str
) -> Call[int]:
    """Let the clock stand still, for all or for one team."""
    return Call(
        "select fencepost.judge_interval_remove(%s::text, %s::text, %s::timestamptz, %s::timestamptz,"
        " %s::text, %s::text)",
        (
            text("contest", slug),
            optional_text("team", team),
            from_at,
            until_at,
            text("reason", reason),
            text("actor", actor),
        ),
        scalar,
    )


def restore_interval(slug: str, interval_id: int, actor: str) -> Call[None]:
    return Call(
        "select fencepost.judge_interval_restore(%s::text, %s::bigint, %s::text)",
        (text("contest", slug), interval_id, text("actor", actor)),
        nothing,
    )


def play_token(job_id: int, name: str) -> Call[int]:
    """See all of a verdict, for one of the tokens of the user's team. Returns how many are left."""
    return Call(
        "select fencepost.judge_token_play(%s::bigint, %s::text)", (job_id, text("name", name)), scalar
    )


def tokens_left(slug: str, name: str) -> Call[int | None]:
    return Call(
        "select fencepost.judge_tokens_left(%s::text, %s::text)",
        (text("contest", slug), text("name", name)),
        scalar,
    )


def upsolved(slug: str) -> Call[list[Upsolved]]:
    """What was solved after the end."""
    return Call(
        "select author, slug, solved_at from fencepost.judge_contest_upsolved(%s::text)",
        (text("contest", slug),),
        each(Upsolved),
    )


def _texts(field: str, given: Sequence[str] | None) -> list[str] | None:
    return None if given is None else [text(field, one) for one in given]


def _news(rows: Sequence[Row]) -> News:
    unread = [Unread(*row[:4]) for row in rows if row[0] is not None]
    return News(unread, rows[0][4] if rows else 0)


def _contest(
    slug: str,
    title: str,
    scoring: str,
    starts_at: datetime,
    freeze_at: datetime | None,
    ends_at: datetime,
    unfrozen_at: datetime | None,
    penalty_minutes: int,
    problems: str,
    seen_at: datetime,
    secret_figures: str,
    is_public: bool,
    medals: Sequence[int],
    finalized_at: datetime | None,
    revealed: str,
    intervals: str,
    feedback: str,
    tokens: int,
    verifies: bool,
    categories: Sequence[str],
    answers: Sequence[str],
) -> SeenContest:
    contest = Contest(
        slug=slug,
        title=title,
        scoring=Scoring(scoring),
        starts_at=starts_at,
        freeze_at=freeze_at,
        ends_at=ends_at,
        unfrozen_at=unfrozen_at,
        penalty_minutes=penalty_minutes,
        secret_figures=Figures(secret_figures),
        problems=[ContestProblem(**one) for one in parsed(problems)],
        is_public=is_public,
        medals=tuple(medals),
        finalized_at=finalized_at,
        revealed=tuple((team, problem) for team, problem in parsed(revealed)),
        intervals=tuple(_interval(**one) for one in parsed(intervals)),
        feedback=Feedback(feedback),
        tokens=tokens,
        verifies=verifies,
        categories=tuple(categories),
        answers=tuple(answers),
    )
    return SeenContest(contest, seen_at)


def _interval(id: int, team: str | None, from_at: str, until_at: str, reason: str) -> Interval:  # noqa: A002
    return Interval(id, team, datetime.fromisoformat(from_at), datetime.fromisoformat(until_at), reason)


def _entry(
    team: str, slug: str, submitted_at: datetime, verdict: str | None, score: float | None, points: str
) -> ScoredSubmission:
    return ScoredSubmission(team, slug, submitted_at, verdict, score, parsed(points))
