"""Scoreboards: pure, so every rule is a small table of submissions and a moment."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from fencepost_judge._scoreboard import (
    Contest,
    ContestProblem,
    Entrant,
    Feedback,
    Interval,
    ScoreboardRow,
    ScoredSubmission,
    Scoring,
    TeamKind,
    next_reveal,
    scoreboard,
)

START = datetime(2026, 10, 3, 9, tzinfo=UTC)


def minute(count: float) -> datetime:
    return START + timedelta(minutes=count)


ICPC = Contest(
    slug="autumn",
    title="Autumn",
    scoring=Scoring.ICPC,
    starts_at=START,
    ends_at=minute(300),
    freeze_at=minute(240),
    problems=[ContestProblem("A", "fence"), ContestProblem("B", "paint")],
)
IOI = replace(ICPC, scoring=Scoring.IOI)
END = minute(301)


def entry(author: str, slug: str, at: float, verdict: str | None, **more: object) -> ScoredSubmission:
    return replace(ScoredSubmission(author, slug, minute(at), verdict), **more)  # type: ignore[arg-type]


def teams(*names: str, kind: TeamKind = TeamKind.PARTICIPANTS) -> list[Entrant]:
    return [Entrant(name, name, kind) for name in names]


def standing(lines: list[ScoreboardRow]) -> list[tuple[int | None, str, int, int]]:
    return [(line.rank, line.name, line.solved, line.penalty) for line in lines]


def test_problems_solved_come_first_and_then_minutes_with_penalties() -> None:
    entries = [
        entry("bob", "fence", 10, "WA"),
        entry("ann", "fence", 20.9, "AC"),
        entry("bob", "fence", 30, "AC"),
        entry("cem", "fence", 30, "CE"),
        entry("cem", "fence", 31, "SE"),
        entry("cem", "fence", 40, "AC"),
        entry("cem", "fence", 41, "WA"),
        entry("dan", "paint", 50, "WA"),
        entry("bob", "paint", 60, "AC"),
    ]
    lines = scoreboard(ICPC, teams("ann", "bob", "cem", "dan", "eve"), entries, END, sees_all=True)

    assert standing(lines) == [
        (1, "bob", 2, 110),
        (2, "ann", 1, 20),
        (3, "cem", 1, 40),
        (4, "dan", 0, 0),
        (4, "eve", 0, 0),
    ]
    cells = {line.name: line.cells for line in lines}
    assert (cells["cem"]["A"].tries, cells["dan"]["B"].tries) == (0, 1)
    assert [line.name for line in lines if line.cells["A"].first] == ["ann"]


def test_equal_penalties_are_told_apart_by_the_last_solution_and_else_share_a_rank() -> None:
    entries = [
        entry("ann", "fence", 10, "AC"),
        entry("bob", "fence", 30, "AC"),
        entry("cem", "fence", 10, "AC"),
        entry("bob", "paint", 30, "AC"),
        entry("ann", "paint", 50, "AC"),
        entry("cem", "paint", 50, "AC"),
    ]

    assert standing(scoreboard(ICPC, teams("ann", "bob", "cem"), entries, END, sees_all=True)) == [
        (1, "bob", 2, 60),
        (2, "ann", 2, 60),
        (2, "cem", 2, 60),
    ]


def test_the_freeze_hides_verdicts_until_it_is_lifted_and_not_from_the_jury() -> None:
    entries = [entry("ann", "fence", 239, "WA"), entry("ann", "fence", 240, "AC")]
    frozen = scoreboard(ICPC, teams("ann"), entries, END)[0]
    jury = scoreboard(ICPC, teams("ann"), entries, END, sees_all=True)[0]
    lifted = replace(ICPC, unfrozen_at=minute(320))
    after = scoreboard(lifted, teams("ann"), entries, minute(320))[0]
    still = scoreboard(lifted, teams("ann"), entries, minute(319))[0]

    assert (frozen.solved, frozen.cells["A"].tries, frozen.cells["A"].pending) == (0, 1, 1)
    assert (jury.solved, jury.penalty, after.solved, still.solved) == (1, 260, 1, 0)


def test_what_lies_outside_the_contest_or_after_the_moment_does_not_count() -> None:
    entries = [
        entry("ann", "fence", -1, "AC"),
        entry("bob", "fence", 100, "AC"),
        entry("ann", "paint", 300, "AC"),
        entry("guest", "paint", 20, "AC"),
    ]

    assert standing(scoreboard(ICPC, teams("ann", "bob"), entries, minute(99))) == [
        (1, "ann", 0, 0),
        (1, "bob", 0, 0),
    ]
    assert standing(scoreboard(ICPC, teams("ann", "bob"), entries, END)) == [
        (1, "bob", 1, 100),
        (2, "ann", 0, 0),
    ]


def test_points_are_the_best_of_each_group_and_never_less_than_the_best_try() -> None:
    entries = [
        entry("ann", "fence", 10, "PA", score=40.0, points={"one": 40.0, "two": 0.0}),
        entry("ann", "fence", 20, "PA", score=60.0, points={"one": 0.0, "two": 60.0}),
        entry("ann", "paint", 25, "WA"),
        entry("ann", "paint", 30, None),
        entry("bob", "fence", 10, "PA", score=60.0),
        entry("bob", "paint", 10, "AC"),
    ]
    lines = scoreboard(IOI, teams("ann", "bob", "cem"), entries, END)

    assert [(line.rank, line.name, line.points) for line in lines] == [
        (1, "bob", 160.0),
        (2, "ann", 100.0),
        (3, "cem", 0.0),
    ]
    assert (lines[1].cells["B"].points, lines[1].cells["B"].pending) == (0.0, 1)


VERDICTS = st.sampled_from(["AC", "WA", "TLE", "CE", "SE", None])
ENTRIES = st.lists(
    st.builds(
        entry,
        st.sampled_from(["ann", "bob", "cem"]),
        st.sampled_from(["fence", "paint"]),
        st.sampled_from([0, 100, 239, 240, 260, 299]),
        VERDICTS,
    ),
    max_size=12,
).map(lambda entries: sorted(entries, key=lambda one: one.submitted_at))


@given(ENTRIES, st.sampled_from([0, 100, 239, 240, 270, 309, 310, 320]))
def test_before_the_freeze_and_after_it_is_lifted_every_caller_sees_the_same(
    entries: list[ScoredSubmission], at: int
) -> None:
    lifted = replace(ICPC, unfrozen_at=minute(310))
    everybody = scoreboard(lifted, teams("ann", "bob", "cem"), entries, minute(at))
    jury = scoreboard(lifted, teams("ann", "bob", "cem"), entries, minute(at), sees_all=True)

    if at < 240 or at >= 310:
        assert everybody == jury
    # What the freeze shows is what was known when it began; only hopes are added.
    frozen = scoreboard(ICPC, teams("ann", "bob", "cem"), entries, minute(max(at, 240)))
    known = scoreboard(
        ICPC, teams("ann", "bob", "cem"), [e for e in entries if e.submitted_at < minute(240)], END
    )
    assert standing(frozen) == standing(known)


def test_observers_are_shown_without_a_rank_and_hidden_teams_to_juries_only() -> None:
    entries = [
        entry("guest", "fence", 5, "AC"),
        entry("test", "fence", 6, "AC"),
        entry("ann", "fence", 9, "AC"),
    ]
    everyone = [
        *teams("ann"),
        *teams("guest", kind=TeamKind.OBSERVERS),
        *teams("test", kind=TeamKind.HIDDEN),
    ]

    shown = scoreboard(ICPC, everyone, entries, END)
    jury = scoreboard(ICPC, everyone, entries, END, sees_all=True)

    assert [(line.rank, line.team_id) for line in shown] == [(1, "ann"), (None, "guest")]
    assert [(line.rank, line.team_id) for line in jury] == [(1, "ann"), (None, "guest"), (None, "test")]
    assert [line.cells["A"].first for line in jury] == [True, False, False]


def test_nobody_is_first_while_an_earlier_submission_has_no_verdict() -> None:
    entries = [entry("ann", "fence", 5, None), entry("bob", "fence", 6, "AC")]
    decided = [entry("ann", "fence", 5, "WA"), entries[1]]

    def first(seen: list[ScoredSubmission]) -> list[str]:
        lines = scoreboard(ICPC, teams("ann", "bob"), seen, END)
        return [line.name for line in lines if line.cells["A"].first]

    assert (first(entries), first(decided)) == ([], ["bob"])


def test_results_are_revealed_from_the_last_rank_up_until_the_board_is_the_juries() -> None:
    entries = [
        entry("ann", "fence", 10, "AC"),
        entry("bob", "fence", 250, "AC"),
        entry("bob", "paint", 251, "WA"),
        entry("ann", "paint", 260, "AC"),
    ]
    contest, order = ICPC, list[tuple[str, str]]()
    while chosen := next_reveal(contest, teams("ann", "bob"), entries, END):
        order.append(chosen)
        contest = replace(contest, revealed=tuple(order))

    assert order == [("bob", "fence"), ("bob", "paint"), ("ann", "paint")]
    public = scoreboard(contest, teams("ann", "bob"), entries, END)
    assert public == scoreboard(ICPC, teams("ann", "bob"), entries, END, sees_all=True)


def test_a_removed_interval_takes_nobodys_time() -> None:
    """Of all from minute 60 to 90, and of one team from 120 to 150: it ends 30 minutes later."""
    contest = replace(
        ICPC,
        ends_at=minute(330),
        intervals=(
            Interval(1, None, minute(60), minute(90), "power"),
            Interval(2, "cat", minute(120), minute(150), "a broken screen"),
        ),
    )
    tries = [
        ScoredSubmission("con", "fence", minute(75), "AC"),
        ScoredSubmission("con", "paint", minute(160), "AC"),
        ScoredSubmission("cat", "fence", minute(165), "AC"),
        # Within its own time, which is 30 minutes longer than that of the others.
        ScoredSubmission("cat", "paint", minute(340), "AC"),
        ScoredSubmission("dan", "fence", minute(340), "AC"),
    ]

    lines = scoreboard(
        replace(contest, freeze_at=None),
        [Entrant(one, one) for one in ("con", "cat", "dan")],
        tries,
        minute(400),
    )

    assert {one.name: (one.solved, one.penalty) for one in lines} == {
        "con": (2, 60 + 130),
        "cat": (2, 105 + 280),
        "dan": (0, 0),
    }
    assert (contest.over_at, contest.elapsed(contest.ends_at)) == (minute(360), timedelta(hours=5))
    assert contest.elapsed(minute(360), "cat") == timedelta(hours=5)


def test_the_first_solution_is_first_in_the_time_of_the_contest() -> None:
    """A team whose clock stood still for an hour solves later by the wall, and earlier in the contest."""
    contest = replace(ICPC, intervals=(Interval(1, "cat", minute(10), minute(70), "fire"),))
    tries = [
        ScoredSubmission("con", "fence", minute(50), "AC"),
        ScoredSubmission("cat", "fence", minute(90), "AC"),
    ]

    lines = scoreboard(contest, [Entrant("con", "con"), Entrant("cat", "cat")], tries, minute(100))

    assert [(one.name, one.penalty, one.cells["A"].first) for one in lines] == [
        ("cat", 30, True),
        ("con", 50, False),
    ]


def test_a_contest_without_feedback_shows_no_result_before_it_is_over() -> None:
    contest = replace(IOI, feedback=Feedback.NONE, freeze_at=None)
    tries = [ScoredSubmission("con", "fence", minute(50), "AC")]

    def cell(moment: datetime, *, sees_all: bool = False) -> tuple[float | None, int]:
        line = scoreboard(contest, [Entrant("con", "con")], tries, moment, sees_all=sees_all)[0]
        return line.cells["A"].points, line.cells["A"].pending

    assert cell(minute(60)) == (None, 1)
    assert cell(minute(60), sees_all=True) == cell(minute(300)) == (100.0, 0)
