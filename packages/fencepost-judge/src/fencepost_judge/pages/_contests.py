"""Contests: their problems, scoreboards and clarifications; and the form that creates one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from fencepost.client import Fencepost
from fencepost.errors import InvalidInput
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _teams as teams
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._contest_api import ContestRequest, Question, Reply, ask_as, reveal_next
from fencepost_judge._problem import Slug
from fencepost_judge._role import JudgeRole, JudgeVisitor
from fencepost_judge._scoreboard import Contest, ScoreboardRow, TeamKind
from fencepost_judge.ccs import _documents as documents
from fencepost_judge.pages._contest_frame import contest_frame
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import Id, filled
from fencepost_server.web.questions import Confirmation
from fencepost_server.web.templating import HEADERS

PAGE_ROWS = 200
OWN_MAX = 200
"""Of a contestant's submissions, so many are looked through for those into a contest."""
CATEGORIES = ("statement", "tests and verdicts", "technical", "other")
"""Of questions, where the contest has none of its own."""
ANSWERS = ("No comment.", "Read the statement.", "Yes.", "No.", "We look into it.")
"""Which juries give often, where the contest has none of its own."""
HOME = f"{PAGES_ROOT}/contests"


async def is_public(fp: Fencepost, contest: str) -> bool:
    found = await fp.run(contests.contests(one=contest, limit=1))
    return bool(found) and found[0].contest.is_public


def medals_of(contest: Contest, lines: Sequence[ScoreboardRow]) -> dict[str, str]:
    """The medal of each team, if the contest ended as it stands."""
    found = documents.awards(contest, lines, ())
    return {
        team: one["id"].removesuffix("-medal")
        for one in found
        if one["id"].endswith("-medal")
        for team in one["team_ids"]
    }


class Named(BaseModel):
    contest: Slug


def add(router: PageRouter) -> None:
    _add_contests(router)
    _add_making(router)
    _add_clarifications(router)


def _add_contests(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(HOME)
    async def all_contests(request: Request, after: str | None = None) -> Response:
        found = await fp.run(contests.contests(after=after, limit=PAGE_ROWS))
        further = found[-1].contest.slug if len(found) == PAGE_ROWS else None
        return router.show(request, "contests.html", "Contests", {"contests": found, "further": further})

    @router.router.get(f"{HOME}/{{contest}}")
    async def one_contest(request: Request, who: Who, contest: str) -> Response:
        seen = await visibility.contest(fp, contest)
        taking_part = [one.name for one in await fp.run(teams.accounts(contest))]
        frame = await contest_frame(router, request, seen)
        slugs = [one.slug for one in frame["contest"].problems]
        own = await visibility.own_line(fp, who, seen)
        name = author_of(who, None)
        past = await visibility.history(router.judging, who, name, None, OWN_MAX)
        facts = {
            **frame,
            "titles": {one.slug: one.title for one in await fp.run(judge_calls.get_titles(slugs))},
            "takes_part": name in taking_part,
            "contestants": len(taking_part),
            "own": own,
            "own_submissions": [one for one in past if one.contest == contest],
            "tokens_left": await fp.run(contests.tokens_left(contest, name)) if seen.contest.tokens else None,
            "labels": {one.slug: one.label for one in frame["contest"].problems},
        }
        return router.show(request, "contest.html", seen.contest.title, facts)

    @router.router.post(f"{HOME}/{{contest}}/join")
    async def join(request: Request, who: Who, contest: str) -> Response:
        await fp.run(contests.join(contest, author_of(who, None)))
        return router.done(request, f"{HOME}/{contest}", "You take part.")

    @router.router.get(f"{HOME}/{{contest}}/scoreboard")
    async def scoreboard(request: Request, contest: str) -> Response:
        who: JudgeVisitor | None = request.state.visitor
        if who is None and not await is_public(fp, contest):
            # The same for a contest that is not there.
            raise HTTPException(401, "Log in.")
        board = await visibility.board(fp, who, contest)
        after = await fp.run(contests.upsolved(contest)) if board.seen.is_over else []
        own = None if who is None else await fp.run(contests.team_of(contest, author_of(who, None)))
        organizations = {one.id: one.name for one in await fp.run(teams.organizations(contest))}
        groups = [one for one in await fp.run(teams.groups(contest)) if one.kind is not TeamKind.HIDDEN]
        chosen = request.query_params.get("group", "")
        later: dict[str, list[str]] = {}
        labels = {one.slug: one.label for one in board.contest.problems}
        for one in after:
            later.setdefault(one.author, []).append(labels[one.slug])
        facts = {
            **await contest_frame(router, request, board.seen),
            "later": later,
            "board": board,
            "lines": [line for line in board.lines if not chosen or chosen in line.groups],
            "is_frozen": board.contest.hides(board.moment, board.moment),
            "own": own,
            "organizations": organizations,
            "groups": groups,
            "chosen": chosen,
            "medals": medals_of(board.contest, board.lines),
        }
        return router.show(request, "scoreboard.html", f"Scoreboard of {board.contest.title}", facts)

    @router.router.post(f"{HOME}/{{contest}}/unfreeze")
    async def unfreeze(request: Request, who: Who, contest: str) -> Response:
        told = ["All results that the freeze hides become visible to everyone at once."]
        question = Confirmation(
            f"Unfreeze the scoreboard of {contest}?", told, "Unfreeze it", f"{HOME}/{contest}"
        )
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(contests.unfreeze(contest, who.name))
        return router.done(request, f"{HOME}/{contest}/scoreboard", "All results are visible now.")

    @router.router.post(f"{HOME}/{{contest}}/reveal")
    async def reveal(request: Request, who: Who, contest: str) -> Response:
        revealed = await reveal_next(fp, contest, who.name)
        if revealed is None:
            return router.done(request, f"{HOME}/{contest}/scoreboard", "Nothing is hidden any more.")
        team, problem = revealed
        return router.done(request, f"{HOME}/{contest}/scoreboard", f"{team} at {problem} is visible now.")

    @router.router.post(f"{HOME}/{{contest}}/finalize")
    async def finalize(request: Request, who: Who, contest: str) -> Response:
        told = ["Verdicts and standings change no more until it is reopened."]
        question = Confirmation(
            f"Make the results of {contest} final?", told, "Make them final", f"{HOME}/{contest}"
        )
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(contests.finalize(contest, who.name))
        return router.done(request, f"{HOME}/{contest}", "The results are final.")

    @router.router.post(f"{HOME}/{{contest}}/reopen")
    async def reopen(request: Request, who: Who, contest: str) -> Response:
        told = ["They are not final any more: verdicts and standings may change again."]
        question = Confirmation(f"Reopen the results of {contest}?", told, "Reopen them", f"{HOME}/{contest}")
        if (asked := await router.ask(request, question)) is not None:
            return asked
        await fp.run(contests.reopen(contest, who.name))
        return router.done(request, f"{HOME}/{contest}", "The results may change again.")


def _add_making(router: PageRouter) -> None:
    fp = router.fp

    @router.router.get(f"{PAGES_ROOT}/contest")
    async def contest_form(request: Request, contest: Annotated[Slug | None, Query()] = None) -> Response:
        seen = None if contest is None else await visibility.contest(fp, contest)
        title = "A new contest" if seen is None else f"Change {seen.contest.title}"
        return router.show(request, "contest_form.html", title, {"contest": seen and seen.contest})

    @router.router.post(f"{PAGES_ROOT}/contest")
    async def put_contest(request: Request, who: Who) -> Response:
        fields: dict[str, Any] = dict(await form_of(request))
        for name in ("starts_at", "freeze_at", "ends_at"):
            fields[name] = moment_of(name, fields.get(name, ""))
        fields["problems"], fields["colors"] = _problems(fields.get("problems", ""))
        for name in ("public", "verifies"):
            fields[name] = fields.get(name) == "on"
        for name in ("categories", "answers"):
            fields[name] = [line.strip() for line in fields.get(name, "").splitlines() if line.strip()]
        named = filled(Named, fields)
        wanted = filled(ContestRequest, fields)
        await fp.run(wanted.call(named.contest, who.name))
        return router.done(request, f"{HOME}/{named.contest}", f"{wanted.title} is kept.")


def _add_clarifications(router: PageRouter) -> None:
    fp = router.fp
    place = f"{HOME}/{{contest}}/clarifications"

    @router.router.get(place)
    async def clarifications(request: Request, who: Who, contest: str) -> Response:
        seen = await visibility.contest(fp, contest)
        is_jury = who.may(JudgeRole.JURY)
        # Before the questions: what comes in between is shown, and is new once more.
        news = await fp.run(contests.news(contest, who.name, is_jury=is_jury))
        facts = {
            **await contest_frame(router, request, seen),
            "categories": seen.contest.categories or CATEGORIES,
            "answers": seen.contest.answers or ANSWERS,
            "clarifications": list(reversed(await visibility.clarifications(fp, who, contest))),
        }
        if not is_jury:
            await fp.run(contests.has_read(contest, who.name, news.head))
        return router.show(request, "clarifications.html", f"Questions about {seen.contest.title}", facts)

    @router.router.post(place)
    async def ask(request: Request, who: Who, contest: str) -> Response:
        await ask_as(who, router.judging, contest, filled(Question, await form_of(request)))
        return router.done(request, f"{HOME}/{contest}/clarifications", "Your question was sent to the jury.")

    @router.router.get(f"{HOME}/{{contest}}/news")
    async def news(who: Who, contest: str) -> Response:
        """What is new, for the badge and the toasts of open pages."""
        await visibility.contest(fp, contest)
        found = await fp.run(contests.news(contest, who.name, is_jury=who.may(JudgeRole.JURY)))
        return JSONResponse([asdict(one) for one in found.unread], headers=dict(HEADERS))

    @router.router.post(f"{place}/{{clarification_id}}/answer")
    async def answer(request: Request, who: Who, contest: str, clarification_id: Id) -> Response:
        fields = dict(await form_of(request))
        # One of the usual answers, or what was written; the latter where both are given.
        reply = filled(Reply, {**fields, "text": fields.get("text") or fields.get("usual", "")})
        said = contests.answer(contest, clarification_id, reply.text, to_all=reply.to_all, actor=who.name)
        await fp.run(said)
        return router.done(request, f"{HOME}/{contest}/clarifications", "It is answered.")

    @router.router.post(f"{HOME}/{{contest}}/announcements")
    async def announce(request: Request, who: Who, contest: str) -> Response:
        said = filled(Question, await form_of(request))
        await fp.run(contests.announce(contest, said.label, said.text, who.name))
        return router.done(request, f"{HOME}/{contest}/clarifications", "The announcement is published.")


def moment_of(name: str, text: str) -> datetime | None:
    """The value of a browser's date and time field, which has no zone: the form says UTC."""
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name}: {text[:40]!r} is no time like 2026-10-03T09:00.", field=name) from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _problems(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """A label, a slug and perhaps a color on each line: the slugs, and the colors, by label."""
    lines = [line.replace("=", " ", 1).split(maxsplit=2) for line in text.splitlines() if line.strip()]
    if any(len(line) == 1 for line in lines):
        raise InvalidInput("problems: a label and the name of a problem on each line.", field="problems")
    return {one[0]: one[1] for one in lines}, {one[0]: one[2] for one in lines if one[2:]}
