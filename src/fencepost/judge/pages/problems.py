"""Problems: the list, and a statement with its workbench."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Query, Request, Response

from fencepost.errors import FencepostError
from fencepost.judge import contests, records, viewing
from fencepost.judge.access import COURT
from fencepost.judge.contest_api import seen_contest
from fencepost.judge.doors import Who, author_of, told_to
from fencepost.judge.pages import statement
from fencepost.judge.pages.desk import Desk
from fencepost.judge.pages.workbench import Workbench, offered, only_source
from fencepost.judge.problem import Problem, Slug, Timing
from fencepost.judge.role import Role, Visitor
from fencepost.web.answers import status_of
from fencepost.web.forms import Id

PAGE_ROWS = 100
CONTESTS_MAX = 200


def add(desk: Desk) -> None:
    @desk.router.get(COURT)
    async def problems(request: Request, who: Who, after: str | None = None) -> Response:
        found, further = await viewing.problems(desk.judging, who, after, PAGE_ROWS)
        open_now = [
            seen_contest(one, who)
            for one in await desk.fp.run(contests.contests(limit=CONTESTS_MAX))
            if one.has_begun and one.seen_at < one.contest.ends_at
        ]
        facts = {"problems": found, "further": further, "contests": open_now}
        return desk.show(request, "problems.html", "Problems", facts)

    @desk.router.get(f"{COURT}/problems/{{slug}}")
    async def problem(
        request: Request,
        who: Who,
        slug: str,
        contest: Slug | None = None,
        origin: Annotated[Id | None, Query(alias="from")] = None,
    ) -> Response:
        """`from` is a submission to begin with."""
        begun = await _beginning(desk, who, origin)
        return await show_problem(desk, request, slug, {"contest": contest, **begun})

    @desk.router.get(f"{COURT}/problems/{{slug}}/attachments/{{name}}")
    async def attachment(who: Who, slug: str, name: str) -> Response:
        return await viewing.attachment(desk.judging, who, slug, name)


async def show_problem(
    desk: Desk, request: Request, slug: str, bench: Mapping[str, Any], refused: FencepostError | None = None
) -> Response:
    """The statement; with the reason and what was written, when a form was refused."""
    judging, who = desk.judging, _visitor(request)
    found = await viewing.problem(judging, who, slug)
    contest = bench.get("contest")
    facts = {
        "problem": found,
        "statement": await asyncio.to_thread(statement.render, found.problem.statement, found.title),
        "timing": _timing(found.problem, who),
        "attachments": sorted(found.problem.attachments),
        "samples": await viewing.samples(judging, found),
        "tests": sum(1 for _ in found.problem.data.all_cases()),
        "contest": None if contest is None else await viewing.contest(desk.fp, contest),
        "bench": Workbench(problem=slug, languages=offered(judging, found.problem.languages), **bench),
        "complaint": None if refused is None else str(told_to(who, refused)),
    }
    status = 200 if refused is None else status_of(refused)[0]
    return desk.show(request, "problem.html", found.title, facts, status=status)


def _timing(problem: Problem, who: Visitor) -> Timing | None:
    """For juries, where there is something to say: the names of solutions tell what goes wrong."""
    return problem.timing if who.may(Role.JURY) and problem.timing.origin != "package" else None


async def _beginning(desk: Desk, who: Visitor, origin: int | None) -> dict[str, str]:
    """An older submission, or nothing in the language that one used last."""
    if origin is None:
        past = await desk.judging.history(author_of(who, None), None, 1)
        return {"language": past[0].language} if past else {}
    found = await viewing.standing(desk.judging, who, origin)
    docket = (await desk.fp.run(records.get_docket(origin)))[0]
    return {"language": found.language, "code": only_source(docket.sources)}


def _visitor(request: Request) -> Visitor:
    visitor: Visitor = request.state.visitor
    return visitor
