"""Contests: their problems, scoreboards and clarifications; and the form that creates one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query, Request, Response
from pydantic import BaseModel

from fencepost.errors import InvalidInput
from fencepost_judge import _contests as contests
from fencepost_judge import _judge_calls as judge_calls
from fencepost_judge import _visibility as visibility
from fencepost_judge._access import PAGES_ROOT
from fencepost_judge._authentication import Who, author_of
from fencepost_judge._contest_api import ContestRequest, Question, Reply, ask_as, seen_contest
from fencepost_judge._problem import Slug
from fencepost_judge.pages._page_router import PageRouter
from fencepost_judge.pages._page_sessions import form_of
from fencepost_server.web.forms import Id, filled

PAGE_ROWS = 200
HOME = f"{PAGES_ROOT}/contests"


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
        names = await fp.run(contests.entrants(contest))
        shown = seen_contest(seen, who)
        titles = await fp.run(judge_calls.get_titles([one.slug for one in shown.problems]))
        facts = {
            "seen": seen,
            "contest": shown,
            "titles": {one.slug: one.title for one in titles},
            "takes_part": author_of(who, None) in names,
            "contestants": len(names),
        }
        return router.show(request, "contest.html", seen.contest.title, facts)

    @router.router.post(f"{HOME}/{{contest}}/join")
    async def join(request: Request, who: Who, contest: str) -> Response:
        await fp.run(contests.join(contest, author_of(who, None)))
        return router.done(request, f"{HOME}/{contest}", "You take part.")

    @router.router.get(f"{HOME}/{{contest}}/scoreboard")
    async def scoreboard(request: Request, who: Who, contest: str) -> Response:
        board = await visibility.board(fp, who, contest)
        facts = {
            "board": board,
            "contest": seen_contest(board.seen, who),
            "is_frozen": board.contest.hides(board.moment, board.moment),
            "own": author_of(who, None),
        }
        return router.show(request, "scoreboard.html", f"Scoreboard of {board.contest.title}", facts)

    @router.router.post(f"{HOME}/{{contest}}/unfreeze")
    async def unfreeze(request: Request, who: Who, contest: str) -> Response:
        await fp.run(contests.unfreeze(contest, who.name))
        return router.done(request, f"{HOME}/{contest}/scoreboard", "All results are visible now.")


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
            fields[name] = _moment(name, fields.get(name, ""))
        fields["problems"] = _problems(fields.get("problems", ""))
        named = filled(Named, fields)
        wanted = filled(ContestRequest, fields)
        await fp.run(contests.put_contest(wanted.contest(named.contest), who.name))
        return router.done(request, f"{HOME}/{named.contest}", f"{wanted.title} is kept.")


def _add_clarifications(router: PageRouter) -> None:
    fp = router.fp
    place = f"{HOME}/{{contest}}/clarifications"

    @router.router.get(place)
    async def clarifications(request: Request, who: Who, contest: str) -> Response:
        seen = await visibility.contest(fp, contest)
        facts = {
            "contest": seen_contest(seen, who),
            "clarifications": list(reversed(await visibility.clarifications(fp, who, contest))),
        }
        return router.show(request, "clarifications.html", f"Questions about {seen.contest.title}", facts)

    @router.router.post(place)
    async def ask(request: Request, who: Who, contest: str) -> Response:
        await ask_as(who, router.judging, contest, filled(Question, await form_of(request)))
        return router.done(request, f"{HOME}/{contest}/clarifications", "Your question was sent to the jury.")

    @router.router.post(f"{place}/{{clarification_id}}/answer")
    async def answer(request: Request, who: Who, contest: str, clarification_id: Id) -> Response:
        reply = filled(Reply, await form_of(request))
        said = contests.answer(contest, clarification_id, reply.text, to_all=reply.to_all, actor=who.name)
        await fp.run(said)
        return router.done(request, f"{HOME}/{contest}/clarifications", "It is answered.")

    @router.router.post(f"{HOME}/{{contest}}/announcements")
    async def announce(request: Request, who: Who, contest: str) -> Response:
        said = filled(Question, await form_of(request))
        await fp.run(contests.announce(contest, said.label, said.text, who.name))
        return router.done(request, f"{HOME}/{contest}/clarifications", "The announcement is published.")


def _moment(name: str, text: str) -> datetime | None:
    """The value of a browser's date and time field, which has no zone: the form says UTC."""
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{name}: {text[:40]!r} is no time like 2026-10-03T09:00.", field=name) from None
    return given if given.tzinfo else given.replace(tzinfo=UTC)


def _problems(text: str) -> dict[str, str]:
    """A label and a slug on each line."""
    lines = [line.replace("=", " ").split() for line in text.splitlines() if line.strip()]
    if any(len(line) != 2 for line in lines):
        raise InvalidInput("problems: a label and the name of a problem on each line.", field="problems")
    return dict(lines)
