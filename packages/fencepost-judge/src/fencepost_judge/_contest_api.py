"""Contests, their scoreboards and clarifications over HTTP."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from fencepost.client import Fencepost
from fencepost.kernel.call import Call
from fencepost_judge import _contests as contests
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._contests import ContestRules, SeenContest
from fencepost_judge._figures import Figures
from fencepost_judge._problem import Slug
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._scoreboard import Contest, ContestProblem, Feedback, Scoring, next_reveal
from fencepost_judge._service import Judging
from fencepost_server.web.forms import Id

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9]{1,8}$")]
Color = Annotated[str, Field(max_length=60, pattern=r"^[^#\x00-\x1f]*(#([0-9A-Fa-f]{3}|[0-9A-Fa-f]{6}))?$")]
Medals = Annotated[int, Field(ge=0, le=1000)]
Text = Annotated[str, Field(min_length=1, max_length=1000)]
Line = Annotated[str, Field(min_length=1, max_length=60, pattern=r"^[^\x00-\x1f]+$")]


class ContestRequest(BaseModel):
    """A contest. `problems` maps labels to slugs."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=200)]
    scoring: Scoring = Scoring.ICPC
    starts_at: AwareDatetime
    freeze_at: AwareDatetime | None = None
    ends_at: AwareDatetime
    penalty_minutes: Annotated[int, Field(ge=0, le=1440)] = 20
    secret_figures: Figures = Figures.ROUNDED
    problems: Annotated[dict[Label, Slug], Field(max_length=100)]
    colors: dict[Label, Color] = {}
    """Of balloons, by label: `red`, `#f00`, or `red #f00`."""
    public: bool | None = None
    """Whether its scoreboard needs no login. None leaves it as it is, like `medals`."""
    medals: Annotated[list[Medals], Field(min_length=3, max_length=3)] | None = None
    feedback: Feedback | None = None
    """What contestants are told of a verdict until the contest is over."""
    tokens: Annotated[int, Field(ge=0, le=1000)] | None = None
    verifies: bool | None = None
    """Whether the results are final only when a jury has verified each verdict."""
    categories: Annotated[list[Line], Field(max_length=50)] | None = None
    answers: Annotated[list[Text], Field(max_length=50)] | None = None
    """Categories of questions, and answers that a jury gives often."""

    @model_validator(mode="after")
    def _makes_sense(self) -> ContestRequest:
        if not self.starts_at < self.ends_at:
            raise ValueError("it ends before it starts")
        if self.freeze_at is not None and not self.starts_at <= self.freeze_at <= self.ends_at:
            raise ValueError("it freezes before it starts, or after it ends")
        if len(set(self.problems.values())) < len(self.problems):
            raise ValueError("a problem is in it twice")
        if unknown := sorted(set(self.colors) - set(self.problems)):
            raise ValueError(f"{unknown[0]} has a color, and is no problem")
        return self

    def call(self, slug: str, actor: str) -> Call[None]:
        """The call that creates or changes the contest."""
        rules = ContestRules(
            is_public=self.public,
            medals=self.medals,
            feedback=self.feedback,
            tokens=self.tokens,
            verifies=self.verifies,
            categories=self.categories,
            answers=self.answers,
        )
        return contests.put_contest(self.contest(slug), actor, rules)

    def contest(self, slug: str) -> Contest:
        return Contest(
            slug=slug,
            title=self.title,
            scoring=self.scoring,
            starts_at=self.starts_at,
            freeze_at=self.freeze_at,
            ends_at=self.ends_at,
            penalty_minutes=self.penalty_minutes,
            secret_figures=self.secret_figures,
            problems=[
                ContestProblem(label, slug, *_color(self.colors.get(label, "")))
                for label, slug in self.problems.items()
            ],
        )


def _color(text: str) -> tuple[str | None, str | None]:
    """The name of a color, and its value."""
    name, _, value = text.rpartition(" ") if "#" in text else (text, "", "")
    return name.strip() or None, value or None


class JoinRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]+$")] | None = None
    """Another user, which only a jury may name."""


class Question(BaseModel):
    model_config = ConfigDict(extra="forbid")

    label: Label | None = None
    text: Text
    category: Line | None = None


class IntervalRequest(BaseModel):
    """An interval that is removed from the time of a contest, or of one team."""

    model_config = ConfigDict(extra="forbid")

    team: Annotated[str, Field(max_length=36)] | None = None
    from_at: AwareDatetime
    until_at: AwareDatetime
    reason: Text


class Reply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: Text
    to_all: bool = False


def add(router: APIRouter, judging: Judging) -> None:
    _add_contests(router, judging)
    _add_clarifications(router, judging)


def _add_contests(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.get("/judge/api/contests")
    async def all_contests(
        who: Who, after: str | None = None, limit: Annotated[int, Query(ge=1, le=200)] = 100
    ) -> list[dict[str, Any]]:
        found = await fp.run(contests.contests(after=after, limit=limit))
        return [asdict(seen_contest(one, who)) for one in found]

    @router.get("/judge/api/contests/{contest}")
    async def one_contest(contest: str, who: Who) -> dict[str, Any]:
        """The times and the problems of a contest. Contestants see the problems only once it has begun."""
        return asdict(seen_contest(await visibility.contest(fp, contest), who))

    @router.put("/judge/api/contests/{contest}", status_code=204)
    async def put_contest(contest: Slug, request: ContestRequest, who: Who) -> None:
        await fp.run(request.call(contest, who.name))

    @router.post("/judge/api/contests/{contest}/contestants", status_code=204)
    async def join(contest: str, request: JoinRequest, who: Who) -> None:
        """Join a contest."""
        await fp.run(contests.join(contest, author_of(who, request.name)))

    @router.get("/judge/api/contests/{contest}/scoreboard")
    async def scoreboard(contest: str, who: Who, moment: AwareDatetime | None = None) -> dict[str, Any]:
        """The scoreboard, now or at an earlier moment. A jury also sees what the freeze hides."""
        board = await visibility.board(fp, who, contest, moment)
        lines = [asdict(line) for line in board.lines]
        return {**asdict(seen_contest(board.seen, who)), "moment": board.moment, "lines": lines}

    @router.post("/judge/api/contests/{contest}/unfreeze", status_code=204)
    async def unfreeze(contest: str, who: Who) -> None:
        await fp.run(contests.unfreeze(contest, who.name))

    @router.post("/judge/api/contests/{contest}/reveal")
    async def reveal(contest: str, who: Who) -> dict[str, str | None]:
        """Show one result that the freeze hides: of the team that is ranked last, the first problem."""
        team, problem = await reveal_next(fp, contest, who.name) or (None, None)
        return {"team_id": team, "problem_id": problem}

    @router.post("/judge/api/contests/{contest}/finalize", status_code=204)
    async def finalize(contest: str, who: Who) -> None:
        """Make the results final: only when it is over and every submission has its verdict."""
        await fp.run(contests.finalize(contest, who.name))

    @router.post("/judge/api/contests/{contest}/reopen", status_code=204)
    async def reopen(contest: str, who: Who) -> None:
        await fp.run(contests.reopen(contest, who.name))

    @router.post("/judge/api/contests/{contest}/intervals", status_code=201)
    async def remove_interval(contest: str, request: IntervalRequest, who: Who) -> dict[str, int]:
        """Let the clock stand still, for all or for one team: the end comes later by as much."""
        removed = contests.remove_interval(contest, **request.model_dump(), actor=who.name)
        return {"interval_id": await fp.run(removed)}

    @router.delete("/judge/api/contests/{contest}/intervals/{interval_id}", status_code=204)
    async def restore_interval(contest: str, interval_id: Id, who: Who) -> None:
        await fp.run(contests.restore_interval(contest, interval_id, who.name))

    @router.post("/judge/api/submissions/{job_id}/token")
    async def play_token(job_id: Id, who: Who) -> dict[str, int]:
        """See all of a verdict that the contest withholds, for one of the team's tokens."""
        return {"tokens_left": await fp.run(contests.play_token(job_id, who.name))}


def _add_clarifications(router: APIRouter, judging: Judging) -> None:
    fp = judging.fp

    @router.get("/judge/api/contests/{contest}/clarifications")
    async def clarifications(contest: str, who: Who, after: Id | None = None) -> list[dict[str, Any]]:
        """The visitor's own questions and everything that was sent to all; for a jury, everything."""
        return [asdict(one) for one in await visibility.clarifications(fp, who, contest, after)]

    @router.post("/judge/api/contests/{contest}/clarifications", status_code=201)
    async def ask(contest: str, request: Question, who: Who) -> dict[str, int]:
        return {"clarification_id": await ask_as(who, judging, contest, request)}

    @router.post("/judge/api/contests/{contest}/clarifications/{clarification_id}/answer", status_code=204)
    async def answer(contest: str, clarification_id: Id, request: Reply, who: Who) -> None:
        """Answer the user that asked, or all. A question is answered once."""
        call = contests.answer(contest, clarification_id, request.text, to_all=request.to_all, actor=who.name)
        await fp.run(call)

    @router.post("/judge/api/contests/{contest}/announcements", status_code=201)
    async def announce(contest: str, request: Question, who: Who) -> dict[str, int]:
        said = contests.announce(contest, request.label, request.text, who.name)
        return {"clarification_id": await fp.run(said)}


async def reveal_next(fp: Fencepost, contest: str, actor: str) -> tuple[str, str] | None:
    """Show the next hidden result, as a resolver does. Returns its team and problem, or None when nothing is
    hidden."""
    found = await visibility.contest(fp, contest)
    entrants = [one.entrant for one in await fp.run(teams.teams(contest))]
    entries = await fp.run(contests.entries(contest))
    chosen = next_reveal(found.contest, entrants, entries, found.seen_at)
    if chosen is not None:
        await fp.run(contests.reveal(contest, *chosen, actor))
    return chosen


async def ask_as(who: JudgeVisitor, judging: Judging, contest: str, question: Question) -> int:
    """Ask a question. It counts against the same rate limit as a submission."""
    async with judging.fp.transaction() as tx:
        if who.is_limited:
            await tx.run(judging.allowance(who.name))
        asked = contests.ask(contest, question.label, who.name, question.text, question.category)
        return await tx.run(asked)


def seen_contest(found: SeenContest, who: JudgeVisitor | None) -> Contest:
    """The contest without its problems, unless it has begun or the visitor is a jury."""
    is_secret = not (found.has_begun or (who is not None and who.may(JudgeRole.JURY)))
    return replace(found.contest, problems=()) if is_secret else found.contest
